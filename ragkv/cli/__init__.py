"""The `ragkv` command. Sub-commands come from the entry points "ragkv.commands", each imported only when used."""

import os
import signal
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from ragkv.errors import RagKVError
from ragkv.observe import logs

GROUP = "ragkv.commands"


class Group(click.Group):
    """A group whose list of commands wraps their first lines instead of truncating them."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(context, name) for name in self.list_commands(context)}
        with formatter.section("Commands"):
            formatter.write_dl([(n, c.get_short_help_str(limit=80) if c else "") for n, c in commands.items()])


class Commands(Group):
    """Sub-commands found when needed. One that cannot be imported does not break the others."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(_entry_points())

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        entry = _entry_points().get(name)
        if entry is None:
            return None
        try:
            command = entry.load()
        except ImportError as error:
            problem = str(error)

            def refuse() -> None:
                click.echo(f"ragkv {name} is not available: {problem}", err=True)
                sys.exit(1)

            return click.Command(name, callback=refuse, help=f"Not available: {problem}")
        assert isinstance(command, click.Command), f"{entry.value} is not a command"
        return command

    def invoke(self, context: click.Context) -> Any:
        """Report an error in one line, with exit code 1. A reader that is gone is none: click ends quietly."""
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise
        except (RagKVError, OSError) as error:
            click.echo(f"ragkv: {error}", err=True)
            context.exit(1)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="ragkv")
def main() -> None:
    """Answer questions from documents whose KV is computed in advance.

    Settings are environment variables RAGKV_*, or lines of the TOML file that RAGKV_SETTINGS names.
    """
    os.umask(0o077)  # files are readable by this user only
    logs.configure("console", "warning", "cli")
    # SIGTERM unwinds like an exception, so that every process a command started is stopped.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
