"""Folders watched for changes: real files and the kernel's own notices."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ragkv.errors import Unavailable
from ragkv.service.data_sources import watching
from ragkv.service.data_sources.folder import FolderFiles
from tests.support.over_http import wait_until

QUIET_MS = 50
LONGER_S = 0.3
"""Longer than news of a change takes."""


@dataclass
class Watched:
    """A folder, and a thread that watches it."""

    folder: Path
    news: int = 0
    reason: str | None = None
    begun: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self.begun.wait(10)

    def is_news(self, change: Callable[[], object]) -> bool:
        """Whether the change is told."""
        before = self.news
        change()
        deadline = time.monotonic() + LONGER_S
        while self.news == before and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.news > before

    def told(self, change: Callable[[], object]) -> None:
        before = self.news
        change()
        wait_until(lambda: self.news > before, 20)
        time.sleep(LONGER_S / 2)

    def _run(self) -> None:
        try:
            watching.watch(FolderFiles(self.folder, []), self.stop, self._changed, self.begun.set, QUIET_MS)
        except Unavailable as error:
            self.reason = str(error)
            self.begun.set()

    def _changed(self) -> None:
        self.news += 1


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    folder = tmp_path / "inbox"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text("# A\n")
    (folder / "film.mp4").write_text("x")
    (folder / "elsewhere").symlink_to(tmp_path)
    one = Watched(folder)
    one.start()
    yield one
    one.stop.set()
    one.thread.join(10)
    assert not one.thread.is_alive()


def test_what_a_sync_would_find_is_told(watched: Watched):
    """New, changed, moved and deleted files, in folders that came later too."""
    folder = watched.folder
    deep = folder / "new" / "deep"
    watched.told(lambda: (folder / "b.md").write_text("# B\n"))
    watched.told(lambda: (folder / "sub" / "a.md").write_text("# A\n"))
    watched.told(lambda: (folder / "a.md").write_text("# Changed\n"))
    watched.told(lambda: deep.mkdir(parents=True))
    watched.told(lambda: (deep / "c.md").write_text("# C\n"))
    watched.told(lambda: (folder / "b.md").rename(deep / "b.md"))
    watched.told((deep / "c.md").unlink)
    watched.told(lambda: (folder / "new").rename(folder.parent / "away"))


def test_nothing_else_is_told(watched: Watched, tmp_path: Path):
    """Reading, hidden files, files of other types, and what links lead to: a sync would find nothing."""
    folder = watched.folder
    assert not watched.is_news((folder / "a.md").read_text)
    assert not watched.is_news(lambda: (folder / ".a.md.swp").write_text("x"))
    assert not watched.is_news(lambda: (folder / "film.mp4").write_text("xx"))
    assert not watched.is_news(lambda: (tmp_path / "outside.md").write_text("x"))


def test_a_folder_whose_name_is_no_utf8_leaves_the_others_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A sync does not read what is in it. The log says so once."""
    (tmp_path / os.fsdecode(b"caf\xe9") / "below").mkdir(parents=True)
    one = Watched(tmp_path)
    one.start()
    try:
        one.told(lambda: (tmp_path / "a.md").write_text("# A\n"))
        one.told(lambda: (tmp_path / "b.md").write_text("# B\n"))
    finally:
        one.stop.set()
        one.thread.join(10)
    assert one.reason is None
    assert [record.args for record in caplog.records] == [(2, str(tmp_path / os.fsdecode(b"caf\xe9")))]


def test_thousands_of_changes_are_few_news(watched: Watched):
    watched.told(lambda: [(watched.folder / f"{number}.md").write_text("x") for number in range(3000)])
    time.sleep(LONGER_S)
    assert watched.news < 300


def test_a_folder_that_goes_away_is_the_reason(watched: Watched):
    watched.folder.rename(watched.folder.with_name("away"))
    wait_until(lambda: watched.reason is not None, 10)
    assert "the folder cannot be read" in str(watched.reason)


def test_more_folders_than_may_be_are_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watching, "MAX_FOLDERS", 3)
    for number in range(3):
        (tmp_path / str(number)).mkdir()
    one = Watched(tmp_path)
    one.start()
    one.thread.join(10)
    assert one.reason == "it has more than 3 folders"


def test_a_kernel_without_a_watch_left_is_the_reason(tmp_path: Path):
    """In a process that may open no further file, which the kernel answers as it does where a user's watchers are used
    up."""
    script = """
        import os, resource, sys, threading
        from pathlib import Path
        from ragkv.service.data_sources import watching
        from ragkv.service.data_sources.folder import FolderFiles
        from ragkv.errors import Unavailable

        real = watching._refuse_network

        def exhausted(folder):
            real(folder)
            folders = list(FolderFiles.folders(FolderFiles(Path(sys.argv[1]), [])))
            FolderFiles.folders = lambda self: iter(folders)
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1,) * 2)

        watching._refuse_network = exhausted
        try:
            watching.watch(FolderFiles(Path(sys.argv[1]), []), threading.Event(), print, print)
        except Unavailable as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Too many open files" in done.stdout, done
    assert "max_user_instances" in done.stdout


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/srv/docs/a", "nfs4"), ("/srv/docs", "nfs4"), ("/srv/docs-more", "ext4"), ("/mnt/my share/x", "cifs")],
)
def test_the_disk_of_a_folder_is_told_from_the_mounts(folder: str, kind: str):
    mounts = ["/dev/sda1 / ext4 rw 0 0", "host:/docs /srv/docs nfs4 rw 0 0", r"//host/x /mnt/my\040share cifs rw 0 0"]
    assert watching.kind_of_disk(Path(folder), mounts) == kind


def test_a_network_disk_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"host:/docs {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(watching, "_MOUNTS", mounts)
    one = Watched(tmp_path)
    one.start()
    one.thread.join(10)
    assert "network disk (nfs4)" in str(one.reason)
