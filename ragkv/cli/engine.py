"""`ragkv engine`: vLLM as a separate server, for services that set RAGKV_ENGINE_URL."""

import os

import click

from ragkv.cli.opened import opened_parts
from ragkv.engine.launch import check_key, serve_command, server_variables, thread_variables
from ragkv.files_io import make_folder


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8001, show_default=True, help="Port to listen on.")
def engine(host: str, port: int) -> None:
    """Run `vllm serve` with KV stitching. It needs access to the service's RAGKV_DATA_DIR.

    If RAGKV_ENGINE_API_KEY is set, every path but /health requires that key. It must be set for addresses that other
    machines can reach.
    """
    with opened_parts() as parts:
        settings = parts.settings
        check_key(settings, host)
        make_folder(settings.kv_dir)
        command = serve_command(settings, parts.model_folder, parts.layout, host, port)
    environ = thread_variables(settings) | os.environ | server_variables(settings)
    os.execvpe(command[0], command, environ)  # noqa: S606 - a fixed program; this process becomes the server
