"""`ragkv engine`: vLLM as a server of its own, for services that set RAGKV_ENGINE_URL."""

import os

import click

from ragkv.engine.launch import serve_command
from ragkv.parts import Parts
from ragkv.settings import Settings


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8001, show_default=True, help="Port to listen on.")
def engine(host: str, port: int) -> None:
    """Run `vllm serve` so that it stitches. It must see the service's RAGKV_DATA_DIR."""
    parts = Parts(Settings.from_env(os.environ))
    parts.settings.kv_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = serve_command(parts.settings, parts.model_folder, parts.layout, host, port)
    os.execvp(command[0], command)  # noqa: S606 - a fixed program; this process becomes the server
