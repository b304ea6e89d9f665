"""Counts with their nouns."""


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 document, 2 documents."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
