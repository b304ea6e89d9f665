"""Names of vector stores that were made without one."""

import re

from ragkv.ids import new_id

_GENERATED = re.compile(r"vector store [0-9a-f]{8}")


def generated_name() -> str:
    return f"vector store {new_id()[:8]}"


def is_generated(name: str) -> bool:
    return _GENERATED.fullmatch(name) is not None
