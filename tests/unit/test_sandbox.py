"""Parsing in a confined child: what it may use up, how it may end, and what the worker makes of it."""

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ingest.parse import Attachment, Page, Parsed, Section, parse
from ingest.parse.parsed import MAX_SECTIONS, LeftOut
from ingest.parse.scan import Box, Line, ScannedPage
from ingest.sandbox.messages import Ended, Limits, Read, encode
from ingest.sandbox.parser import Parser
from ingest.sandbox.validate import is_valid
from ingest.sandbox.verdict import Answered, ParserStopped, verdict
from ragkv.errors import Rejected, TooLarge

DOCUMENTS = sorted((Path(__file__).parents[2] / "docs" / "sample" / "documents").iterdir())
SLOW = b"# Heading\n\n" + b"> * a\n" * 1_000_000
LIMITS = Limits(seconds=60, memory_mib=2048)


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    parser = Parser(LIMITS)
    yield parser
    parser.close()


def read(parser: Parser, name: str, body: bytes, watch=lambda done, total: None) -> Parsed:
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.seek(0)
        return parser.parse(name, file, watch)


def limited(parser: Parser, seconds: int, memory_mib: int) -> Parser:
    """A parser with other limits over the same server."""
    other = Parser(Limits(seconds, memory_mib))
    other._servers = parser._servers
    return other


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_read_in_the_sandbox_is_the_same(parser: Parser, path: Path):
    with path.open("rb") as body:
        assert parser.parse(path.name, body) == parse(path.name, path.read_bytes())


def test_a_refusal_keeps_its_kind_and_its_words(parser: Parser):
    with pytest.raises(Rejected, match=r"^a\.pdf: it ends before its end mark"):
        read(parser, "a.pdf", b"%PDF-1.4 cut short")


def test_a_document_that_takes_too_long_is_refused_and_the_next_one_read(parser: Parser):
    read(parser, "a.txt", b"words")
    began = time.monotonic()
    with pytest.raises(TooLarge, match=r"^a\.md: it takes more than 1 s to read"):
        read(limited(parser, 1, 2048), "a.md", SLOW)

    assert time.monotonic() - began < 20
    assert read(parser, "a.txt", b"words").text == "words"


def test_a_document_that_waits_for_the_processor_is_read(parser: Parser):
    """As on a machine that is busy with other work: here its process is stopped for longer than its limit."""
    read(parser, "a.txt", b"words")
    busy, stopped = limited(parser, 2, 2048), list[psutil.Process]()

    def stop(done: int, total: int) -> None:
        if not stopped and (children := _children_of(parser)):
            stopped.extend(children)
            children[0].suspend()
            threading.Timer(2.5, children[0].resume).start()

    assert read(busy, "a.md", SLOW[:60_000], stop).text.startswith("# Heading")
    assert stopped


def test_a_document_that_takes_too_much_memory_is_refused_and_the_next_one_read(parser: Parser):
    read(parser, "a.txt", b"words")
    with pytest.raises(TooLarge, match=r"^a\.md: it takes more than 64 MiB of memory to read"):
        read(limited(parser, 60, 64), "a.md", SLOW)

    assert read(parser, "a.txt", b"words").text == "words"


def test_what_the_watcher_raises_ends_the_child_at_once():
    parser, seen = Parser(LIMITS), []

    def stop(done: int, total: int) -> None:
        seen.extend(_children_of(parser))
        if seen:
            raise InterruptedError("stop")

    with pytest.raises(InterruptedError):
        read(parser, "a.md", SLOW, stop)
    assert seen
    assert not any(child.is_running() for child in seen)
    parser.close()


@pytest.mark.parametrize("who", ["child", "server"])
def test_a_parser_killed_from_outside_may_be_tried_again(who: str):
    parser = Parser(LIMITS)

    def kill(done: int, total: int) -> None:
        if children := _children_of(parser):
            (children[0] if who == "child" else children[0].parent()).kill()

    with pytest.raises(ParserStopped):
        read(parser, "a.md", SLOW, kill)
    assert read(parser, "a.txt", b"words").text == "words"
    parser.close()


def test_server_and_child_die_with_the_worker(tmp_path: Path):
    """Also where the worker is killed and can do nothing about it."""
    (tmp_path / "a.md").write_bytes(SLOW)
    source = (
        "import os, sys, signal, psutil\n"
        "from ingest.sandbox.parser import Parser\nfrom ingest.sandbox.messages import Limits\n"
        "def kill(done, total):\n"
        "    found = psutil.Process().children(recursive=True)\n"
        "    if len(found) == 2:\n"
        "        print(*(one.pid for one in found), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "Parser(Limits(60, 2048)).parse('a.md', open(sys.argv[1], 'rb'), kill)\n"
    )
    done = subprocess.run([sys.executable, "-c", source, tmp_path / "a.md"], capture_output=True, check=False)
    pids = list(map(int, done.stdout.split()))

    assert done.returncode == -signal.SIGKILL
    assert len(pids) == 2
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=20)
    assert alive == []


@pytest.mark.parametrize(
    ("deed", "denied"),
    [
        ("open('/etc/hostname')", "OSError"),
        ("__import__('socket').socket()", "OSError"),
        ("os.pipe()", "OSError"),
        ("os.fork()", "BlockingIOError"),
        ("os.unlink(sys.argv[1])", "PermissionError"),
        ("os.kill(os.getppid(), 0)", "PermissionError"),
        ("os.write(1, b'x')", "OSError"),
        ("bytearray(200 << 20)", "MemoryError"),
    ],
)
def test_a_confined_process_is_denied(deed: str, denied: str, tmp_path: Path):
    """Whatever code runs in it. Where the kernel has no Landlock, root alone is kept from files and signals."""
    (tmp_path / "precious").touch()
    source = (
        "import os, sys, socket\nfrom ingest.sandbox.confine import confine\n"
        "from ingest.sandbox.messages import Limits\n"
        f"confine(Limits(5, 64))\ntry:\n    {deed}\n"
        f"except Exception as error: os._exit(7 if isinstance(error, {denied}) else 1)\nos._exit(0)\n"
    )
    with tempfile.TemporaryFile() as out:
        ended = subprocess.run(
            [sys.executable, "-c", source, tmp_path / "precious"], stdout=out, check=False, preexec_fn=_ignore_xfsz
        )
    assert ended.returncode == 7


def test_the_fork_server_loads_the_parsers_alone():
    """What it loads, each child holds and a taken-over parser can read."""
    source = "import sys, ingest.sandbox.server; print(*sys.modules)"
    loaded = (
        subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, check=True).stdout.decode().split()
    )

    assert not {"torch", "numpy", "transformers", "sqlalchemy", "celery", "redis", "ragkv.settings"} & set(loaded)


def test_the_service_s_environment_stays_outside(parser: Parser):
    read(parser, "a.txt", b"words")

    assert Path(f"/proc/{parser._servers[False].process.pid}/environ").read_bytes() == b""


class TestAnAnswerIsNotTrusted:
    GOOD = Parsed("T", "one two", (Page(1, 0, 3), Page(2, 4, 7)), "text/plain", (Section(0, 3, "one", 1),))

    def test_a_document_that_breaks_a_promise_is_refused(self, subtests: pytest.Subtests):
        for change in [
            {"text": ""},
            {"text": "one\x00two"},
            {"title": ""},
            {"title": "two\nlines"},
            {"media_type": "text/evil"},
            {"pages": (Page(1, 0, 8),)},
            {"pages": (Page(1, 3, 0),)},
            {"pages": (Page(2, 0, 3),)},
            {"scans": (ScannedPage(3, 10, 10, ()),)},
            {"scans": (ScannedPage(2, 10, 10, ()), ScannedPage(1, 10, 10, ()))},
            {"scans": (ScannedPage(1, float("inf"), 10, ()),)},
            {"scans": (ScannedPage(1, 10, 10, (Line("one", Box(5, 5, 90, 1)),)),)},
            {"scans": (ScannedPage(1, 10, 10, (Line("", Box(5, 5, 1, 1)),)),)},
            {"sections": (Section(-1, 3, "one", 1),)},
            {"sections": (Section(0, 3, "one", 1), Section(2, 4, "two", 1))},
            {"sections": (Section(0, 3, "", 1),)},
            {"sections": (Section(0, 3, "one", 0),)},
            {"attachments": (Attachment("two\nlines", b"words"),)},
            {"attachments": (Attachment("a.txt", b""),)},
            {"left_out": LeftOut(-1, 0)},
            {"left_out": LeftOut(0, 1 << 62)},
        ]:
            with subtests.test(change=change):
                assert is_valid(self.GOOD)
                assert not is_valid(replace(self.GOOD, **change))
                with pytest.raises(Rejected, match="no valid answer"):
                    _judged(encode(Read(replace(self.GOOD, **change))))

    @pytest.mark.parametrize(
        "message", [b"", b"\xc1", b"\xff" * 100, encode(Read(GOOD))[:-1], encode({"type": "evil"})]
    )
    def test_what_is_no_answer_is_a_crash(self, message: bytes):
        with pytest.raises(Rejected, match="crashed on it"):
            _judged(message)

    def test_more_sections_than_a_document_may_have_are_not_even_made(self):
        many = tuple(Section(0, 0, "one", 1) for _ in range(MAX_SECTIONS + 1))
        with pytest.raises(Rejected, match="crashed on it"):
            _judged(encode(Read(replace(self.GOOD, sections=many))))

    def test_a_signal_is_named_and_a_limit_explained(self):
        with pytest.raises(Rejected, match=r"crashed on it \(SIGSEGV"):
            _judged(b"", status=signal.SIGSEGV)
        with pytest.raises(TooLarge, match="2,048 MiB of memory"):
            _judged(b"", status=signal.SIGABRT, peak_mib=1900)
        with pytest.raises(TooLarge, match="60 s"):
            _judged(b"", status=signal.SIGXCPU)
        with pytest.raises(ParserStopped):
            _judged(b"", status=signal.SIGKILL)

    def test_a_whole_answer_counts_however_the_child_ended(self):
        assert _judged(encode(Read(self.GOOD)), status=signal.SIGKILL) == self.GOOD


def _judged(message: bytes, status: int = 0, peak_mib: int = 0) -> Parsed:
    return verdict("a.txt", LIMITS, Answered(message, True, Ended(status, 0.1, peak_mib)))


def _children_of(parser: Parser) -> list[psutil.Process]:
    return [child for server in parser._servers.values() for child in psutil.Process(server.process.pid).children()]


def _ignore_xfsz() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
