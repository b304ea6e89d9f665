"""Searches that are made to break the database's connections, among honest requests of two tenants, over real HTTP."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest

from ingest.parts import IngestParts
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import lend_models
from tests.support.echo_engine import EchoEngine
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import serving, upload

HOSTILE: list[Any] = [
    {"k": [0] * 66_000},
    {"k": list(range(1_001))},
    {f"k{i}": 0 for i in range(65)},
    {f"k{i}": 0 for i in range(5_000)},
    {"k": ["\x00"] * 900},
    {"\x00": "\x00"},
    {"k": ["null", "NULL", "{}", '"', "\\", "'"] * 100},
    {"k" * 10_000: "v" * 10_000},
    {"k": 10**400},
    {"k": [1e308, -1e308, 0.1, None, True]},
]
TOO_MUCH = HOSTILE[:4]
TOO_MUCH_FOR_OPENAI: list[Any] = [
    [{"type": "in", "key": "k", "value": list(range(600))}, {"type": "nin", "key": "l", "value": list(range(600))}],
    [{"type": "eq", "key": f"k{i}", "value": i} for i in range(65)],
]


@dataclass(frozen=True)
class Tenant:
    name: str
    headers: dict[str, str]

    @property
    def file(self) -> str:
        return f"{self.name}.md"


@pytest.fixture
def service(
    settings: Settings, postgres_url: str, redis_server: EmbeddedRedis, engine: EchoEngine, loaded: IngestParts
) -> Iterator[tuple[httpx.Client, Parts]]:
    parts = Parts(msgspec.structs.replace(settings, database_url=postgres_url, requests_per_minute=0), engine)
    lend_models(parts, loaded)
    parts.prepare()
    with serving(parts) as client:
        yield client, parts
    parts.close()


@pytest.fixture
def tenants(service: tuple[httpx.Client, Parts]) -> list[Tenant]:
    client, parts = service
    found = []
    for name in ("ada", "bob"):
        key = issue_key_by_name(name, "x", ["write"], parts.database).key
        found.append(Tenant(name, {"Authorization": f"Bearer {key}"}))
        upload(client, f"# {name}\n\nOf {name} alone.".encode(), found[-1].file, headers=found[-1].headers)
    return found


@pytest.fixture
def stranger(service: tuple[httpx.Client, Parts]) -> dict[str, str]:
    return {"Authorization": f"Bearer {issue_key_by_name('eve', 'x', ['read'], service[1].database).key}"}


@pytest.mark.parametrize(
    "searches", [60, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])], ids=str
)
def test_hostile_searches_change_nothing_for_others(
    service: tuple[httpx.Client, Parts], tenants: list[Tenant], stranger: dict[str, str], searches: int
):
    client, _ = service
    chance = random.Random(searches)
    hostile = [partial(search, client, chance.choice(HOSTILE), stranger) for _ in range(searches)]
    honest = [partial(names_of, client, chance.choice(tenants)) for _ in range(searches * 2)]
    mixed = hostile + honest
    chance.shuffle(mixed)
    with ThreadPoolExecutor(4) as pool:
        asked = [(call.func, call.args, pool.submit(call)) for call in mixed]
    answers = [(args, future.result()) for func, args, future in asked if func is names_of]
    statuses = [future.result() for func, _, future in asked if func is search]
    print(f"{searches} hostile searches: {sorted(set(statuses))}; {len(answers)} honest requests")

    assert [found for (_, tenant), found in answers if found != [tenant.file]] == []
    assert set(statuses) <= {200, 400, 422}


def test_a_filter_that_is_too_long_is_refused_with_the_limit(
    service: tuple[httpx.Client, Parts], tenants: list[Tenant]
):
    client, _ = service
    for wanted in TOO_MUCH:
        refused = client.post("/v1/search", json={"question": "x?", "filter": wanted}, headers=tenants[0].headers)
        assert refused.status_code == 422
        assert "64 keys and 1,000 values" in refused.json()["detail"]
    for filters in TOO_MUCH_FOR_OPENAI:
        body = {"query": "x?", "filters": {"type": "and", "filters": filters}}
        stores = client.get("/v1/vector_stores", headers=tenants[0].headers).json()["data"]
        refused = client.post(f"/v1/vector_stores/{stores[0]['id']}/search", json=body, headers=tenants[0].headers)
        assert refused.status_code == 400
        assert "a filter has at most" in refused.json()["error"]["message"]


def search(client: httpx.Client, wanted: Any, headers: dict[str, str]) -> int:
    return client.post("/v1/search", json={"question": "x?", "filter": wanted}, headers=headers).status_code


def names_of(client: httpx.Client, tenant: Tenant) -> list[str] | int:
    """The names of the tenant's documents, as the service lists them; the status if it does not."""
    answer = client.get("/v1/documents", params={"collection": "default"}, headers=tenant.headers)
    return [item["name"] for item in answer.json()["items"]] if answer.status_code == 200 else answer.status_code
