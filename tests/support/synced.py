"""Files and folders that are flushed to disk, as they are."""

import os
from pathlib import Path

import pytest


def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The path that each file or folder has when it is flushed, from now on."""
    paths = list[Path]()
    fsync = os.fsync

    def record(descriptor: int) -> None:
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths
