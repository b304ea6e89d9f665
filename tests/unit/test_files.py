"""Uploaded files, before they are whole."""

from pathlib import Path

import pytest

from ragkv.errors import OutOfSpace
from ragkv.files import FileStore


def test_what_outgrows_memory_is_written_where_the_files_are_and_leaves_no_name(tmp_path: Path):
    with FileStore(tmp_path / "files").spool(10) as file:
        file.write(b"0123456789")
        file.write(b"abc")
        file.seek(0)

        assert file.read() == b"0123456789abc"
        assert tmp_path.stat().st_dev == Path(f"/proc/self/fd/{file.fileno()}").stat().st_dev
        assert list((tmp_path / "files").iterdir()) == []


def test_what_outgrows_memory_is_refused_while_the_disk_is_nearly_full(tmp_path: Path):
    with FileStore(tmp_path / "files", reserve=2**60).spool(10) as file:
        file.write(b"0123456789")
        with pytest.raises(OutOfSpace, match="RAGKV_MIN_FREE_BYTES"):
            file.write(b"a")
