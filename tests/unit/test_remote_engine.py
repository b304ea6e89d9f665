"""The engine behind a URL, when its server is away or dies: real connections to a small server."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from ragkv.engine import remote
from ragkv.engine.protocol import EngineLost, Generate, Prefill, PrefillChunk
from ragkv.engine.remote import RemoteEngine
from ragkv.engine.wire import ABORTED, PARAM, served_name
from ragkv.errors import Rejected, Unavailable
from ragkv.span import Span
from ragkv.stitch.plan import PlacedChunk, StitchPlan

USAGE = {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 0}}}
DEAD = {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause."}}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_AGAIN_AFTER_S", 0.01)


def output(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"text": text, "token_ids": [1], "finish_reason": reason}]}


PREFILL = Prefill("a" * 64, (1,), (PrefillChunk("b" * 64, (1, 2)),))
SILENCE_S = 2
OK, FAILS = b"HTTP/1.1 200 -\n", b"HTTP/1.1 500 -\n"
DRIPS = [
    OK + b"x-more: headers\r\n", OK + b"\r\n ", OK + b"\r\n: still here\n", FAILS + b"\r\n ",
    OK + b'\r\ndata: {"choices": [{"text": ""}]}\n\n',
]  # fmt: skip
ENDED = output("", ABORTED)
WHOLE = [output("a"), output("b", "stop"), USAGE]


def run(scenario: Callable[[RemoteEngine], Coroutine[Any, Any, None]], *answers: Any) -> int:
    """How often a server was asked in the scenario, see `sessions`."""
    return len(sessions(scenario, *answers))


def sessions(scenario: Callable[[RemoteEngine], Coroutine[Any, Any, None]], *answers: Any) -> list[str]:
    """The scenario over a server that gives one of the answers to each connection: events, and then it hangs up.

    A number is a status without a body, a dict the body; what stands in events as bytes is sent as it is, and the
    answer ends well behind it; bytes alone are all that is sent, again and again, for ever. Returns the session of each
    request.
    """

    async def whole() -> list[str]:
        asked: list[str] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            answer = answers[min(len(asked), len(answers) - 1)]
            asked.append("".join(re.findall("(?i)x-session-id: (.*)\r", head)))
            if isinstance(answer, bytes):
                await repeat(answer, writer)
                return
            status, events = (answer, ()) if isinstance(answer, int) else (200, answer)
            ends_well = isinstance(answer, dict) or (events and isinstance(events[-1], bytes))
            is_whole = status != 200 or ends_well or (events and USAGE.keys() <= events[-1].keys())
            more = "" if is_whole else "content-length: 100000\r\n"
            writer.write(f"HTTP/1.1 {status} -\r\nconnection: close\r\n{more}\r\n".encode())
            if isinstance(answer, dict):
                writer.write(json.dumps(answer).encode())
                events = ()
            for event in events:
                writer.write(event if isinstance(event, bytes) else f"data: {json.dumps(event)}\n\n".encode())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        engine = RemoteEngine(f"http://svc:hunter2@127.0.0.1:{port}", "hunter3", 100, silence_s=SILENCE_S)
        try:
            await scenario(engine)
        finally:
            await engine.stop()
            server.close()
        return asked

    return asyncio.run(asyncio.wait_for(whole(), 30))


async def repeat(told: bytes, writer: asyncio.StreamWriter) -> None:
    """Send the first line, then the rest ten times a second for as long as the other end listens."""
    head, _, rest = told.partition(b"\n")
    writer.write(head + b"\n")
    with suppress(OSError):
        while not writer.is_closing():
            writer.write(rest)
            await writer.drain()
            await asyncio.sleep(0.1)
    writer.close()


async def ask(engine: RemoteEngine) -> str:
    return "".join([output.text async for output in engine.generate(Generate((1,), "salt", max_tokens=4))])


async def answers(engine: RemoteEngine) -> None:
    assert await ask(engine) == "ab"


@pytest.mark.parametrize(
    "first", [[], 500, 503, [DEAD], [ENDED, USAGE]], ids=["hangs up", "500", "503", "core is dead", "is being stopped"]
)
def test_a_server_that_dies_before_the_first_token_is_asked_again(first: Any) -> None:
    assert run(answers, first, WHOLE) == 2


@pytest.mark.parametrize("status", [400, 413, 422, 500, {"kv_transfer_params": 7}])
def test_whatever_answers_to_a_prefill_is_no_fault_of_the_document(status: Any) -> None:
    """It may be a proxy in front of the engine."""

    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(Unavailable):
            await engine.prefill(PREFILL)
        with pytest.raises(Unavailable):
            await engine.prefill(Prefill("a" * 64, (1,), (PrefillChunk("b" * 64, (2,) * 90),), cue_ids=(5,) * 5))

    assert run(scenario, status)


@pytest.mark.parametrize(
    "first",
    [[output("a")], [output("a"), DEAD], [output("a"), ENDED, USAGE]],
    ids=["hangs up", "core is dead", "is being stopped"],
)
def test_one_that_dies_later_is_an_error_that_says_when_to_ask_again(first: Any) -> None:
    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(EngineLost, match="ask again") as lost:
            await ask(engine)
        assert "trace" not in str(lost.value)
        assert lost.value.retry_after_s > 5

    assert run(scenario, first, WHOLE) == 1


@pytest.mark.parametrize("behind", [[], [DEAD]], ids=["hangs up", "core is dead"])
def test_one_that_dies_behind_the_last_token_has_answered(behind: list[Any]) -> None:
    assert run(answers, [output("a"), output("b", "stop"), *behind]) == 1


def test_line_separators_of_unicode_within_a_text_end_no_line() -> None:
    """vLLM sends them as they are."""
    text = "a\u2028b\u2029c\x85d"
    event = json.dumps(output(text, "stop"), ensure_ascii=False)

    async def scenario(engine: RemoteEngine) -> None:
        assert await ask(engine) == text

    assert run(scenario, [f"data: {event}\r\n\r\n".encode(), USAGE]) == 1


BROKEN = [
    b'data: {"choices": [{"te',
    b'data: {"choices": [{}]}\n\n',
    b'data: {"detail": "no engine"}\n\n',
    b"data: []\n\n",
    b'data: {"choices": [{"text": "a", "logprobs": {"top_logprobs": [{"x": 1}]}}]}\n\n',
    b'data: {"choices": [], "usage": {"prompt_tokens_details": 7}}\n\n',
]


@pytest.mark.parametrize(
    "broken", BROKEN, ids=["cut off", "without text", "a router's", "no object", "tokens", "usage"]
)
def test_an_answer_that_breaks_off_within_an_event_is_one_of_a_lost_engine(broken: bytes) -> None:
    """A router that loses its engine may end the answer in good form."""

    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(EngineLost, match="ask again"):
            await ask(engine)

    assert run(answers, [broken], WHOLE) == 2
    assert run(scenario, [output("a"), broken], WHOLE) == 1


def test_a_request_its_repetition_and_its_report_are_of_one_session() -> None:
    """So that a router sends them where the KV and the report are."""
    plan = StitchPlan((PlacedChunk(None, Span(0, 1)),))
    request = Generate((1, 2), "salt", plan, max_tokens=4, session="of these passages")

    async def scenario(engine: RemoteEngine) -> None:
        [_ async for _ in engine.generate(request)]

    assert sessions(scenario, 500, WHOLE) == ["of these passages"] * 3


@pytest.mark.parametrize(
    "report",
    [
        {"stitched": "many"},
        {"queries": [[1, 1, 1], "#"]},
        {"queries": [[1, 1, 1], "AAAA"]},
        {"queries": [[1], "AAAAAA=="]},
        [],
    ],
)
def test_a_report_that_cannot_be_read_is_lost_and_the_answer_is_not(report: Any) -> None:
    request = Generate((1, 2), "salt", StitchPlan((PlacedChunk(None, Span(0, 1)),)), max_tokens=4)

    async def scenario(engine: RemoteEngine) -> None:
        outputs = [output async for output in engine.generate(request)]
        assert "".join(output.text for output in outputs) == "ab"
        assert outputs[-1].report is not None
        assert outputs[-1].report.stitched == 0

    assert len(sessions(scenario, WHOLE, {"kv_transfer_params": {PARAM: report}})) == 2


def test_of_a_lost_report_nothing_is_said_to_have_been_in_the_cache() -> None:
    """vLLM counts what was stitched as cached: only the report tells them apart."""
    request = Generate((1, 2), "salt", StitchPlan((PlacedChunk(None, Span(0, 1)),)), max_tokens=4)
    cached = {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 1}}}
    reports = []

    async def scenario(engine: RemoteEngine) -> None:
        reports.extend([output.report async for output in engine.generate(request)][-1:])

    answer = [output("a"), output("b", "stop"), cached]
    for lost in ({"kv_transfer_params": None}, 503):
        sessions(scenario, answer, lost)
    sessions(scenario, answer, {"kv_transfer_params": {PARAM: {}}})

    assert [(report.cached, report.computed) for report in reports] == [(0, 0), (0, 0), (1, 1)]


def test_requests_that_share_nothing_are_of_different_sessions() -> None:
    async def scenario(engine: RemoteEngine) -> None:
        await answers(engine)
        await answers(engine)

    assert len(set(sessions(scenario, WHOLE))) == 2


def test_whatever_an_engine_drips_only_tokens_are_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_HEALTH_SECONDS", 0.5)

    async def scenario(engine: RemoteEngine) -> None:
        outcomes = await asyncio.gather(*(ask(engine) for _ in DRIPS), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * len(DRIPS)
        assert not await engine.ready()
        with pytest.raises(Unavailable):
            await engine.prefill(PREFILL)

    assert run(scenario, *DRIPS) == len(DRIPS) + 3


def test_of_an_error_only_the_beginning_is_read() -> None:
    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(Rejected):
            await ask(engine)

    assert run(scenario, b"HTTP/1.1 400 -\n\r\n" + b" " * 1000) == 1


def test_an_answer_ends_with_the_tokens_that_were_asked_for() -> None:
    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(EngineLost):
            await ask(engine)

    assert run(scenario, OK + f"\r\ndata: {json.dumps(output('a'))}\n\n".encode()) == 1


def test_a_whole_answer_waits_for_its_usage_and_report_but_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_TAIL_SECONDS", 0.2)
    request = Generate((1, 2), "salt", StitchPlan((PlacedChunk(None, Span(0, 1)),)), max_tokens=4)
    whole = f"\r\ndata: {json.dumps(output('ab', 'stop'))}\n\n".encode()

    async def scenario(engine: RemoteEngine) -> None:
        async with asyncio.timeout(SILENCE_S):
            assert [output.text async for output in engine.generate(request)] == ["ab"]

    assert run(scenario, OK + whole + b": and now\n", DRIPS[0]) == 2


def test_it_is_asked_without_the_proxy_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    assert run(answers, WHOLE) == 1


def test_an_engine_with_other_weights_does_not_answer() -> None:
    """It would read the prompt's token ids with another tokenizer, perhaps."""

    async def scenario(engine: RemoteEngine) -> None:
        engine._model = lambda: "a" * 64
        assert await ask(engine) == "ab"
        with pytest.raises(Unavailable, match="restart API"):
            await ask(engine)

    named = [WHOLE[0] | {"model": served_name(model * 64)} for model in "ab"]
    assert run(scenario, [named[0], *WHOLE[1:]], [named[1], *WHOLE[1:]]) == 2


def test_while_an_engine_is_silent_questions_are_refused_at_once() -> None:
    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(Unavailable):
            await ask(engine)
        trying = asyncio.ensure_future(ask(engine))
        await asyncio.sleep(0.2)
        trying.cancel()  # its client has left, which says nothing about the engine
        async with asyncio.timeout(SILENCE_S / 2):
            for _ in range(4):
                with pytest.raises(Unavailable):
                    await ask(engine)

    assert run(scenario, DRIPS[0]) == 2


@pytest.mark.parametrize("status", [500, 503])
def test_servers_that_do_not_take_it_are_asked_until_one_does(status: int) -> None:
    """As a router's, until it has noticed that one of its engines is away."""
    assert run(answers, *[status] * remote._REFUSALS, WHOLE) == remote._REFUSALS + 1


def test_a_router_is_ready_while_one_of_its_engines_is() -> None:
    """Its /health says no while any is away."""

    async def scenario(engine: RemoteEngine) -> None:
        assert await engine.ready()

    assert run(scenario, 503, WHOLE) == 2


def test_they_are_not_asked_for_ever() -> None:
    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(EngineLost):
            await ask(engine)

    assert run(scenario, 500) == remote._REFUSALS + 1


def test_one_that_ends_under_it_is_asked_twice_and_no_more() -> None:
    """The request itself may be what ends engines."""

    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(EngineLost):
            await ask(engine)

    assert run(scenario, [], 500, [], WHOLE) == 3


def test_a_server_that_refuses_the_key_is_not_asked_again() -> None:
    async def scenario(engine: RemoteEngine) -> None:
        with pytest.raises(Unavailable, match="401"):
            await ask(engine)

    assert run(scenario, 401) == 1


def test_passwords_of_its_url_are_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in what clients are told nor in the log."""
    caplog.set_level(logging.DEBUG)

    async def scenario(engine: RemoteEngine) -> None:
        for work in (ask, RemoteEngine.start, ask):
            with pytest.raises(Unavailable) as error:
                await work(engine)
            assert "hunter" not in str(error.value)
        assert "hunter" not in await engine.status()

    run(scenario, 500, [], 500, [DEAD])
    assert caplog.records
    assert "hunter" not in caplog.text
