"""Clients that mean harm, for so many seconds. Prints the statuses they got, by kind, as JSON."""

import asyncio
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import msgspec

from bench.load.wire import NUMBER, Client, Wish, World, request

PROSE = "Which of them wrote the first program, and when did her mother marry the poet? "
WIDE_FILTER = {f"k{i}": list(range(15)) for i in range(64)}
DEEP_FILTER = {
    "type": "and",
    "filters": [{"type": "nin", "key": f"k{i}", "value": list(range(10))} for i in range(100)],
}
HALF_SENT = b'{"question": "' + b"x" * 5000 + b'"}'

Make = Callable[[str], Wish]


def _json(name: str, path: str, body: object) -> Make:
    encoded = msgspec.json.encode(body)
    return lambda key: Wish(name, request("POST", path, key, encoded))


def _form(name: str, field: bytes, content: Callable[[], bytes]) -> Make:
    head = b"--x\r\nContent-Disposition: form-data; " + field + b"\r\n\r\n"

    def make(key: str) -> Wish:
        body = head + content() + b"\r\n--x--\r\n"
        return Wish(name, request("POST", "/v1/documents", key, body, "multipart/form-data; boundary=x"))

    return make


@dataclass(frozen=True)
class Attack:
    """So many clients that share the kinds of requests in these proportions, each at most one request every so
    often."""

    clients: int
    kinds: list[tuple[int, Make]]
    every_s: float = 0.0


_HUGE = _json("huge question", "/v1/ask", {"question": PROSE * 12_000})
_NOISE = "".join(random.Random(1).choices("abcdefghijklmnop „\"'?.A", k=9_990))
_LONG_SEARCH = _json("long search", "/v1/search", {"question": NUMBER + _NOISE})
_LONG_QUESTION = _json("long question", "/v1/ask", {"question": NUMBER + PROSE * 120, "top_k": 50})


def _stream(key: str) -> Wish:
    return Wish("stream", request("GET", "/v1/collections/default/events", key), holds_s=20)


EVERYTHING = [
    (3, _HUGE),
    (3, _LONG_SEARCH),
    (2, _LONG_QUESTION),
    (2, _json("ask", "/v1/ask", {"question": f"Who wrote the first program? {NUMBER}"})),
    (2, _json("wide filter", "/v1/search", {"question": f"Who? {NUMBER}", "filter": WIDE_FILTER})),
    (2, _json("66,000 values", "/v1/search", {"question": f"Who? {NUMBER}", "filter": {"k": [0] * 66_000}})),
    (1, _json("deep filter", "/v1/vector_stores/default/search", {"query": f"Who? {NUMBER}", "filters": DEEP_FILTER})),
    (1, _json("deep body", "/v1/ask", [[[[["x"] * 100_000]]]])),
    (2, lambda key: Wish("list", request("GET", "/v1/documents?limit=200", key))),
    (3, _stream),
    (2, lambda key: Wish("half a body", request("POST", "/v1/search", key, HALF_SENT)[:-2000])),
    (1, lambda key: Wish("silence", b"")),
    (2, lambda key: Wish("wrong key", request("GET", "/v1/documents", f"rk_{random.randbytes(8).hex()}_{'0' * 64}"))),
    (1, _form("big upload", b'name="file"; filename="big.txt"', lambda: random.randbytes(64) + bytes(8 * 1024 * 1024))),
    (1, _form("wide field", b'name="metadata"', lambda: b"x" * 4_000_000)),
]
ATTACKS = {
    "everything": Attack(200, EVERYTHING),
    "questions": Attack(10, [(4, _HUGE), (3, _LONG_SEARCH), (3, _LONG_QUESTION)], every_s=1.0),
    "streams": Attack(100, [(1, _stream)]),
}


async def carry_out(attack: Attack, world: World, seconds: float) -> dict[str, dict[str, int]]:
    """Every client sends its request again once it is answered and due."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    until = time.monotonic() + seconds
    makes = cycle([make for share, make in attack.kinds for _ in range(share)])
    wishes = [make(key) for _, make, key in zip(range(attack.clients), makes, cycle(world.hostile), strict=False)]
    async with asyncio.TaskGroup() as group:
        for wish in wishes:
            group.create_task(_repeat(wish, attack.every_s, Client(world.port), until, seen))
    return {name: dict(sorted(counts.items())) for name, counts in sorted(seen.items())}


async def _repeat(wish: Wish, every_s: float, client: Client, until: float, seen: dict[str, Counter[str]]) -> None:
    while (left := until - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(left):
                status, seconds = await client.send(wish)
        except TimeoutError:
            status, seconds = -1, 0.0
        seen[wish.name][{0: "no answer", -1: "at the end"}.get(status, str(status))] += 1
        at_least = max(every_s, 0.1 if status == 0 else 0.0)
        await asyncio.sleep(max(0.0, at_least - seconds))
    await client.close()


if __name__ == "__main__":
    named, given, lasting = sys.argv[1:]
    print("begun", flush=True)
    statuses = asyncio.run(carry_out(ATTACKS[named], msgspec.json.decode(given, type=World), float(lasting)))
    print(msgspec.json.encode(statuses).decode())
