"""Cells that are a number, an amount or a time, by how they are written anywhere in the world."""

import re

_NUMBER = re.compile(
    r"[<>~≈±+\-–−(]{0,3}[$€£¥]?[ ]?(?:\d[\d.,'’ _/:]{0,40}|[.,]\d{1,40})(?:[eE][+-]?\d{1,4})?[ ]?[%‰°$€£¥)*]{0,3}"
)
_TIME = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?:[T ]\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)
_ABSENT = {"", "-", "–", "—", "n/a", "na", "nan", "null", "none", "..", "?"}


def is_number(cell: str) -> bool:
    """Whether a cell is a number, with its sign, currency or separators, or a date or time in digits."""
    return bool(_NUMBER.fullmatch(cell) or _TIME.fullmatch(cell))


def is_absent(cell: str) -> bool:
    """Whether a cell has no value."""
    return cell.casefold() in _ABSENT


def are_numbers(cells: list[str]) -> bool:
    """Whether all cells that have a value are numbers, and one has."""
    present = [cell for cell in cells if not is_absent(cell)]
    return bool(present) and all(map(is_number, present))
