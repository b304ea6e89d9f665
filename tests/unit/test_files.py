"""Uploaded files, before and when they are whole, and folders that one process fills."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from ragkv.errors import OutOfSpace
from ragkv.files_io import fill_once, replace_file
from ragkv.service.base.file_store import FileStore
from tests.support.synced import synced


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


def test_a_kept_upload_and_all_folders_made_for_it_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, on_disk = FileStore(tmp_path / "data" / "files"), synced(monkeypatch)

    with store.receive(BytesIO(b"text"), 10) as received:
        store.keep("tenant", received)

    path = store.path("tenant", received.sha256)
    assert received.path in on_disk
    assert set(path.parents) - set(tmp_path.parents) <= set(on_disk)


def test_folders_that_are_there_are_not_flushed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = FileStore(tmp_path / "files")
    for _ in range(2):
        on_disk = synced(monkeypatch)
        with store.receive(BytesIO(b"text"), 10) as received:
            store.keep("tenant", received)

    assert on_disk == [received.path, store.path("tenant", received.sha256).parent]


def test_a_file_that_several_write_at_once_is_whole_at_any_time_also_where_their_process_ids_are_equal(tmp_path: Path):
    """As in containers that share a folder: in each the first process is number 1."""
    file, contents = tmp_path / "state.json", [letter * 200_000 for letter in (b"a", b"b")]
    replace_file(file, contents[0])

    with ThreadPoolExecutor(len(contents)) as writers:
        writing = [writers.submit(replace_file, file, content) for content in contents * 50]
        assert all(file.read_bytes() in contents for _ in range(200))
    for written in writing:
        written.result()
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_is_filled_once_also_where_a_process_with_the_same_id_was_killed(tmp_path: Path):
    """As in a container, where ids are the same at each start."""
    folder, filled = tmp_path / "models" / "tiny", list[Path]()
    for leftover in ("tiny.partial", f"tiny.{os.getpid()}.partial"):
        (folder.parent / leftover).mkdir(parents=True)
        (folder.parent / leftover / "half").touch()

    def fill(path: Path) -> None:
        filled.append(path)
        time.sleep(0.05)
        (path / "whole").touch()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: fill_once(folder, fill), range(4)))

    assert len(filled) == 1
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert [path for path in folder.parent.iterdir() if path.name.endswith("partial")] == []
