"""Sets of characters, as patterns write them."""

from collections.abc import Iterable


def ranges(codes: Iterable[int]) -> str:
    """Characters, ascending, as the inside of a character class."""
    spans: list[list[int]] = []
    for code in codes:
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in spans)
