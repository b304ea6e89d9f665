"""JSON reports of the measuring commands, and what these refuse before they measure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ragkv.errors import Rejected
from ragkv.policies import POLICIES, PolicyName

Report = TypeVar("Report", bound=msgspec.Struct)


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
            f"RAGKV_RECOMPUTE_POLICY={policy} needs the question's vectors, which are not computed here: set another one"
        )


def read_report(file: Path, kind: type[Report]) -> Report:
    """The report in a file. Raises Rejected for a file that holds none of this kind, an earlier version's perhaps."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise Rejected(f"{file} holds no such report: {error}") from None


def write_report(report: msgspec.Struct | Mapping[str, Any], file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
