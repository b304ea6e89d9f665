"""`ragkv ray-config`: engines under Ray Serve LLM, for services that set RAGKV_ENGINE_URL."""

import json

import click

from ragkv.cli.opened import opened_parts
from ragkv.engine.launch import check_key
from ragkv.engine.ray import serve_config
from ragkv.files_io import make_folder


@click.command("ray-config")
@click.option("--engines", type=click.IntRange(1), default=2, show_default=True, help="Number of replicas.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that Ray Serve listens on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8001, show_default=True, help="Port of Ray Serve.")
def ray_config(engines: int, host: str, port: int) -> None:
    """Print the configuration of engines under Ray Serve LLM, behind a router that keeps questions about the same
    passages together: JSON, which `serve run FILE` takes.

    If RAGKV_ENGINE_API_KEY is set, engines require it, and Ray must be started with VLLM_API_KEY set to the same value.
    It must be set for addresses that other machines can reach. Engines need access to the service's RAGKV_DATA_DIR.
    """
    with opened_parts() as parts:
        check_key(parts.settings, host)
        make_folder(parts.settings.kv_dir)
        config = serve_config(parts.settings, parts.model_folder, parts.layout, engines, host, port)
    click.echo(json.dumps(config, indent=2))
