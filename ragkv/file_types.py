"""Endings of names of files that ingestion reads. An upload may have any name: its bytes decide."""

from pathlib import PurePosixPath

READ = (
    ".pdf", ".docx", ".xlsx", ".xlsm", ".pptx", ".odt", ".ods", ".odp", ".epub", ".rtf", ".eml", ".msg", ".mht", ".mhtml",
    ".csv", ".tsv", ".tab", ".html", ".htm", ".xhtml", ".xml", ".nxml", ".rss", ".atom", ".dita", ".json", ".jsonl",
    ".ndjson", ".geojson", ".ipynb", ".rst", ".org", ".md", ".markdown", ".txt", ".text", ".log",
)  # fmt: skip


def is_read(name: str) -> bool:
    """Whether a file of this name is worth a look."""
    return PurePosixPath(name.lower()).suffix in READ
