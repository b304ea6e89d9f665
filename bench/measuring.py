"""JSON reports of the measuring commands, and what these commands refuse before they start."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from ragkv.errors import Rejected
from ragkv.stitch.policies import POLICIES, PolicyName

OUTPUT = click.Path(dir_okay=False, writable=True, path_type=Path)
"""A file that a command writes."""


def json_option(help: str) -> Callable[[Any], Any]:  # noqa: A002 - click's name
    """The option --json, the argument `json_file`: a report's path, or None."""
    return click.option("--json", "json_file", type=OUTPUT, help=help)


def check_folder(option: str, file: Path | None) -> None:
    """Check the folder of an output file. Raises Rejected if there is no folder for the file: measuring takes minutes,
    and that is better known before."""
    if file is not None and not file.parent.is_dir():
        raise Rejected(f"{option} {file}: there is no folder {file.parent}")


def check_policy(policy: PolicyName) -> None:
    """Check the policy of plans that are made without a service. Raises Rejected for one that needs the question's
    vectors, which a service asks the engine for."""
    if POLICIES[policy].needs_question_vectors:
        raise Rejected(
            f"RAGKV_RECOMPUTE_POLICY={policy} needs the question's vectors, which are not computed here: set another policy"
        )


def write_report(report: msgspec.Struct | Mapping[str, Any], file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
