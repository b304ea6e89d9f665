"""Content uploaded by users, sent so that browsers execute nothing in it; files are sent as attachments."""

from pathlib import Path

from litestar.response import File

SANDBOXED = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
"""Headers of such content."""


def attachment(path: Path, name: str) -> File:
    """An uploaded file, byte for byte, to be saved under a name."""
    return File(path, filename=name, media_type="application/octet-stream", headers=SANDBOXED)
