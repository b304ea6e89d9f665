"""Watches folders for changes reported by the kernel. The only module that imports watchfiles.

Of watchfiles this takes what its `watch` is made of: that one opens its watches only when it is asked for changes, too
late to say since when there are any.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path, PurePath

from watchfiles import Change
from watchfiles._rust_notify import RustNotify

from ragkv.errors import Unavailable
from ragkv.file_types import is_read
from ragkv.service.data_sources.folder import FolderFiles
from ragkv.service.data_sources.location import is_hidden

log = logging.getLogger(__name__)

MAX_FOLDERS = 10_000
"""Folders of one data source, at most: the kernel keeps a watch for each, and limits their number for each user."""
QUIET_MS = 1_000
"""Changes that come closer together are one."""
BURST_MS = 10_000
"""As long as changes may hold up the news of them."""
LOOK_MS = 60_000
NETWORK = (
    "nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "beegfs", "gpfs", "fuse.", "virtiofs", "davfs",
)  # fmt: skip
"""Beginnings of the types of file systems that others change without the kernel's knowledge."""
_MOUNTS = Path("/proc/self/mounts")


def watch(
    files: FolderFiles,
    stop: threading.Event,
    changed: Callable[[], None],
    begun: Callable[[], None],
    quiet_ms: int = QUIET_MS,
) -> None:
    """Call `begun` once the folder is watched, then `changed` after every burst of changes until `stop` is set.

    Raises Unavailable, with the reason, once the folder cannot be watched: it is gone, it lies on a network disk, or
    the kernel has no watch left. Links are not followed; hidden files and folders, and changes of files that ingestion
    does not read, are ignored. So are folders whose names are not UTF-8, which no sync reads either.
    """
    left_out: set[Path] = set()
    watched = _watched(files, left_out)
    try:
        begun()
        while not stop.is_set():
            changes = watched.watch(BURST_MS, quiet_ms, LOOK_MS, stop)
            if isinstance(changes, str) or not any(_matters(kind, path, files.path) for kind, path in changes):
                continue
            # With folders that are new. Opened before the others are closed: no change falls between them.
            earlier, watched = watched, _watched(files, left_out)
            earlier.close()
            changed()
    finally:
        watched.close()


def _watched(files: FolderFiles, left_out: set[Path]) -> RustNotify:
    """Watches of the folder and of each below it. One for the whole tree would follow links. left_out: folders that
    cannot be watched, which the log says already; others are added."""
    _refuse_network(files.path)
    folders = list(islice(files.folders(), MAX_FOLDERS + 1))
    if len(folders) > MAX_FOLDERS:
        raise Unavailable(f"it has more than {MAX_FOLDERS:,} folders")
    not_utf8 = {folder for folder in folders if os.fsencode(folder).decode(errors="replace") != str(folder)}
    if new := not_utf8 - left_out:
        left_out |= new
        log.warning("%d folders are not watched, for their names are not UTF-8: one is %a", len(new), str(min(new)))
    try:
        return RustNotify([str(folder) for folder in folders if folder not in left_out], False, False, 0, False, True)
    except FileNotFoundError:
        raise Unavailable("a folder vanished in the meantime") from None
    except (OSError, RuntimeError) as error:
        cause = str(error).partition(" about [")[0].strip() or type(error).__name__
        raise Unavailable(f"{cause}: raise fs.inotify.max_user_watches and max_user_instances") from None


def _matters(kind: int, path: str, root: Path) -> bool:
    """Whether a sync may find something else than before. What came or went may be a folder."""
    names = PurePath(path).relative_to(root).parts if PurePath(path).is_relative_to(root) else ()
    if any(map(is_hidden, names)):
        return False
    return kind != Change.modified or not names or is_read(names[-1])


def _refuse_network(folder: Path) -> None:
    try:
        kind = kind_of_disk(folder, _MOUNTS.read_text().splitlines())
    except OSError:
        return
    if kind.startswith(NETWORK):
        raise Unavailable(
            f"it is on a network disk ({kind}), where the kernel does not report the changes that other machines make"
        )


def kind_of_disk(folder: Path, mounts: Iterable[str]) -> str:
    """The type of the file system that a folder lies on, from lines of /proc/mounts; empty if none says."""
    kinds = {}
    for _, place, kind, *_ in map(str.split, mounts):  # spaces and the like are written as \040 there
        path = place.replace(r"\040", " ").replace(r"\011", "\t").replace(r"\012", "\n").replace(r"\134", "\\")
        kinds[PurePath(path)] = kind
    return next((kinds[place] for place in (folder, *folder.parents) if place in kinds), "")
