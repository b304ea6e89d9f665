"""`ragkv models`: which models can be served."""

import os
from pathlib import Path

import click

from ragkv.cli import Group
from ragkv.kv.layout import layout_of, read_config
from ragkv.settings import Settings


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
    click.echo(
        f"{name} can be served ({config.model_type}): {layout.layers} layers, {layout.kv_heads} KV heads of "
        f"{layout.head_dim}, {layout.bytes_per_token / 1024:,.0f} KiB of KV a token"
    )
