"""The service's overhead per question, measured over HTTP."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from statistics import median
from typing import Any

import httpx
import msgspec

from bench.serving.load import percentile
from ragkv.errors import Rejected, Unavailable
from ragkv.files_io import lines_of

WARM_UP = 3
"""Questions that are not counted: they open the connection and load what is loaded when first used."""
TIMEOUT_S = 120.0
OK = 200
NO_SERVICE = "start it by `ragkv serve`, or name where it runs by --url"

RequestProgress = Callable[[], None]
"""Called after every request that counts."""


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of streamed questions, asked one after the other; medians and 95th percentiles.

    `first_delta`: from sending the question to its first piece of text. `overhead`: of that, what is neither retrieval
    nor the engine's time to first token; the plan counts as overhead, and is also shown alone.
    """

    asks: int
    first_delta_p50: float
    retrieve_p50: float
    engine_ttft_p50: float
    plan_p50: float
    overhead_p50: float
    overhead_p95: float


class ApiReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of `ragkv bench api`."""

    url: str
    machine: str
    ask: Overhead


async def measure_asks(
    client: httpx.AsyncClient, questions: Sequence[str], count: int, options: dict[str, Any], progress: RequestProgress
) -> Overhead:
    """Ask `count` times, the questions in turn; no answer comes from the answer cache. Raises Rejected or Unavailable
    with what the service says."""
    first_deltas: list[float] = []
    timings: list[dict[str, float]] = []
    asking = {"stream": True, "answer_cache": False} | options
    for number in range(-WARM_UP, count):
        body = asking | {"question": questions[number % len(questions)]}
        began = time.perf_counter()
        events = [(time.perf_counter(), data) async for _, data in streamed(client, body)]
        if number >= 0:
            first_deltas.append((events[0][0] - began) * 1e3)
            timings.append(msgspec.json.decode(events[-1][1])["timings"])
            progress()
    retrieves, ttfts, plans = ([t[name] for t in timings] for name in ("retrieve_ms", "engine_ttft_ms", "plan_ms"))
    overheads = [
        first_delta - retrieve - ttft
        for first_delta, retrieve, ttft in zip(first_deltas, retrieves, ttfts, strict=True)
    ]
    return Overhead(
        asks=count,
        first_delta_p50=median(first_deltas),
        retrieve_p50=median(retrieves),
        engine_ttft_p50=median(ttfts),
        plan_p50=median(plans),
        overhead_p50=median(overheads),
        overhead_p95=percentile(overheads, 95),
    )


def client_of(url: str, key: str | None, connections: int) -> httpx.AsyncClient:
    """A client that keeps so many connections open."""
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=TIMEOUT_S)


async def streamed(client: httpx.AsyncClient, body: dict[str, Any]) -> AsyncGenerator[tuple[str, str], None]:
    """The events of a streamed question, the last of them `done`: (name, data). Raises Rejected or Unavailable with
    what the service says, also for a stream that ends before."""
    name = ""
    try:
        async with client.stream("POST", "/v1/ask", json=body) as response:
            if response.status_code != OK:
                raise Rejected(
                    f"the service answered {response.status_code}: {(await response.aread()).decode()[:500]}"
                )
            async for name, data in _events(response):
                if name == "error":
                    raise Unavailable(f"the service broke off: {data[:500]}")
                yield name, data
    except httpx.HTTPError as error:
        raise Unavailable(f"no service answers at {client.base_url}: {error}; {NO_SERVICE}") from error
    if name != "done":
        raise Unavailable("the stream ended before the answer was complete")


async def _events(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    name = ""
    async for line in lines_of(response.aiter_bytes()):
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, value
