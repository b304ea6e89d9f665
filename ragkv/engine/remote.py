"""The engine behind a URL: a `vllm serve` started with `ragkv.engine.launch.serve_command`.

Its completions endpoint takes token ids, `cache_salt` and `kv_transfer_params`; plans travel as names of KV files, so
the server reads the same folder (a shared file system or a tmpfs on one machine).
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Annotated, Any

import httpx
import msgspec

from ragkv.engine.protocol import EngineLost, Generate, Output, Prefill, Report, looked_ahead
from ragkv.engine.supervisor import asked_again
from ragkv.engine.wire import (
    ABORTED,
    PARAM,
    PREFILL_PROMPT,
    check_prefilled,
    check_served,
    followed_schema,
    plan_to_wire,
    prefill_to_wire,
    report_of,
    sampling_to_wire,
)
from ragkv.errors import Rejected, Unavailable
from ragkv.files_io import LONGEST_LINE, beginning_of, lines_of
from ragkv.threads import CircuitBreaker
from ragkv.urls import without_secrets

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
_HEALTH_SECONDS = 5.0
_TAIL_SECONDS = 30.0
"""For what follows a whole answer: its usage, and its report."""
_TRY_EVERY_S = 10.0
_SHORT_BYTES = 2000
"""Of an error, or of an answer to a probe, no more is read."""
_AGAIN_AFTER_S = 1.0
_REFUSALS = 8
"""So many seconds a router may take to notice that an engine is away."""
_RETRY_AFTER_S = 30.0
_AWAY = "the engine does not answer: ask again in a minute"
_SESSION = "X-Session-ID"
_ABOUT_THE_REQUEST = {400, 413, 422}  # other errors are about the server: its key, its load, its address


_TokenName = Annotated[str, msgspec.Meta(pattern="^token_id:[0-9]{1,9}$")]


class _LogProbs(msgspec.Struct):
    top_logprobs: list[dict[_TokenName, float]] | None = None


class _Choice(msgspec.Struct):
    """One choice of an event: text and tokens of a step, or of several."""

    text: str
    token_ids: list[int] | None = None
    logprobs: _LogProbs | None = None
    finish_reason: str | None = None


class _PromptTokens(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: _PromptTokens | None = None


class _Event(msgspec.Struct):
    """A server-sent event of the completions endpoint, as far as it is read."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    model: str = ""


class _Answer(msgspec.Struct):
    """A response that is no stream, as far as it is read."""

    kv_transfer_params: dict[str, Any] | None = None


class RemoteEngine:
    """Engine over HTTP, or a router before several. Streams do not carry `kv_transfer_params` back, so a report is
    fetched by its tag, from the engine that served the stream: routers keep requests with the same X-Session-ID
    together.

    silence_s: the longest a prompt may take before its first token, and a token after another. model: the fingerprint
    of the weights that answers are to be of; empty for any.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None,
        max_model_len: int,
        silence_s: float = 300.0,
        model: Callable[[], str] = lambda: "",
    ) -> None:
        self._model = model
        self._max_model_len = max_model_len
        self._silence_s = silence_s
        self._breaker = CircuitBreaker(_TRY_EVERY_S, _AWAY)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(silence_s, connect=_CONNECT_SECONDS)
        full = httpx.URL(url.rstrip("/").removesuffix("/v1"))
        login = (full.username, full.password) if full.userinfo else None
        base = full.copy_with(userinfo=b"")  # httpx logs URLs as they are
        limits = httpx.Limits(max_connections=None)  # the places of tenants limit them, and probes wait for none
        # Its own server is asked without the proxies that this process is told of; by https it may be someone's cloud.
        direct = None if base.scheme == "https" else httpx.AsyncHTTPTransport(limits=limits)
        self._http = httpx.AsyncClient(
            base_url=base, auth=login, headers=headers, timeout=timeout, limits=limits, transport=direct
        )
        self._shown_url = without_secrets(url)

    async def start(self) -> None:
        """Check that the server is up. Raises Unavailable if the server does not answer."""
        if not await self.ready():
            log.warning("no vLLM server answers at %s", self._shown_url)
            raise Unavailable("no vLLM server answers at RAGKV_ENGINE_URL: start it, or unset the setting")

    async def stop(self) -> None:
        await self._http.aclose()

    async def ready(self) -> bool:
        """Whether an engine answers. vllm-router's /health wants all of its engines, its /readiness one."""
        return await self._answers("/health") or await self._answers("/readiness")

    async def _answers(self, path: str) -> bool:
        try:
            async with asyncio.timeout(_HEALTH_SECONDS), self._http.stream("GET", path) as response:
                await beginning_of(response.aiter_bytes(), _SHORT_BYTES)
                return response.is_success
        except (httpx.HTTPError, TimeoutError):
            return False

    async def status(self) -> str:
        return "ok" if await self.ready() else "the server at RAGKV_ENGINE_URL does not answer"

    async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
        """See Engine.generate. Asked again if the server is lost before the first output: once, or until one takes the
        request."""
        request.check_fits(self._max_model_len)
        recovered = partial(asyncio.sleep, _AGAIN_AFTER_S)
        async with aclosing(asked_again(lambda: self._attempt(request), recovered, _REFUSALS)) as outputs:
            async for output in outputs:
                yield output

    async def prefill(self, prefill: Prefill) -> None:
        """See KVEngine.prefill."""
        try:
            body = {
                "prompt": list(PREFILL_PROMPT),
                "add_special_tokens": False,
                "cache_salt": uuid.uuid4().hex,
                "max_tokens": 1,
                "kv_transfer_params": prefill_to_wire(await looked_ahead(self, prefill)),
            }
            params = await self._posted(body, self._silence_s)
        except Rejected as error:  # by a proxy in front of the engine, say: the document is not at fault
            log.warning("the engine at %s refused to prefill: %s", self._shown_url, error)
            raise Unavailable(str(error), _RETRY_AFTER_S) from error
        except (httpx.HTTPError, TimeoutError, msgspec.DecodeError) as error:
            log.warning("the engine at %s did not prefill: %r", self._shown_url, error)
            raise Unavailable(_AWAY, _RETRY_AFTER_S) from error
        check_prefilled(params)

    async def _posted(
        self, body: dict[str, Any], limit_s: float, session: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        """The `kv_transfer_params` of the response, which is whole within the limit."""
        async with (
            asyncio.timeout(limit_s),
            self._http.stream("POST", "/v1/completions", json=body, headers=session) as response,
        ):
            await _raise_for_status(response)
            content = await beginning_of(response.aiter_bytes(), LONGEST_LINE)
        return msgspec.json.decode(content, type=_Answer).kv_transfer_params

    async def _attempt(self, request: Generate) -> AsyncGenerator[Output, None]:
        tag = uuid.uuid4().hex
        waiting: Output | None = None
        usage = _Usage()
        session = {_SESSION: request.session or tag}
        try:
            async with self._stream(_body(request, tag), session) as events:
                async for event in self._in_time(events, request.max_tokens):
                    usage = event.usage or usage
                    if not event.choices:
                        continue
                    output = _output(event.choices[0])
                    if output.finish_reason == ABORTED:
                        raise EngineLost(_AWAY, _RETRY_AFTER_S)
                    if output.finish_reason:
                        waiting = output  # the last output waits for the usage that follows it
                    else:
                        yield output
        except Unavailable as error:
            if waiting is None:
                raise
            log.warning("the answer is whole, its usage is lost: %s", error)
        if waiting is None:
            raise EngineLost(_AWAY, _RETRY_AFTER_S)
        report = await self._report(request, tag, session, usage)
        yield Output(waiting.text, waiting.token_ids, waiting.logprobs, waiting.finish_reason, report)

    @asynccontextmanager
    async def _stream(self, body: dict[str, Any], session: dict[str, str]) -> AsyncIterator[AsyncIterator[_Event]]:
        stream = self._http.stream("POST", "/v1/completions", json=body, headers=session)
        try:
            with self._breaker.guarding():
                async with AsyncExitStack() as open_streams:
                    async with asyncio.timeout(self._silence_s):
                        response = await open_streams.enter_async_context(stream)
                        await _raise_for_status(response)
                    yield _events(response)
        except (httpx.TimeoutException, TimeoutError) as error:  # asked again it would take as long
            log.warning("the engine at %s is silent: %r", self._shown_url, error)
            raise Unavailable(_AWAY, _RETRY_AFTER_S) from error
        except httpx.HTTPError as error:
            log.warning("the engine at %s went away: %r", self._shown_url, error)
            raise EngineLost(_AWAY, _RETRY_AFTER_S, taken=not isinstance(error, httpx.ConnectError)) from error

    async def _in_time(self, events: AsyncIterator[_Event], max_tokens: int) -> AsyncIterator[_Event]:
        """The events. Raises TimeoutError where no token comes in time, whatever else does; EngineLost for more tokens
        than were asked for."""
        loop = asyncio.get_running_loop()
        until, tokens = loop.time() + self._silence_s, 0
        while True:
            async with asyncio.timeout_at(until):
                event = await anext(events, None)
            if event is None:
                return
            check_served(event.model, self._model())
            yield event
            for choice in event.choices:
                if choice.text or choice.token_ids or choice.finish_reason:
                    self._breaker.note(None)  # others need not wait for the end of this answer
                    until = loop.time() + (_TAIL_SECONDS if choice.finish_reason else self._silence_s)
                tokens += len(choice.token_ids or ())
            if tokens > max_tokens:
                log.warning("the engine at %s answers with more tokens than it may", self._shown_url)
                raise EngineLost(_AWAY, _RETRY_AFTER_S)

    async def _report(self, request: Generate, tag: str, session: dict[str, str], usage: _Usage) -> Report:
        cached = (usage.prompt_tokens_details or _PromptTokens()).cached_tokens or 0
        if request.plan is None:
            return report_of(None, len(request.token_ids), cached)
        body = {"prompt": [request.token_ids[0]], "max_tokens": 1, "kv_transfer_params": {PARAM: {"report_of": tag}}}
        try:
            params = await self._posted(body, _TAIL_SECONDS, session)
            if params is not None:
                return report_of(params, len(request.token_ids), cached)
            log.warning("the answer is whole, its report is lost: the engine that was asked has none")
        except (httpx.HTTPError, TimeoutError, Rejected, Unavailable, msgspec.DecodeError) as error:
            log.warning("the answer is whole, its report is lost: %r", error)
        return Report()


def _body(request: Generate, tag: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "prompt": list(request.token_ids),
        "add_special_tokens": False,
        "cache_salt": request.salt,
        "max_tokens": request.max_tokens,
        **sampling_to_wire(request.sampling),
        "ignore_eos": request.ignore_eos,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "kv_transfer_params": plan_to_wire(request, tag),
    }
    if followed := followed_schema(request.sampling):
        body["structured_outputs"] = followed
    if request.logprobs is not None:
        body |= {"logprobs": request.logprobs, "return_tokens_as_token_ids": True}
    if request.allowed_token_ids:
        body["allowed_token_ids"] = list(request.allowed_token_ids)
    return body


async def _events(response: httpx.Response) -> AsyncIterator[_Event]:
    """Each server-sent event. Raises Rejected for a request that the engine refuses; EngineLost for any other error in
    mid-stream, and for an event that was cut off or is not vLLM's: so a router ends its answer when the engine behind
    it goes away."""
    async for line in lines_of(response.aiter_bytes()):
        data = line.removeprefix("data: ")
        if data in {line, "[DONE]"}:
            continue
        try:
            event = msgspec.json.decode(data, type=_Event)
        except msgspec.DecodeError as error:
            log.warning("the engine's answer broke off: %s", error)
            raise EngineLost(_AWAY, _RETRY_AFTER_S) from error
        if isinstance(event.error, dict) and event.error.get("code") in _ABOUT_THE_REQUEST:
            raise Rejected(f"the engine refused the request: {str(event.error.get('message'))[:500]}")
        if event.error is not None:
            log.warning("the engine failed: %s", event.error)
            raise EngineLost(_AWAY, _RETRY_AFTER_S)
        yield event


async def _raise_for_status(response: httpx.Response) -> None:
    if response.is_success:
        return
    text = (await beginning_of(response.aiter_bytes(), _SHORT_BYTES)).decode(errors="replace")[:500]
    if response.status_code in _ABOUT_THE_REQUEST:
        raise Rejected(f"the engine refused the request ({response.status_code}): {text}")
    log.warning("the engine failed (%d): %s", response.status_code, text)
    if response.is_server_error:
        raise EngineLost(_AWAY, _RETRY_AFTER_S, taken=False)
    raise Unavailable(
        f"the engine refused a request of this service ({response.status_code}): ask the operator to fix this"
    )


def _output(choice: _Choice) -> Output:
    steps = (choice.logprobs or _LogProbs()).top_logprobs or ()
    return Output(
        text=choice.text,
        token_ids=tuple(choice.token_ids or ()),
        logprobs=tuple({int(name.removeprefix("token_id:")): value for name, value in step.items()} for step in steps),
        finish_reason=choice.finish_reason,
    )
