"""Lines of the log: their form, what they carry, and what they leave out."""

import json
import subprocess
import sys

import pytest

from ragkv.observe import logs

SCRIPT = """
import logging
from ragkv.observe import logs
logs.configure(FORM, LEVEL, "serve")
logging.getLogger("ragkv.some").info("number %d", 7, extra={"tenant_id": "t1"})
logging.getLogger("uvicorn.error").info("chatter")
with logs.bound(request_id="r-1"):
    try:
        question = "the secret question"
        raise ValueError("went wrong")
    except ValueError:
        logging.getLogger("vllm.engine").exception("oops")
"""


def lines_of(form="json", level="info"):
    script = SCRIPT.replace("FORM", repr(form)).replace("LEVEL", repr(level))
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr


def test_off_a_terminal_every_line_is_an_object():
    first, second = map(json.loads, lines_of("auto").splitlines())

    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "message": "number 7", "level": "info", "logger": "ragkv.some", "process": "serve", "tenant_id": "t1",
    }  # fmt: skip
    assert (second["message"], second["request_id"], second["logger"]) == ("oops", "r-1", "vllm.engine")


@pytest.mark.parametrize("form", ["json", "console"])
def test_tracebacks_name_the_error_and_show_no_variables(form):
    text = lines_of(form)

    assert "ValueError: went wrong" in text
    assert "the secret question" not in text


def test_the_level_holds_for_ours_and_libraries_chatter_comes_with_debug():
    assert "number 7" not in lines_of(level="warning")
    assert "chatter" not in lines_of(level="info")
    assert "chatter" in lines_of(level="debug")


def test_what_is_bound_is_bound_within_the_block_alone():
    with logs.bound(request_id="outer"):
        with logs.bound(request_id="inner"):
            assert logs.request_id() == "inner"
        assert logs.request_id() == "outer"
    assert logs.request_id() is None


@pytest.mark.parametrize("given", ["abc", "0af7651916cd43dd8448eb211c80319c", "req_1:2/3=4+5", "a" * 100])
def test_a_sane_id_is_kept(given):
    assert logs.accepted_id(given) == given


@pytest.mark.parametrize(
    "given", [None, "", "two words", "line\nbreak", '"quoted"', "é", "-first", "a" * 101, "\x1b[31m"]
)
def test_any_other_id_is_replaced(given):
    made = logs.accepted_id(given)

    assert made != given
    assert logs.accepted_id(made) == made


def test_vllm_reads_the_same_configuration_from_a_file(tmp_path):
    file = tmp_path / "vllm.json"
    logs.write_for_vllm("json", "info", "serve", "ERROR", file)
    script = f"""
import json, logging, logging.config
logging.config.dictConfig(json.load(open({str(file)!r})))
logging.getLogger("ragkv").info("ours")
logging.getLogger("vllm").info("theirs")
logging.getLogger("vllm").error("their error")
"""
    written = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr

    assert [json.loads(line)["message"] for line in written.splitlines()] == ["ours", "their error"]
    assert file.stat().st_mode & 0o077 == 0
