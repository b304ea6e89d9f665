"""Signing in by OpenID Connect, at a real provider: who gets in with which rights, and what is refused."""

import asyncio
import base64
import json
import re
from contextlib import suppress
from datetime import datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from api.access.session import COOKIE
from api.admin.sign_in import CALLBACK
from api.command import serve
from ragkv.cli.status import status
from ragkv.errors import Forbidden, RagKVError, Rejected, Unauthorised, Unavailable
from ragkv.service.access import provider
from ragkv.service.access.provider import CODES_AT_ONCE, TIMEOUT_S, Challenge, Identity, Provider
from ragkv.service.access.sign_in import Rights, read_grants, sign_in_of
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.parts import LOGINS_PER_MINUTE, Parts
from ragkv.settings import Settings
from tests.integration.test_sessions import csrf_in, csrf_token
from tests.support.issued_keys import issue_key_by_name
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, OIDCProvider
from tests.support.over_http import HERE, Client, assert_problem, client_of, upload

GROUPS = "admins=default:admin; /team/red=red:admin; CN=readers,OU=x=default:read"
BACK = f"{HERE}/admin/sign-in/callback"


@pytest.fixture
def settings(settings: Settings, oidc_provider: OIDCProvider) -> Settings:
    return msgspec.structs.replace(
        settings,
        oidc_issuer=oidc_provider.url,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=CLIENT_SECRET,
        oidc_groups=GROUPS,
    )


@pytest.fixture
def parts(parts: Parts) -> Parts:
    """With a tenant beside the default one."""
    ensure_collection(parts.database, "red")
    return parts


def begin(client: Client, **params: str) -> str:
    """The provider's address that a person is led to."""
    response = client.get("/admin/sign-in", params=params, follow_redirects=False)
    assert response.status_code == 302, response.text
    return response.headers["location"]


def sign_in(client: Client, provider: OIDCProvider, subject: str = "ada", **params: str) -> httpx.Response:
    back = provider.authorise(begin(client, **params), subject)
    assert back.startswith(BACK)
    return client.get(back, follow_redirects=False)


def identify(settings: Settings, provider: OIDCProvider, timeout_s: float = TIMEOUT_S, **given: Any) -> Identity:
    """A person's identity, without the service around it."""
    return asyncio.run(_identity(provider_of(msgspec.structs.replace(settings, **given), timeout_s), provider))


def provider_of(settings: Settings, timeout_s: float = TIMEOUT_S) -> Provider:
    sign_in = sign_in_of(settings)
    assert sign_in is not None
    return Provider(sign_in, timeout_s)


async def _code(ours: Provider, provider: OIDCProvider, challenge: Challenge) -> str:
    back = provider.authorise(await ours.sign_in_url(challenge, BACK), "ada")
    return parse_qs(urlsplit(back).query)["code"][0]


async def _identity(ours: Provider, provider: OIDCProvider) -> Identity:
    challenge = Challenge.new()
    return await ours.identify(await _code(ours, provider, challenge), challenge, BACK, "127.0.0.1")


STRANGERS = 12 * CODES_AT_ONCE


async def _flooded(ours: Provider, provider: OIDCProvider) -> list[str]:
    """Who was answered, in this order, when Ada's code comes after many that a stranger made up."""
    answered: list[str] = []
    challenge = Challenge.new()
    code = await _code(ours, provider, challenge)

    async def guess() -> None:
        with suppress(Unauthorised):
            await ours.identify("made-up", Challenge.new(), BACK, "192.0.2.1")
        answered.append("stranger")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(STRANGERS):
            tasks.create_task(guess())
        await asyncio.sleep(0)
        await ours.identify(code, challenge, BACK, "127.0.0.1")
        answered.append("ada")
    return answered


def days_of(key: dict[str, Any]) -> float:
    lifetime = datetime.fromisoformat(key["expires_at"]) - datetime.fromisoformat(key["created_at"])
    return round(lifetime / timedelta(days=1), 3)


def audit(client: Client) -> list[dict[str, Any]]:
    return client.get("/v1/audit").json()["items"]


class TestSignIn:
    def test_a_person_whose_group_has_rights_gets_a_session(self, client: Client, oidc_provider: OIDCProvider):
        oidc_provider.add("ada", "admins", "others")
        response = sign_in(client, oidc_provider, next="/admin/jobs?status=failed")

        assert response.status_code == 200
        assert 'content="0; url=/admin/jobs?status=failed"' in response.text
        cookie = next(c for c in response.headers.get_list("set-cookie") if c.startswith(COOKIE)).lower()
        assert all(flag in cookie for flag in ("httponly", "samesite=strict", "path=/", "max-age=3600"))
        page = client.get("/admin/keys").text
        assert "Ada" in page
        assert "ada@example.com" in page
        assert "The service is open" not in page
        assert client.get("/v1/documents").status_code == 200

    def test_the_request_is_bound_to_the_browser_by_state_nonce_and_pkce(self, client: Client):
        first, second = (parse_qs(urlsplit(begin(client)).query) for _ in range(2))

        assert first["response_type"] == ["code"]
        assert first["redirect_uri"] == [BACK]
        assert first["scope"] == ["openid profile email"]
        assert first["code_challenge_method"] == ["S256"]
        for name in ("state", "nonce", "code_challenge"):
            assert len(first[name][0]) >= 43
            assert first[name] != second[name]

    def test_changes_are_the_persons_in_the_audit_log_and_need_the_csrf_token(
        self, client: Client, oidc_provider: OIDCProvider
    ):
        oidc_provider.add("ada", "admins")
        sign_in(client, oidc_provider)
        assert_problem(upload(client), 403, "X-CSRF-Token")
        assert upload(client, headers={"x-csrf-token": csrf_token(client)}).status_code == 202

        assert [(event["action"], event["person"], event["key_id"]) for event in audit(client)] == [
            ("Upload a document", "ada@example.com (ada)", None),
            ("Sign in", "ada@example.com (ada)", None),
        ]
        assert "ada@example.com (ada)" in client.get("/admin/audit").text

    def test_a_key_that_a_person_creates_names_them_and_expires(self, client: Client, oidc_provider: OIDCProvider):
        oidc_provider.add("ada", "admins")
        sign_in(client, oidc_provider)
        headers = {"x-csrf-token": csrf_token(client)}
        assert_problem(client.post("/v1/keys", json={"name": "x", "days": 91}, headers=headers), 422, "OIDC_KEY_DAYS")
        made = [
            client.post("/v1/keys", json={"name": "x", "scopes": ["admin"]} | days, headers=headers).json()["view"]
            for days in ({}, {"days": 7})
        ]

        assert [days_of(key) for key in made] == [90, 7]
        assert client.delete(f"/v1/keys/{made[1]['id']}", headers=headers).status_code == 204
        for key in client.get("/v1/keys").json()["items"]:
            assert (key["created_by"], key["created_by_person"]) == (None, "ada@example.com (ada)")
            assert key["revoked_by_person"] == (None if key["id"] == made[0]["id"] else "ada@example.com (ada)")
        page = client.get("/admin/keys").text
        assert "created by ada@example.com (ada)" in page
        assert "revoked by ada@example.com (ada)" in page
        assert 'max="90" placeholder="90"' in page

    def test_a_key_created_with_a_persons_key_is_theirs_and_ends_no_later(
        self, client: Client, oidc_provider: OIDCProvider
    ):
        """Otherwise one key would make the next, and rights would last for ever."""
        oidc_provider.add("ada", "admins")
        sign_in(client, oidc_provider)
        body = {"name": "x", "scopes": ["admin"]}
        own = client.post("/v1/keys", json=body | {"days": 7}, headers={"x-csrf-token": csrf_token(client)}).json()
        client.cookies.clear()
        for _ in range(2):
            bearer = {"authorization": f"Bearer {own['key']}"}
            assert_problem(client.post("/v1/keys", json=body | {"days": 8}, headers=bearer), 422, "7 days at most")
            next_one = client.post("/v1/keys", json=body, headers=bearer).json()

            assert next_one["view"]["expires_at"] == own["view"]["expires_at"]
            assert next_one["view"]["created_by"] == own["view"]["id"]
            assert next_one["view"]["created_by_person"] == "ada@example.com (ada)"
            own = next_one

    def test_tabs_that_sign_in_at_once_each_get_to_their_page(self, client: Client, oidc_provider: OIDCProvider):
        """As after a restart of the browser. Of a multitude those that began last do, within a cookie's size."""
        oidc_provider.add("ada", "admins")
        pages = [f"/admin/{name}" for name in ("jobs", "keys", "audit")]
        backs = [oidc_provider.authorise(begin(client, next=page), "ada") for page in pages]

        for back, page in zip(backs, pages, strict=True):
            assert f'content="0; url={page}"' in client.get(back).text
        assert client.get(backs[0]).status_code == 401, "a journey is made once"
        for _ in range(20):
            place = begin(client, next=f"/admin/questions?q={'x' * 1_900}")
        assert sum(map(len, client.cookies.values())) < 3_200
        assert client.get(oidc_provider.authorise(place, "ada")).status_code == 200

    def test_without_keys_the_service_is_closed_all_the_same(self, client: Client):
        assert_problem(client.get("/v1/documents"), 401)
        assert "Sign in with 127.0.0.1" in client.get("/admin/login").text

    def test_a_key_logs_in_as_before(self, client: Client, parts: Parts):
        key = issue_key_by_name("red", "x", ["admin"], parts.database).key

        assert client.post("/admin/login", data={"key": key}, follow_redirects=False).status_code == 303
        assert client.get("/v1/documents").status_code == 200
        token = csrf_token(client)
        gone = client.post("/admin/logout", headers={"x-csrf-token": token})
        assert gone.json() == {"then": "/admin/login"}

    def test_a_session_from_before_ends_with_the_sign_in(self, client: Client, oidc_provider: OIDCProvider):
        """No fixation: a token that was there before the sign-in is worth nothing after it."""
        oidc_provider.add("ada", "admins")
        sign_in(client, oidc_provider)
        before = client.cookies[COOKIE]
        sign_in(client, oidc_provider)

        assert client.cookies[COOKIE] != before
        client.cookies.set(COOKIE, before, domain="127.0.0.1")
        client.cookies.clear()
        assert_problem(client.get("/v1/documents", headers={"cookie": f"{COOKIE}={before}"}), 401)

    def test_signing_in_leads_nowhere_but_into_the_dashboard(self, client: Client, oidc_provider: OIDCProvider):
        oidc_provider.add("ada", "admins")
        for outside in ("https://elsewhere.example", "//elsewhere.example", "/admin\\@x", "/v1", "javascript:1"):
            assert 'content="0; url=/admin"' in sign_in(client, oidc_provider, next=outside).text, outside

    def test_signing_out_ends_the_session_here_and_leads_to_the_provider(
        self, client: Client, oidc_provider: OIDCProvider
    ):
        oidc_provider.add("ada", "admins")
        sign_in(client, oidc_provider)
        token = client.cookies[COOKIE]
        then = client.post("/admin/logout", headers={"x-csrf-token": csrf_token(client)}).json()["then"]

        told = parse_qs(urlsplit(then).query)
        assert then.startswith(f"{oidc_provider.url}/oauth2/end_session?")
        assert told["post_logout_redirect_uri"] == [f"{HERE}/admin/login"]
        assert told["client_id"] == [CLIENT_ID]
        assert len(told["id_token_hint"][0].split(".")) == 3
        assert_problem(client.get("/v1/documents", headers={"cookie": f"{COOKIE}={token}"}), 401)

    def test_behind_a_proxy_the_provider_leads_back_to_the_public_url(
        self, settings: Settings, parts: Parts, redis_server: EmbeddedRedis
    ):
        parts.settings = msgspec.structs.replace(settings, public_url="https://rag.example.com/")
        with client_of(parts) as client:
            response = client.get("/admin/sign-in", follow_redirects=False)

        asked = parse_qs(urlsplit(response.headers["location"]).query)
        assert asked["redirect_uri"] == ["https://rag.example.com/admin/sign-in/callback"]
        cookie = response.headers["set-cookie"]
        assert cookie.startswith("__Host-ragkv_sign_in=")
        assert all(flag in cookie.lower() for flag in ("secure", "httponly", "samesite=lax", "path=/"))

    def test_on_https_only_the_cookie_that_this_host_alone_can_set_begins_a_sign_in(
        self, settings: Settings, parts: Parts, redis_server: EmbeddedRedis
    ):
        """Another host of the domain could set the other name, and sign a person in as somebody else."""
        parts.settings = msgspec.structs.replace(settings, public_url="https://rag.example.com")
        with client_of(parts) as client:
            kept = client.get("/admin/sign-in", follow_redirects=False).headers["set-cookie"]
            value = kept.partition("=")[2].partition(";")[0]
            state = msgspec.json.decode(base64.urlsafe_b64decode(value))[0]["challenge"]["state"]
            client.cookies.clear()
            shown = {
                name: client.get(
                    CALLBACK, params={"state": state, "error": "told"}, headers={"cookie": f"{name}={value}"}
                ).text
                for name in ("ragkv_sign_in", "__Host-ragkv_sign_in")
            }

        assert "the provider did not sign you in: told" in shown["__Host-ragkv_sign_in"]
        assert "began in another browser" in shown["ragkv_sign_in"]

    def test_a_host_header_is_not_believed(self, client: Client):
        response = client.get("/admin/sign-in", headers={"host": "elsewhere.example"}, follow_redirects=False)

        assert response.status_code == 422
        assert "RAGKV_PUBLIC_URL" in response.text


class TestRights:
    def test_a_person_without_rights_is_told_why(self, client: Client, oidc_provider: OIDCProvider):
        for groups, reason in (
            ([], "none, in the claim groups"),
            (["strangers"], "strangers"),
            (["CN=readers,OU=x"], "read in default; the dashboard needs the scope admin"),
        ):
            oidc_provider.add("eve", *groups)
            response = sign_in(client, oidc_provider, "eve")

            assert response.status_code == 403
            assert reason in response.text
            assert not any(cookie.startswith(COOKIE) for cookie in response.headers.get_list("set-cookie"))

    def test_a_person_without_rights_may_choose_another_account(self, client: Client, oidc_provider: OIDCProvider):
        """The provider would sign in the same person again, unseen."""
        oidc_provider.add("eve", "strangers")
        (address,) = re.findall('href="(.*)">Use another account', sign_in(client, oidc_provider, "eve").text)
        begun = client.get(unescape(address), follow_redirects=False)

        assert parse_qs(urlsplit(begun.headers["location"]).query)["prompt"] == ["select_account"]
        assert "prompt" not in client.get("/admin/sign-in", follow_redirects=False).headers["location"]
        assert "another account" not in client.get("/admin/login").text

    def test_a_person_with_several_tenants_works_in_the_first_and_may_switch(
        self, client: Client, parts: Parts, oidc_provider: OIDCProvider
    ):
        oidc_provider.add("ada", "/team/red", "admins")
        sign_in(client, oidc_provider)
        upload(client, headers={"x-csrf-token": csrf_token(client)})
        red = ensure_collection(parts.database, "red").tenant_id
        assert f'<option value="{red}">red</option>' in client.get("/admin/keys").text

        switch = {"headers": {"x-csrf-token": csrf_token(client)}}
        assert client.post("/admin/sign-in/tenant", json={"tenant": red}, **switch).status_code == 204
        assert client.get("/v1/documents").json()["items"] == []
        assert [event["action"] for event in audit(client)] == ["Switch to this tenant"]
        assert_problem(client.post("/admin/sign-in/tenant", json={"tenant": red}, **switch), 403, "reload the page")
        switch = {"headers": {"x-csrf-token": csrf_token(client)}}
        assert_problem(client.post("/admin/sign-in/tenant", json={"tenant": "0" * 32}, **switch), 404)

    def test_a_tenant_of_other_groups_is_out_of_reach(self, client: Client, parts: Parts, oidc_provider: OIDCProvider):
        oidc_provider.add("ada", "admins")
        sign_in(client, oidc_provider)
        red = ensure_collection(parts.database, "red").tenant_id
        headers = {"x-csrf-token": csrf_token(client)}

        assert_problem(client.post("/admin/sign-in/tenant", json={"tenant": red}, headers=headers), 404)

    def test_rights_end_with_the_session_and_with_the_grant(
        self, client: Client, parts: Parts, oidc_provider: OIDCProvider
    ):
        oidc_provider.add("ada", "admins")
        sign_in(client, oidc_provider)
        (name,) = parts.redis.keys("ragkv:session:*")
        assert 0 < parts.redis.ttl(name) <= 3600

        narrowed = read_grants("others=default:admin")
        parts.gate._rights = Rights.of(narrowed, parts.database)  # as after a restart
        assert_problem(client.get("/v1/documents"), 401, "sign in again")

    def test_a_person_with_fewer_rights_may_still_leave(
        self, client: Client, parts: Parts, oidc_provider: OIDCProvider
    ):
        """Switch to a tenant where they still may do everything, and log out."""
        oidc_provider.add("ada", "admins", "/team/red")
        sign_in(client, oidc_provider)
        red = ensure_collection(parts.database, "red").tenant_id

        parts.gate._rights = Rights.of(read_grants("admins=default:read; /team/red=red:admin"), parts.database)
        refused = client.get("/admin/keys", headers={"accept": "text/html"})
        assert refused.status_code == 403
        assert f'<option value="{red}">red</option>' in refused.text and "Log out" in refused.text
        switch = {"headers": {"x-csrf-token": csrf_in(refused.text)}}
        assert client.post("/admin/sign-in/tenant", json={"tenant": red}, **switch).status_code == 204
        assert client.get("/admin/keys").status_code == 200

        parts.gate._rights = Rights.of(read_grants("/team/red=red:read"), parts.database)
        refused = client.get("/admin/keys", headers={"accept": "text/html"})
        assert client.post("/admin/logout", headers={"x-csrf-token": csrf_in(refused.text)}).status_code == 200
        assert_problem(client.get("/v1/documents"), 401)
        tenant = {"Authorization": f"Bearer {issue_key_by_name('red', 'x', ['admin'], parts.database).key}"}
        recorded = client.get("/v1/audit", headers=tenant).json()["items"]
        assert [event["action"] for event in recorded] == ["Log out", "Switch to this tenant"]

    def test_groups_that_only_the_user_info_names_count(self, settings: Settings, oidc_provider: OIDCProvider):
        oidc_provider.add("ada", "admins")
        oidc_provider.misbehave(thin=True)
        assert identify(settings, oidc_provider).groups == ("admins",)
        oidc_provider.misbehave(thin=True, other_subject=True)

        with pytest.raises(Unauthorised, match="for another user"):
            identify(settings, oidc_provider)

    @pytest.mark.parametrize(
        ("claim", "claims", "groups"),
        [
            ("realm_access.roles", {"realm_access": {"roles": ["admins", 1]}}, ("admins",)),
            ("https://example.com/roles", {"https://example.com/roles": ["admins"]}, ("admins",)),
            ("hd", {"hd": "admins"}, ("admins",)),
            ("hd", {"hd": {"admins": 1}}, ()),
            ("hd.x", {"hd": "admins"}, ()),
            ("email", {"email": "admins", "email_verified": True}, ("admins",)),
            ("email", {"email": "admins"}, Forbidden),
            ("groups", {"groups": None, "_claim_names": {"groups": "src1"}}, Forbidden),
        ],
    )
    def test_groups_are_read_from_the_claim_that_the_settings_name(
        self,
        settings: Settings,
        oidc_provider: OIDCProvider,
        claim: str,
        claims: dict[str, Any],
        groups: tuple[str, ...] | type[RagKVError],
    ):
        oidc_provider.add("ada", "admins")
        oidc_provider.misbehave(claims=claims, discovery={"userinfo_endpoint": None})
        if isinstance(groups, tuple):
            assert identify(settings, oidc_provider, oidc_groups_claim=claim).groups == groups
        else:
            with pytest.raises(groups):
                identify(settings, oidc_provider, oidc_groups_claim=claim)

    def test_names_are_printable_and_an_unverified_address_is_nobodys_name(
        self, settings: Settings, oidc_provider: OIDCProvider
    ):
        oidc_provider.add("ada", email_verified=False, name="A\x1b[31mda\n" + "x" * 500)
        person = identify(settings, oidc_provider).person

        assert person.email is None
        assert person.name.startswith("A [31mda x")
        assert len(person.name) <= 200

    def test_a_tenant_that_does_not_exist_is_refused_at_start(self, parts: Parts):
        for groups, reason in (
            ("admins=rad:admin", "did you mean 'red'"),
            ("admins=nowhere:admin", "ragkv keys create --tenant nowhere"),
        ):
            with pytest.raises(Rejected, match=reason):
                Rights.of(read_grants(groups), parts.database)


class TestRefusals:
    @pytest.mark.parametrize(
        "faults",
        [
            {"claims": {"iss": "https://elsewhere.example"}},
            {"claims": {"aud": "another"}},
            {"claims": {"aud": [CLIENT_ID, "another"], "azp": "another"}},
            {"claims": {"exp": 1_700_000_000}},
            {"claims": {"exp": None}},
            {"claims": {"iat": 4_000_000_000}},
            {"claims": {"nonce": "another"}},
            {"claims": {"nonce": None}},
            {"claims": {"sub": None}},
            {"claims": {"sub": ""}},
            {"claims": {"at_hash": "AAAA"}},
            {"alg": "none"},
            {"alg": "none", "discovery": {"id_token_signing_alg_values_supported": ["none", "RS256"]}},
            {"alg": "HS256", "discovery": {"id_token_signing_alg_values_supported": ["HS256", "RS256"]}},
            {"alg": "RS512"},
            {"wrong_key": True},
            {"kid": "another"},
        ],
        ids=json.dumps,
    )
    def test_an_id_token_that_is_not_good_is_refused(
        self, settings: Settings, oidc_provider: OIDCProvider, faults: dict[str, Any]
    ):
        oidc_provider.add("ada", "admins")
        oidc_provider.misbehave(**faults)

        with pytest.raises(Unauthorised, match="ID token"):
            identify(settings, oidc_provider)

    def test_the_providers_keys_may_rotate(self, settings: Settings, oidc_provider: OIDCProvider):
        ours = provider_of(settings)
        assert asyncio.run(_identity(ours, oidc_provider)).person.subject == "ada"
        oidc_provider.misbehave(rotate=True)

        assert asyncio.run(_identity(ours, oidc_provider)).person.subject == "ada"

    def test_a_wrong_secret_is_said_to_be_wrong(self, settings: Settings, oidc_provider: OIDCProvider):
        with pytest.raises(Unauthorised, match="the provider refused: invalid_client"):
            identify(settings, oidc_provider, oidc_client_secret="wrong")

    def test_an_answer_that_this_browser_did_not_ask_for_is_refused(
        self, client: Client, parts: Parts, oidc_provider: OIDCProvider
    ):
        """Neither without its cookie, nor with another state, nor a second time."""
        oidc_provider.add("ada", "admins")
        back = oidc_provider.authorise(begin(client), "ada")
        kept = dict(client.cookies)
        client.cookies.clear()
        assert client.get(back, follow_redirects=False).status_code == 401
        begin(client)
        assert client.get(back, follow_redirects=False).status_code == 401
        client.cookies.clear()
        client.cookies.update(kept)
        assert client.get(back, follow_redirects=False).status_code == 200
        client.cookies.update(kept)
        again = client.get(back, follow_redirects=False)
        assert (again.status_code, "the provider refused" in again.text) == (401, True)

    def test_a_sign_in_that_fails_leaves_that_of_another_window_alone(
        self, client: Client, oidc_provider: OIDCProvider
    ):
        oidc_provider.add("ada", "admins")
        failing, back = (oidc_provider.authorise(location, "ada") for location in (begin(client), begin(client)))

        assert client.get(failing.replace("code=", "code=no"), follow_redirects=False).status_code == 401
        assert client.get(back, follow_redirects=False).status_code == 200

    def test_a_made_up_cookie_is_no_beginning(self, client: Client):
        for kept in ("", "x", "é" * 10, base64.urlsafe_b64encode(b'{"next": 1}').decode(), "A" * 5000):
            header = f"ragkv_sign_in={kept}".encode()
            response = client.get("/admin/sign-in/callback?code=x&state=y", headers={b"cookie": header})

            assert response.status_code == 401, kept

    def test_what_the_provider_says_against_it_is_shown_as_text(self, client: Client):
        for told, shown in (
            ({"error": "access_denied", "error_description": "<b>no</b>"}, "access_denied &lt;b&gt;no&lt;/b&gt;"),
            ({"code": "x", "iss": "https://elsewhere.example"}, "another provider"),
        ):
            state = parse_qs(urlsplit(begin(client)).query)["state"][0]
            response = client.get("/admin/sign-in/callback", params={"state": state} | told)

            assert response.status_code == 401
            assert shown in response.text

    def test_what_comes_back_is_one_line_of_the_log(self, client: Client, caplog: pytest.LogCaptureFixture):
        state = parse_qs(urlsplit(begin(client)).query)["state"][0]
        told = {"state": state, "error": "x\nERROR forged", "error_description": "\x1b[2Jhidden"}
        client.get(CALLBACK, params=told)

        (line,) = [record.getMessage() for record in caplog.records if record.name == "api.admin.sign_in"]
        assert line.isprintable()
        assert "x ERROR forged" in line

    def test_a_valid_code_passes_whatever_strangers_sent_from_the_same_address(
        self, client: Client, oidc_provider: OIDCProvider
    ):
        oidc_provider.add("ada", "admins")
        statuses = []
        for _ in range(LOGINS_PER_MINUTE + 2):
            state = parse_qs(urlsplit(begin(client)).query)["state"][0]
            statuses.append(client.get(CALLBACK, params={"state": state, "code": "made-up"}).status_code)

        assert statuses == [401] * LOGINS_PER_MINUTE + [429] * 2
        assert sign_in(client, oidc_provider).status_code == 200

    def test_a_code_waits_for_few_of_those_that_another_address_sends(
        self, settings: Settings, oidc_provider: OIDCProvider
    ):
        oidc_provider.add("ada", "admins")

        done = asyncio.run(_flooded(provider_of(settings), oidc_provider))
        assert done.index("ada") <= STRANGERS / 2  # more are answered while hers is checked, on a busy machine

    def test_an_address_may_fail_a_few_times_a_minute(self, client: Client, oidc_provider: OIDCProvider):
        for _ in range(LOGINS_PER_MINUTE):
            assert client.get("/admin/sign-in/callback").status_code == 401
        assert client.get("/admin/sign-in/callback").status_code == 429

        oidc_provider.add("ada", "admins")
        assert sign_in(client, oidc_provider).status_code == 200


class TestOutages:
    @pytest.mark.parametrize(
        ("faults", "reason"),
        [
            ({"slow_s": 2}, "no answer within 1 s"),
            ({"discovery": {"issuer": "https://elsewhere.example"}}, "not that of RAGKV_OIDC_ISSUER"),
            ({"discovery": {"token_endpoint": "http://elsewhere.example/token"}}, "is not https"),
            ({"discovery": {"jwks_uri": None}}, "jwks_uri"),
            ({"discovery": {"padding": "x" * 2**21}}, "bytes"),
        ],
        ids=["slow", "issuer", "plain", "incomplete", "large"],
    )
    def test_a_provider_that_cannot_be_used_is_unavailable_with_the_reason(
        self, settings: Settings, oidc_provider: OIDCProvider, faults: dict[str, Any], reason: str
    ):
        oidc_provider.misbehave(**faults)

        with pytest.raises(Unavailable, match=f"{reason}.*log in with an API key"):
            identify(settings, oidc_provider, timeout_s=1 if "slow_s" in faults else TIMEOUT_S)

    def test_a_provider_that_failed_is_asked_once_for_all_and_not_again_for_some_seconds(
        self, settings: Settings, oidc_provider: OIDCProvider, caplog: pytest.LogCaptureFixture
    ):
        """Anybody may begin to sign in."""
        ours = provider_of(settings)

        async def begin_many() -> list[object]:
            tasks = (ours.sign_in_url(Challenge.new(), BACK) for _ in range(20))
            return await asyncio.gather(*tasks, return_exceptions=True)

        oidc_provider.misbehave(discovery={"jwks_uri": None})
        failures = asyncio.run(begin_many())
        oidc_provider.misbehave()
        failures += asyncio.run(begin_many())

        assert all(isinstance(failure, Unavailable) and "jwks_uri" in str(failure) for failure in failures)
        assert len([record for record in caplog.records if "cannot be used" in record.getMessage()]) == 1

    def test_the_login_with_a_key_is_left_and_sign_in_works_as_soon_as_the_provider_does(
        self, client: Client, oidc_provider: OIDCProvider, monkeypatch: pytest.MonkeyPatch
    ):
        """But for the seconds in which a failure is remembered."""
        monkeypatch.setattr(provider, "FAILURE_REMEMBERED_S", 0.0)
        oidc_provider.misbehave(discovery={"jwks_uri": None})
        response = client.get("/admin/sign-in?next=/admin/jobs", follow_redirects=False)

        assert response.status_code == 503
        assert "log in with an API key" in response.text
        assert 'name="next" value="/admin/jobs"' in response.text
        oidc_provider.misbehave()
        begin(client)

    def test_a_provider_that_is_away_when_people_come_back_is_told(self, client: Client, oidc_provider: OIDCProvider):
        oidc_provider.add("ada", "admins")
        back = oidc_provider.authorise(begin(client), "ada")
        oidc_provider.misbehave(status=503)

        response = client.get(back, follow_redirects=False)
        assert (response.status_code, "status 503 of POST" in response.text) == (503, True)

    def test_signing_out_works_without_the_provider(self, client: Client, parts: Parts, oidc_provider: OIDCProvider):
        oidc_provider.add("ada", "admins")
        sign_in(client, oidc_provider)
        parts.provider._discovered = None
        oidc_provider.misbehave(discovery={"issuer": "https://elsewhere.example"})

        gone = client.post("/admin/logout", headers={"x-csrf-token": csrf_token(client)})
        assert gone.json() == {"then": "/admin/login"}
        assert COOKIE not in client.cookies


def test_without_a_provider_there_is_nothing_to_sign_in_to(
    parts: Parts, redis_server: EmbeddedRedis, settings: Settings
):
    without = dict.fromkeys(("oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_groups"))
    parts.settings = msgspec.structs.replace(settings, **without)
    with client_of(parts) as client:
        assert client.get("/admin/sign-in").status_code == 404
        assert client.get("/admin/sign-in/callback?code=x").status_code == 404


def test_the_start_and_the_status_say_that_people_sign_in(parts: Parts):
    """No key is needed first, but an address that the provider can lead back to."""
    environ = {
        "RAGKV_DATA_DIR": str(parts.settings.data_dir),
        "RAGKV_OIDC_ISSUER": "https://login.example.com",
        "RAGKV_OIDC_CLIENT_ID": CLIENT_ID,
        "RAGKV_OIDC_GROUPS": GROUPS,
    }
    refused = CliRunner(env=environ).invoke(serve, ["--host", "0.0.0.0", "--port", "0", "--no-worker"])
    shown = CliRunner(env=environ).invoke(status, ["--json"])

    assert isinstance(refused.exception, Rejected)
    assert "RAGKV_PUBLIC_URL" in str(refused.exception)
    assert json.loads(shown.stdout)["sign_in"] == (
        "by API key, and by OpenID Connect at login.example.com: 3 group(s), for tenants default, red"
    )
