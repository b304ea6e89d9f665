"""`make load`: an honest tenant's list and search, quiet and while others attack the service."""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter

import msgspec
import psutil

from bench.load.hostile import ATTACKS
from bench.load.wire import NUMBER, Client, Wish, World, request
from bench.serving.load import percentile

EVERY_S = 0.25
"""Between two requests of the honest tenant: four a second are below its limit."""
QUIET_S = 20.0
WARM_UP = 10
RAMP_S = 2.0
"""After the attack has begun, before anything is measured."""
ENDPOINTS = ("list", "search", "healthz")


class Seen(msgspec.Struct):
    """Milliseconds of the honest tenant's requests, and the statuses they got."""

    p50_ms: float
    p99_ms: float
    slowest_ms: float
    statuses: dict[str, int]


class Report(msgspec.Struct):
    """`ratio`: p99 under attack to p99 before. RSS in MiB of the service, every so often."""

    seconds: float
    quiet: dict[str, Seen]
    attacked: dict[str, Seen]
    ratio_p99: dict[str, float]
    server_errors: int
    hostile: dict[str, dict[str, int]]
    rss_mib: list[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    attacks = "200 clients of every kind, 10 hostile questions a second, or 100 streams"
    parser.add_argument("--attack", choices=ATTACKS, default="everything", help=attacks)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    if options.seconds <= RAMP_S + EVERY_S:
        parser.error(f"--seconds {options.seconds:g}: measuring begins {RAMP_S:g} s after the attack")
    with tempfile.TemporaryDirectory(prefix="ragkv-load-") as folder:
        service = subprocess.Popen(
            [sys.executable, "-m", "bench.load.service", folder], stdout=subprocess.PIPE, text=True
        )
        try:
            assert service.stdout is not None
            world = msgspec.json.decode(service.stdout.readline(), type=World)
            report = asyncio.run(_measure(world, service.pid, options.attack, options.seconds))
        finally:
            service.terminate()
            service.wait(timeout=60)
    for endpoint in ENDPOINTS:
        quiet, attacked = report.quiet[endpoint], report.attacked[endpoint]
        print(
            f"{endpoint:8} quiet p50 {quiet.p50_ms:7.1f} p99 {quiet.p99_ms:7.1f} ms | attacked p50 {attacked.p50_ms:7.1f} "
            f"p99 {attacked.p99_ms:7.1f} slowest {attacked.slowest_ms:7.1f} ms | p99 x{report.ratio_p99[endpoint]} | "
            f"{attacked.statuses}"
        )
    for name, counts in report.hostile.items():
        print(f"{name:14} {counts}")
    print(f"server errors {report.server_errors}; RSS {report.rss_mib} MiB")


async def _measure(world: World, pid: int, attack: str, seconds: float) -> Report:
    await _visits(world, WARM_UP * EVERY_S * len(ENDPOINTS))
    quiet = await _visits(world, QUIET_S)
    attackers = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.load.hostile", attack, msgspec.json.encode(world).decode(), str(seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert attackers.stdout is not None
    await attackers.stdout.readline()
    await asyncio.sleep(RAMP_S)
    memory = asyncio.create_task(_memory(pid, max(1.0, seconds / 30)))
    attacked = await _visits(world, seconds - RAMP_S)
    memory.cancel()
    printed, _ = await attackers.communicate()
    hostile = msgspec.json.decode(printed, type=dict[str, dict[str, int]])
    return Report(
        seconds,
        quiet,
        attacked,
        {endpoint: round(attacked[endpoint].p99_ms / quiet[endpoint].p99_ms, 1) for endpoint in ENDPOINTS},
        _server_errors(hostile) + sum(_server_errors({endpoint: seen.statuses}) for endpoint, seen in attacked.items()),
        hostile,
        await memory,
    )


async def _visits(world: World, seconds: float) -> dict[str, Seen]:
    """The honest tenant's requests in turn, each kind over a connection of its own."""
    until = time.monotonic() + seconds
    question = msgspec.json.encode({"question": f"Who wrote the first program? {NUMBER}"})
    wishes = (
        Wish("list", request("GET", "/v1/documents?limit=20", world.honest)),
        Wish("search", request("POST", "/v1/search", world.honest, question)),
        Wish("healthz", request("GET", "/healthz", None)),
    )
    seen = await asyncio.gather(*(_visit(wish, world, until) for wish in wishes))
    return dict(zip(ENDPOINTS, seen, strict=True))


async def _visit(wish: Wish, world: World, until: float) -> Seen:
    client, times, statuses = Client(world.port), list[float](), Counter[str]()
    await asyncio.sleep(EVERY_S * ENDPOINTS.index(wish.name) / len(ENDPOINTS))
    while time.monotonic() < until:
        status, took = await client.send(wish)
        times.append(took * 1e3)
        statuses[str(status)] += 1
        await asyncio.sleep(max(0.0, EVERY_S - took))
    await client.close()
    return Seen(*(round(percentile(times, percent), 1) for percent in (50, 99, 100)), dict(statuses))


async def _memory(pid: int, every_s: float) -> list[int]:
    seen = []
    try:
        while True:
            seen.append(psutil.Process(pid).memory_info().rss // 2**20)
            await asyncio.sleep(every_s)
    except asyncio.CancelledError:
        return seen


def _server_errors(statuses: dict[str, dict[str, int]]) -> int:
    """All but 503, which says that there is no room."""
    return sum(
        n for counts in statuses.values() for status, n in counts.items() if status.startswith("5") and status != "503"
    )


if __name__ == "__main__":
    main()
