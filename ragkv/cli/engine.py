"""`ragkv engine` and `ragkv ray-config`: vLLM as separate servers, for services that set RAGKV_ENGINE_URL; and
`ragkv models`: which models they can serve."""

import json
import os
from pathlib import Path

import click

from ragkv.cli import Group
from ragkv.cli.opened import opened_parts
from ragkv.engine.launch import check_key, processor_variables, ray_serve_config, serve_command, server_variables
from ragkv.files_io import make_folder
from ragkv.kv.layout import layout_of, read_config
from ragkv.settings import Settings


@click.command()
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8001, help="Port to listen on.")
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
    environ = processor_variables(settings) | os.environ | server_variables(settings)
    os.execvpe(command[0], command, environ)  # noqa: S606 - a fixed program; this process becomes the server


@click.command("ray-config")
@click.option("--engines", type=click.IntRange(1), default=2, help="Number of replicas.")
@click.option("--host", default="127.0.0.1", help="Address that Ray Serve listens on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8001, help="Port of Ray Serve.")
def ray_config(engines: int, host: str, port: int) -> None:
    """Print the configuration of engines under Ray Serve LLM, behind a router that keeps questions about the same
    passages together: JSON, which `serve run FILE` takes.

    If RAGKV_ENGINE_API_KEY is set, engines require it, and Ray must be started with VLLM_API_KEY set to the same value.
    It must be set for addresses that other machines can reach. Engines need access to the service's RAGKV_DATA_DIR.
    """
    with opened_parts() as parts:
        check_key(parts.settings, host)
        make_folder(parts.settings.kv_dir)
        config = ray_serve_config(parts.settings, parts.model_folder, parts.layout, engines, host, port)
    click.echo(json.dumps(config, indent=2))


@click.group(cls=Group)
def models() -> None:
    """Find out which models can be served."""


@models.command()
@click.argument("name")
def check(name: str) -> None:
    """Say whether the model of this NAME at Hugging Face, or in this folder, can be served with these settings.

    Only its config.json is read, or downloaded. Exit code 1 and the reason if it cannot be.
    """
    settings = Settings.from_env(os.environ)
    config = read_config(Path(name))
    layout = layout_of(config, settings.dtype, settings.max_model_len)
    heads = f"latents of {layout.head_dim}" if layout.is_latent else f"{layout.kv_heads} KV heads of {layout.head_dim}"
    click.echo(
        f"{name} can be served ({config.model_type}): {layout.layers} layers, {heads}, "
        f"{layout.bytes_per_token / 1024:,.0f} KiB of KV a token"
    )
