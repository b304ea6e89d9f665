"""Errors of commands: one line each. What they print of users' texts is printed as it is."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from ragkv.answer.question import Answer, CachedAnswer, Timings, Usage
from ragkv.cli import main
from ragkv.cli.ask import _finish


@pytest.mark.parametrize(
    ("command", "data_dir", "reason"),
    [
        (["backup", "/dev/null/x"], "data", "Not a directory: '/dev/null'"),
        (["keys", "list"], "/proc/nope", "'/proc/nope'"),
    ],
)
def test_an_error_of_the_system_is_one_line(
    command: list[str], data_dir: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAGKV_DATA_DIR", str(tmp_path / data_dir))
    result = CliRunner().invoke(main, command)

    assert result.exit_code == 1
    assert result.stderr.startswith("ragkv: ") and result.stderr.endswith(f"{reason}\n")
    assert result.stderr.count("\n") == 1


def test_a_reader_that_is_gone_is_no_error():
    """As of `ragkv --help | true`."""
    command = [sys.executable, "-c", "from ragkv.cli import main; main()", "keys", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["status", "keys", "ask", "ingest", "eval", "backup"])
def test_a_command_begins_without_pytorch_and_transformers(command: str):
    """They take four seconds to import: what needs them does so when it gets there."""
    code = (
        "import sys; from importlib.metadata import entry_points; "
        f"[entry] = entry_points(group='ragkv.commands', name='{command}'); entry.load(); "
        "sys.exit(' '.join({'torch', 'transformers'} & sys.modules.keys()) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}", "http://[::", "127.0.0.1:{}"])
def test_a_service_that_is_not_there_is_named_with_what_to_do(url: str, free_port: Callable[[], int]):
    url = url.format(free_port())
    result = CliRunner().invoke(main, ["eval", "runs", "--url", url])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith(f"ragkv: no service answers at {url}: ")
    assert result.stderr.endswith("start it by `ragkv serve`, or name where it runs by --url\n")


def test_brackets_in_a_question_of_the_answer_cache_are_printed():
    kept = CachedAnswer("What does [/b] close?", 1.0, 60.0)
    answer = Answer("id", "Bold text.", "stop", (), (), Timings(*[1.0] * 7), Usage(*[1] * 7), cached_answer=kept)
    printed = io.StringIO()
    _finish(answer, stream=False, as_json=False, console=Console(file=printed, soft_wrap=True))
    assert "'What does [/b] close?'" in printed.getvalue()
