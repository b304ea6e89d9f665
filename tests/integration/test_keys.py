"""API keys: who gets in, how often, and how much they may keep."""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import product

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import select, update

from api.command import serve
from ragkv.cli.keys import keys as keys_command
from ragkv.errors import NotFound, Rejected, Throttled, Unauthorised, Unavailable
from ragkv.ids import utc_now
from ragkv.observe import metrics
from ragkv.service.access.gate import Gate
from ragkv.service.access.rate import RateLimit
from ragkv.service.base.caller import KEY_SCOPES, Caller
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.page import all_pages
from ragkv.service.base.redis import connect
from ragkv.service.base.tables import ApiKeyRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.keys.keys import KeyPage, authenticate, issue_key, list_keys, list_valid_keys_first, revoke_key
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import ADA, Client, assert_problem, client_of, upload

SCOPE = r'name="scopes\[\]" value="(\w+)"'


@pytest.fixture
def tenant_id(database: Database) -> str:
    return ensure_collection(database).tenant_id


def throttled() -> float:
    """Requests answered with 429 so far, by this process."""
    return metrics.OURS.get_sample_value("ragkv_http_requests_throttled_total") or 0


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class TestKeys:
    def test_a_key_is_recognised_and_its_secret_is_kept_nowhere(self, database: Database, tenant_id: str):
        key = issue_key(tenant_id, "laptop", ["write", "read"], database).key
        caller = authenticate(key, database)

        assert (caller.tenant_id, caller.scopes) == (tenant_id, {"read", "write"})
        with database.reading() as session:
            row = session.scalars(select(ApiKeyRow)).one()
            kept = repr({name: getattr(row, name) for name in ApiKeyRow.__table__.columns.keys()})  # noqa: SIM118
        assert key.rsplit("_", 1)[1] not in kept

    def test_a_key_that_is_nearly_right_is_wrong(self, database: Database, tenant_id: str, subtests: pytest.Subtests):
        key = issue_key(tenant_id, "x", ["read"], database).key
        other_end = "1" if key[-1] == "0" else "0"
        for wrong in (key[:-1], key[:-1] + other_end, "", key.upper(), "rk_" + "0" * 16 + key[19:], key + "\x00"):
            with subtests.test(wrong=wrong), pytest.raises(Unauthorised, match="unknown API key"):
                authenticate(wrong, database)

    def test_a_revoked_key_is_refused_and_stays_in_the_list(self, database: Database, tenant_id: str):
        issued = issue_key(tenant_id, "x", ["read"], database)
        revoke_key(issued.view.id, database)

        with pytest.raises(Unauthorised, match="revoked"):
            authenticate(issued.key, database)
        assert list_keys(tenant_id, 1, None, database).items[0].revoked_at is not None

    def test_a_key_expires(self, database: Database, tenant_id: str):
        key = issue_key(tenant_id, "x", ["read"], database, days=1).key
        authenticate(key, database)
        with database.writing() as session:
            session.execute(update(ApiKeyRow).values(expires_at=utc_now() - timedelta(seconds=1)))

        with pytest.raises(Unauthorised, match="expired"):
            authenticate(key, database)

    def test_the_last_use_is_noted(self, database: Database, tenant_id: str):
        issued = issue_key(tenant_id, "x", ["read"], database)
        assert issued.view.last_used_at is None
        authenticate(issued.key, database)
        first = list_keys(tenant_id, 1, None, database).items[0].last_used_at
        authenticate(issued.key, database)

        assert first is not None
        assert list_keys(tenant_id, 1, None, database).items[0].last_used_at == first, "once a minute is enough"

    def test_pages_of_keys_follow_each_other_without_gaps(self, database: Database, tenant_id: str):
        """Oldest first in the API; newest first, and revoked ones last, on the dashboard."""
        ids = [issue_key(tenant_id, f"key {number}", ["read"], database).view.id for number in range(6)]
        issue_key_by_name("stranger", "x", ["read"], database)
        ids[2:4] = sorted(ids[2:4])
        with database.writing() as session:
            moment = select(ApiKeyRow.created_at).where(ApiKeyRow.id == ids[3]).scalar_subquery()
            session.execute(update(ApiKeyRow).where(ApiKeyRow.id == ids[2]).values(created_at=moment))
        for revoked in (ids[2], ids[5]):
            revoke_key(revoked, database)

        def read(pages: Callable[[str, int, str | None, Database], KeyPage]) -> list[str]:
            return [key.id for key in all_pages(lambda cursor: pages(tenant_id, 2, cursor, database))]

        assert read(list_keys) == ids
        assert read(list_valid_keys_first) == [ids[number] for number in (4, 3, 1, 0, 5, 2)]

    def test_a_key_needs_a_name_scopes_and_a_sensible_life(self, database: Database, tenant_id: str):
        for bad in ({"name": ""}, {"scopes": []}, {"scopes": ["root"]}, {"days": 0}, {"days": 10**9}):
            with pytest.raises(Rejected):
                issue_key(**{"database": database, "tenant_id": tenant_id, "name": "x", "scopes": ["read"], **bad})

    def test_nobody_revokes_what_is_not_theirs(self, database: Database, tenant_id: str):
        issued = issue_key_by_name("stranger", "x", ["admin"], database)

        for key_id in (issued.view.id, "0" * 16, "\x00", "%"):
            with pytest.raises(NotFound):
                revoke_key(key_id, database, Caller(tenant_id, None, frozenset({"admin"})))
        authenticate(issued.key, database)


class TestGate:
    def gate(self, database: Database, settings: Settings, *, local: bool = True) -> Gate:
        limit = RateLimit(connect(settings), 0, fails_open=True)
        return Gate(database, limit, "owner", open_without_keys=local)

    def test_it_is_open_on_this_machine_until_there_is_a_key_and_never_again(
        self, database: Database, tenant_id: str, settings: Settings
    ):
        gate = self.gate(database, settings)
        assert gate.admit(None).tenant_id == "owner"
        issued = issue_key(tenant_id, "x", ["read"], database)
        with pytest.raises(Unauthorised, match="ragkv keys create"):
            gate.admit(None)

        revoke_key(issued.view.id, database)
        with pytest.raises(Unauthorised):
            self.gate(database, settings).admit(None)

    def test_it_is_never_open_to_other_machines(self, database: Database, settings: Settings):
        with pytest.raises(Unauthorised):
            self.gate(database, settings, local=False).admit(None)

    def test_a_wrong_key_is_wrong_even_while_none_is_needed(self, database: Database, settings: Settings):
        with pytest.raises(Unauthorised):
            self.gate(database, settings).admit("rk_")

    def test_any_other_word_will_do_for_clients_that_insist_on_one(
        self, database: Database, tenant_id: str, settings: Settings
    ):
        gate = self.gate(database, settings)
        assert gate.admit("none").tenant_id == "owner"
        issue_key(tenant_id, "x", ["read"], database)
        with pytest.raises(Unauthorised):
            gate.admit("none")


class TestRateLimit:
    def test_a_bucket_empties_and_each_key_has_its_own(self, settings: Settings, redis_server: EmbeddedRedis):
        limit = RateLimit(connect(settings), 3, fails_open=False)
        for _ in range(3):
            limit.take("a")

        with pytest.raises(Throttled) as refused:
            limit.take("a")
        assert 19 < refused.value.retry_after_s <= 20
        limit.take("b")

    def test_it_refills(self, settings: Settings, redis_server: EmbeddedRedis):
        client = connect(settings)
        seconds, micros = client.time()
        client.set("ragkv:rate:a", (seconds + 60) * 1_000_000 + micros)  # empty: full again in a minute
        limit = RateLimit(client, 120, fails_open=False)
        with pytest.raises(Throttled) as refused:
            limit.take("a")

        time.sleep(refused.value.retry_after_s)
        limit.take("a")
        with pytest.raises(Throttled):
            limit.take("a")

    def test_processes_share_a_bucket(self, settings: Settings, redis_server: EmbeddedRedis):
        for _ in range(3):
            RateLimit(connect(settings), 3, fails_open=False).take("a")
        with pytest.raises(Throttled):
            RateLimit(connect(settings), 3, fails_open=False).take("a")

    def test_without_redis_requests_pass_and_are_counted_or_are_refused(self, settings: Settings):
        lenient = RateLimit(connect(settings), 1, fails_open=True)
        lenient.take("a")
        lenient.take("a")
        assert lenient.passed_unchecked == 2

        with pytest.raises(Unavailable):
            RateLimit(connect(settings), 1, fails_open=False).take("a")


class TestOverHttp:
    def test_the_dashboard_makes_a_first_key_that_opens_it(self, client: Client, parts: Parts):
        """One with another scope would lock out the person who made it."""
        assert re.findall(SCOPE, client.get("/admin/keys").text) == ["admin"]

        admin = issue_key_by_name("default", "admin", ["admin"], parts.database)
        assert re.findall(SCOPE, client.get("/admin/keys", headers=bearer(admin.key)).text) == list(KEY_SCOPES)

    def test_from_the_first_key_on_every_request_needs_one(self, client: Client, parts: Parts):
        assert client.get("/v1/keys").json() == {"items": [], "next": None}
        key = client.post("/v1/keys", json={"name": "first", "scopes": ["admin"]}).json()["key"]

        refused = client.get("/v1/keys")
        assert_problem(refused, 401, "Bearer")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert_problem(client.get("/v1/keys", headers=bearer("rk_wrong")), 401)
        assert_problem(client.get("/v1/keys", headers={"Authorization": f"Basic {key}"}), 401)
        assert client.get("/v1/keys", headers=bearer(key)).json()["items"][0]["name"] == "first"
        assert client.get("/v1/keys", headers={"X-API-Key": key}).status_code == 200
        for method in ("GET", "HEAD"):
            probed = [client.request(method, path) for path in ("/healthz", "/readyz", "/health")]
            assert [(each.status_code, bool(each.content)) for each in probed] == [(200, method == "GET")] * 3

    def test_keys_are_listed_a_page_at_a_time(self, client: Client, parts: Parts):
        issued = [
            issue_key(parts.default_collection.tenant_id, f"key {number}", ["admin"], parts.database)
            for number in range(3)
        ]
        client.headers.update(bearer(issued[0].key))
        first = client.get("/v1/keys", params={"limit": 2}).json()
        second = client.get("/v1/keys", params={"limit": 2, "cursor": first["next"]}).json()

        assert [key["id"] for key in first["items"] + second["items"]] == [key.view.id for key in issued]
        assert second["next"] is None
        for cursor in ("x", "\x00", "WyJhIiwiYiJd"):
            assert_problem(client.get("/v1/keys", params={"cursor": cursor}), 422, "cursor")
        for limit in (0, 201, "x"):
            assert_problem(client.get("/v1/keys", params={"limit": limit}), 400)

    def test_a_revoked_key_is_refused_at_once(self, client: Client, parts: Parts):
        issued = client.post("/v1/keys", json={"name": "first", "scopes": ["admin"]}).json()
        headers = bearer(issued["key"])

        assert client.delete(f"/v1/keys/{issued['view']['id']}", headers=headers).status_code == 204
        assert_problem(client.get("/v1/keys", headers=headers), 401, "revoked")

    def test_without_keys_pages_from_elsewhere_may_not_ask(self, client: Client, subtests: pytest.Subtests):
        for headers in [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]:
            with subtests.test(headers=headers):
                assert_problem(client.get("/v1/keys", headers=headers), 403, "ragkv keys create")
                assert (
                    client.get("/v1/keys", headers={"Origin": "http://localhost:3000", "Host": "localhost"}).status_code
                    == 200
                )

    def test_without_keys_clients_of_a_proxy_may_not_ask(self, client: Client, parts: Parts, subtests: pytest.Subtests):
        names = ("X-Forwarded-For", "x-forwarded-proto", "Forwarded", "Via", "X-Real-IP")
        for name, method in product(names, ("GET", "POST")):
            with subtests.test(name=name, method=method):
                answer = client.request(method, "/v1/keys", json={"name": "x"}, headers={name: "x"})
                assert_problem(answer, 403, "proxy")
        key = issue_key(parts.default_collection.tenant_id, "x", ["read"], parts.database).key
        for name in names:
            with subtests.test(name=name, key="valid"):
                assert client.get("/v1/documents", headers={name: "x"} | bearer(key)).status_code == 200

    def test_too_many_requests_are_told_when_to_come_again(
        self, settings: Settings, parts: Parts, redis_server: EmbeddedRedis
    ):
        parts.settings = msgspec.structs.replace(settings, requests_per_minute=2)
        headers = bearer(issue_key_by_name("default", "x", ["read"], parts.database).key)
        with client_of(parts) as client:
            codes = [client.get("/v1/documents/none", headers=headers).status_code for _ in range(3)]
            counted = throttled()
            last = client.get("/v1/documents/none", headers=headers)

        assert codes == [404, 404, 429]
        assert throttled() == counted + 1, "also one that is refused by memory alone"
        assert_problem(last, 429, "RAGKV_REQUESTS_PER_MINUTE")
        assert 20 < int(last.headers["retry-after"]) <= 30, "the time that is left, not that of the memory"

    def test_the_names_of_all_tenants_and_what_they_keep_are_for_admins_of_the_default_one(
        self, client: Client, parts: Parts
    ):
        shown = {}
        for tenant in ("red", "default"):
            for scope in ("read", "write", "admin"):
                key = issue_key_by_name(tenant, "x", [scope], parts.database).key
                shown[tenant, scope] = client.get("/v1/kv", headers=bearer(key)).json()["tenants"]

        assert {tenant["name"] for tenant in shown.pop(("default", "admin"))} == {"default", "red"}
        assert set(shown.values()) == {None}

    def test_a_tenant_keeps_no_more_bytes_than_its_quota(
        self, settings: Settings, parts: Parts, redis_server: EmbeddedRedis
    ):
        parts.settings = msgspec.structs.replace(settings, max_tenant_bytes=len(ADA) + 10)
        with client_of(parts) as client:
            kept = upload(client)
            assert upload(client, b"ten bytes!").status_code == 202
            assert upload(client).status_code == 200, "what is there already takes no room"
            assert_problem(upload(client, b"one more"), 413, "RAGKV_MAX_TENANT_BYTES")
            client.delete(f"/v1/documents/{kept.json()['id']}")
            assert upload(client, b"one more").status_code == 202


class TestCommand:
    @pytest.fixture
    def environ(self, settings: Settings) -> dict[str, str]:
        return {"RAGKV_DATA_DIR": str(settings.data_dir), "RAGKV_MODEL": settings.model}

    def test_keys_are_made_listed_and_revoked(self, environ: dict[str, str], settings: Settings):
        run = CliRunner(env=environ).invoke
        made = run(keys_command, ["create", "--name", "laptop", "--tenant", "acme", "--scope", "write", "--days", "9"])
        key = made.stdout.strip()
        assert re.fullmatch(r"rk_[0-9a-f]{16}_[0-9a-f]{64}", key)
        assert authenticate(key, Database(settings.database)).scopes == {"write"}

        listed = run(keys_command, ["list"]).stdout
        assert "acme" in listed and "laptop" in listed and "until" in listed
        assert key.split("_")[1] in listed
        assert key.rsplit("_", 1)[1] not in listed
        assert run(keys_command, ["revoke", key.split("_")[1]]).exit_code == 0
        assert "revoked" in run(keys_command, ["list"]).stdout

    def test_a_service_for_other_machines_does_not_start_without_a_key(self, environ: dict[str, str]):
        refused = CliRunner(env=environ).invoke(serve, ["--host", "0.0.0.0", "--port", "0", "--no-worker"])

        assert isinstance(refused.exception, Rejected)
        assert "ragkv keys create" in str(refused.exception)
