"""The replay of requests through tiers: policies, the clairvoyant rival, the bound, the command."""

import json
import random
from functools import partial
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from bench.tiers.command import TiersReport, tiers
from bench.tiers.replay import Bandwidths, Costs, Read, Replay, Tier
from bench.tiers.run import Belady, lower_bound, next_uses
from bench.tiers.workload import Request, Workload, zipf
from ragkv.errors import Rejected
from ragkv.kv.eviction import EVICTION, Entry, known_policy
from ragkv.service.planning.plan import Device
from ragkv.service.planning.shape import shape_of

HALF_LIFE_S = 5.0
SEEDS = range(12)
MODEL = ("--model", "Llama-3.1-8B")


def random_reads(seed: int, *, is_uniform: bool, num_requests: int = 8, num_chunks: int = 5) -> list[list[Read]]:
    draw = random.Random(seed)
    sizes = {str(n): 1 if is_uniform else draw.randrange(1, 4) for n in range(num_chunks)}
    requests = [draw.sample([*sizes], draw.randrange(1, 3)) for _ in range(num_requests)]
    return [
        [Read(key, sizes[key], 0.0, 0.1, 1.1 if is_uniform else draw.uniform(0.5, 9)) for key in chosen]
        for chosen in requests
    ]


def least_seconds(requests: list[list[Read]], disk_bytes: int) -> float:
    """By trying everything that the disk may keep after each request."""
    sizes = {read.chunk: read.num_bytes for reads in requests for read in reads}
    states = {frozenset[str](): 0.0}
    for reads in requests:
        following: dict[frozenset[str], float] = {}
        for kept, seconds in states.items():
            after = seconds + sum(read.disk_s if read.chunk in kept else read.compute_s for read in reads)
            there = kept | {read.chunk for read in reads}
            for count in range(len(there) + 1):
                for some in map(frozenset, combinations(sorted(there), count)):
                    if sum(sizes[key] for key in some) <= disk_bytes:
                        following[some] = min(after, following.get(some, after))
        states = following
    return min(states.values())


def replayed(requests: list[list[Read]], disk_bytes: int, policy: str) -> float:
    """Seconds of all requests."""
    belady = Belady()
    worth = belady.worth if policy == "belady" else partial(known_policy(policy).worth, HALF_LIFE_S)
    replay = Replay(Tier(0, worth), Tier(disk_bytes, worth), HALF_LIFE_S)
    names = [[read.chunk for read in reads] for reads in requests]
    for number, (reads, upcoming) in enumerate(zip(requests, next_uses(names), strict=True)):
        belady.next_use |= zip(names[number], upcoming, strict=True)
        replay.request(float(number), reads)
    return replay.outcome("").mean_s * len(requests)


def test_belady_is_the_optimum_for_chunks_that_are_equal_and_no_policy_beats_it(subtests: pytest.Subtests):
    for seed in SEEDS:
        with subtests.test(seed=seed):
            requests = random_reads(seed, is_uniform=True)
            best = least_seconds(requests, 2)

            assert replayed(requests, 2, "belady") == pytest.approx(best)
            for name in EVICTION:
                assert replayed(requests, 2, name) >= best - 1e-9


def test_nothing_is_below_the_bound_for_chunks_of_any_size_and_cost(subtests: pytest.Subtests):
    for seed in SEEDS:
        with subtests.test(seed=seed):
            requests = random_reads(seed, is_uniform=False)
            bound = lower_bound(requests, 0, 4) * len(requests)

            assert bound <= least_seconds(requests, 4) + 1e-9
            assert bound < sum(read.compute_s for reads in requests for read in reads), "it says something"


@pytest.mark.parametrize("name", EVICTION)
def test_a_tier_evicts_as_a_plain_search_for_the_least_worth_does(name: str):
    draw, worth = random.Random(5), partial(known_policy(name).worth, HALF_LIFE_S)
    tier, plain = Tier(60, worth), dict[str, Entry]()
    for step in range(600):
        key = str(int(draw.paretovariate(0.6)) % 40)
        size = 1 + int(key) % 7
        entry = Entry(key, size, size, draw.uniform(0.5, 2), float(step), step + draw.uniform(0, 20))
        tier.put(entry)
        plain[key] = entry
        evicted = []
        while sum(entry.num_bytes for entry in plain.values()) > 60:
            evicted.append(min(plain, key=lambda key: worth(plain[key])))
            del plain[evicted[-1]]

        assert list(tier.evict()) == evicted
    assert tier.entries == plain


def test_what_is_in_the_host_is_on_disk_and_both_keep_their_budgets():
    worth = partial(known_policy("cost").worth, HALF_LIFE_S)
    replay = Replay(Tier(100_000, worth), Tier(400_000, worth), HALF_LIFE_S)
    costs = Costs(shape_of("SmolLM2-135M"), Device(), Bandwidths(50, 7))
    workload = zipf(1.0, 50, 200, 3)
    sizes = {chunk: tokens * 100 for chunk, tokens in workload.tokens.items()}
    for request in workload.requests:
        replay.request(request.moment, costs.reads(request, workload, sizes))

        assert replay.host.entries.keys() <= replay.disk.entries.keys()
        for tier, budget in ((replay.host, 100_000), (replay.disk, 400_000)):
            assert sum(entry.num_bytes for entry in tier.entries.values()) <= budget


def test_computing_costs_more_behind_a_longer_context_and_loading_never_more_than_computing():
    workload = Workload("two", [Request(0.0, ("a", "b"))], {"a": 512, "b": 512})
    costs = Costs(shape_of("Llama-3.1-8B"), Device(rate=1000.0), Bandwidths(50, 7))
    first, second = costs.reads(workload.requests[0], workload, {"a": 10**6, "b": 10**6})

    assert 0.5 * 0.9 < first.compute_s < second.compute_s
    assert (first.host_s, first.disk_s) == (pytest.approx(1 / 50_000), pytest.approx(1 / 7_000))
    assert second.disk_s < second.compute_s


def test_the_command_prints_a_table_and_writes_the_same_figures(tmp_path: Path):
    trace, found = tmp_path / "trace.jsonl", tmp_path / "found.json"
    lines = [{"timestamp": 1000 * n, "input_length": 1024, "hash_ids": [n % 5, 5 + n % 3]} for n in range(40)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    policies = ("--policy", "lru", "--policy", "cost")
    done = CliRunner().invoke(
        tiers, [*MODEL, "--trace", str(trace), *policies, "--budget", "0.6", "--json", str(found)]
    )

    assert done.exit_code == 0, done.output
    [report] = msgspec.json.decode(found.read_bytes(), type=TiersReport).workloads
    assert (report.requests, report.chunks) == (40, 8)
    assert [one.policy for one in report.outcomes] == ["lru", "cost", "belady"]
    assert report.bound_s <= min(one.mean_s for one in report.outcomes)
    assert "belady" in done.output and f"{report.outcomes[0].mean_s:.4g}" in done.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--policy", "lur"], "did you mean"),
        (["--bandwidth", "disk=0"], "above 0"),
        (["--bandwidth", "disk=nan"], "above 0"),
        (["--rate", "nan"], "above 0"),
        (["--bandwidth", "tape=1"], "name one of"),
        (["--measure"], "--measure runs the served model"),
        (["--json", "/nowhere/at/all.json"], "there is no folder"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], reason: str):
    refused = CliRunner().invoke(tiers, [*MODEL, "--chunks", "10", "--requests", "5", *arguments])

    assert isinstance(refused.exception, Rejected)
    assert reason in str(refused.exception)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "trace.jsonl: no request has hash_ids"),
        ("{}", "trace.jsonl, line 1: Object missing required field `timestamp`"),
        ('{"timestamp": 1, "input_length": 5, "hash_ids": "no"}', "trace.jsonl, line 1: Expected `array`"),
        ("nonsense", "trace.jsonl, line 1: JSON is malformed"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, reason: str):
    (tmp_path / "trace.jsonl").write_text(text)
    refused = CliRunner().invoke(tiers, [*MODEL, "--trace", str(tmp_path / "trace.jsonl")])

    assert isinstance(refused.exception, Rejected)
    assert reason in str(refused.exception)
