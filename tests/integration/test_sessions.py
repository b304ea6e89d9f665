"""The dashboard over HTTP: who gets in, what keeps other sites out, and what browsers are told."""

import re

import httpx
import msgspec
import pytest

from api.access.auth import PUBLIC
from api.access.session import COOKIE, HTTPS_COOKIE
from api.admin.responses import HEADERS
from api.app import create_app
from ragkv.service.access.sessions import csrf_token as csrf_of
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.keys.keys import issue_key, revoke_key
from ragkv.service.parts import LOGINS_PER_MINUTE, Parts
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import HERE, Client, assert_problem, client_of, upload

HTML = {"accept": "text/html"}
PAGES = ("/admin/collections", "/admin/collections/default", "/admin/jobs", "/admin/keys", "/admin/settings")


@pytest.fixture
def key(parts: Parts) -> str:
    """An admin's."""
    return issue_key(parts.default_collection.tenant_id, "browser", ["admin"], parts.database).key


@pytest.fixture
def session(client: Client, key: str) -> Client:
    """A client that has logged in."""
    assert log_in(client, key).status_code == 303
    return client


def log_in(client: Client, key: str, headers: dict[str, str] | None = None, **form: str) -> httpx.Response:
    return client.post("/admin/login", data={"key": key} | form, headers=headers, follow_redirects=False)


def csrf_token(client: Client) -> str:
    return csrf_in(client.get("/admin/keys").text)


def csrf_in(page: str) -> str:
    found = re.search(r'<meta name="csrf-token" content="([^"]*)"', page)
    assert found is not None
    return found[1]


class TestLogin:
    def test_a_key_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(self, client: Client, key: str):
        response = log_in(client, key)

        cookie = response.headers["set-cookie"].lower()
        assert response.headers["location"] == "/admin"
        assert all(flag in cookie for flag in ("httponly", "samesite=strict", "path=/", f"max-age={12 * 3600}"))
        assert "secure" not in cookie
        assert key.split("_")[2] not in cookie

    def test_behind_tls_the_cookie_is_secure(self, client: Client, key: str):
        response = client.post(
            "/admin/login", data={"key": key}, headers={"origin": "https://127.0.0.1"}, follow_redirects=False
        )

        cookie = response.headers["set-cookie"]
        assert cookie.startswith("__Host-ragkv_session=")
        assert all(flag in cookie.lower() for flag in ("secure", "httponly", "samesite=strict", "path=/"))

    def test_with_an_https_origin_another_site_of_the_domain_cannot_set_the_session(
        self, parts: Parts, key: str, redis_server: EmbeddedRedis
    ):
        """Login CSRF: a cookie without the prefix can come from any host of the domain."""
        parts.settings = msgspec.structs.replace(parts.settings, public_url="https://rag.example.com")
        with client_of(parts) as client:
            token = log_in(client, key).headers["set-cookie"].partition("=")[2].partition(";")[0]
            client.cookies.clear()

            for name, status in ((COOKIE, 401), (HTTPS_COOKIE, 200)):
                headers = {"cookie": f"{name}={token}"}
                assert client.get("/v1/documents", headers=headers).status_code == status
            gone = client.post("/admin/logout", headers=headers | {"x-csrf-token": csrf_of(token, "a key")})
        assert [cookie.partition("=")[0] for cookie in gone.headers.get_list("set-cookie")] == [HTTPS_COOKIE, COOKIE]

    def test_a_page_whose_browser_would_drop_the_sessions_cookie_says_where_to_log_in(
        self, parts: Parts, key: str, redis_server: EmbeddedRedis
    ):
        """Otherwise a right key leads back to the login, which gives no reason."""
        parts.settings = msgspec.structs.replace(parts.settings, public_url="https://rag.example.com/")
        with client_of(parts) as client:
            refused, accepted, local = (
                log_in(client, key, headers={"origin": origin, "host": origin.partition("://")[2]})
                for origin in ("http://10.0.0.5:8000", "https://rag.example.com", "http://localhost:8000")
            )

        assert refused.status_code == 422
        assert "log in at https://rag.example.com/admin/login" in refused.text
        assert "set-cookie" not in refused.headers
        assert (accepted.status_code, local.status_code) == (303, 303)

    def test_the_session_opens_pages_and_the_api(self, session: Client):
        for page in PAGES:
            assert session.get(page).status_code == 200
        assert session.get("/v1/documents").status_code == 200

    def test_redis_does_not_know_the_token(self, session: Client, parts: Parts):
        token = session.cookies[COOKIE]
        kept = [(name, parts.redis.get(name), parts.redis.ttl(name)) for name in parts.redis.keys("ragkv:session:*")]

        assert len(kept) == 1
        assert token not in repr(kept)
        assert 0 < kept[0][2] <= 12 * 3600

    def test_a_wrong_key_is_refused_on_the_page(self, client: Client, key: str, subtests: pytest.Subtests):
        for wrong in ["", "nonsense", "rk_0123456789abcdef_" + "0" * 64, "é" * 1000]:
            with subtests.test(wrong=wrong[:20]):
                response = log_in(client, wrong)

                assert response.status_code == 401
                assert "unknown API key" in response.text
                assert "set-cookie" not in response.headers

    def test_a_form_that_no_login_needs_is_refused(self, client: Client):
        form = {"content-type": "application/x-www-form-urlencoded"}

        assert client.post("/admin/login", content="a&" * 8193, headers=form).status_code == 413
        assert client.post("/admin/login", content="a&" * 8192, headers=form).status_code == 401

    def test_a_key_without_the_scope_admin_is_refused(self, client: Client, parts: Parts, key: str):
        narrow = issue_key(parts.default_collection.tenant_id, "x", ["write"], parts.database).key

        assert log_in(client, narrow).status_code == 403
        for page in PAGES:
            assert_problem(client.get(page, headers={"authorization": f"Bearer {narrow}"}), 403, "admin")

    def test_an_address_may_send_a_few_wrong_keys_a_minute(self, client: Client, key: str):
        for _ in range(LOGINS_PER_MINUTE):
            assert log_in(client, "wrong").status_code == 401

        refused = log_in(client, "wrong")
        assert refused.status_code == 429
        assert "wait" in refused.text
        assert 1 <= int(refused.headers["retry-after"]) <= 60 / LOGINS_PER_MINUTE

    def test_a_right_key_passes_whatever_came_before_it(self, client: Client, key: str):
        for _ in range(LOGINS_PER_MINUTE + 1):
            log_in(client, "wrong")

        assert [log_in(client, key).status_code for _ in range(LOGINS_PER_MINUTE + 1)] == [303] * (
            LOGINS_PER_MINUTE + 1
        )

    def test_a_login_counts_as_a_request_of_its_key(self, parts: Parts, key: str, redis_server: EmbeddedRedis):
        narrow = issue_key(parts.default_collection.tenant_id, "x", ["read"], parts.database).key
        parts.settings = msgspec.structs.replace(parts.settings, requests_per_minute=2)
        with client_of(parts) as client:
            assert [log_in(client, key).status_code for _ in range(3)] == [303, 303, 429]
            assert [log_in(client, narrow).status_code for _ in range(3)] == [403, 403, 429]
            assert "RAGKV_REQUESTS_PER_MINUTE" in log_in(client, key).text

    def test_without_a_session_people_are_led_to_the_login_and_programs_are_told(self, client: Client, key: str):
        page = client.get("/admin/jobs?status=failed", headers=HTML, follow_redirects=False)

        assert page.headers["location"] == "/admin/login?next=%2Fadmin%2Fjobs%3Fstatus%3Dfailed"
        assert_problem(client.get("/admin/jobs"), 401)

    def test_login_leads_nowhere_but_into_the_dashboard(self, client: Client, key: str, subtests: pytest.Subtests):
        for outside in [
            "https://elsewhere.example",
            "//elsewhere.example",
            "/admin\\@x",
            "/adminx",
            "/v1",
            "javascript:1",
            "",
        ]:
            with subtests.test(outside=outside):
                assert log_in(client, key, next=outside).headers["location"] == "/admin"
        assert log_in(client, key, next="/admin/jobs?status=failed").headers["location"] == "/admin/jobs?status=failed"
        asked = f"/admin/playground?question={'x' * 4000}"
        assert log_in(client, key, next=asked).headers["location"] == "/admin/playground"


class TestEnd:
    def test_a_host_that_is_none_is_no_error_of_ours(self, client: Client, key: str):
        for path, status in (("/admin/login", 200), ("/admin", 302), ("/v1/keys", 401)):
            asked = client.get(path, headers={"host": "x:99999", **HTML}, follow_redirects=False)
            assert asked.status_code == status, path

    def test_logging_out_ends_the_session_here_not_only_in_the_browser(self, session: Client):
        token = session.cookies[COOKIE]
        assert session.post("/admin/logout", headers={"x-csrf-token": csrf_token(session)}).status_code == 200

        assert COOKIE not in session.cookies
        session.cookies.set(COOKIE, token)
        assert_problem(session.get("/v1/documents"), 401)

    def test_revoking_the_key_ends_its_sessions(self, session: Client, parts: Parts, key: str):
        revoke_key(key.split("_")[1], parts.database)

        assert_problem(session.get("/v1/documents"), 401, "revoked")

    def test_a_session_that_redis_forgot_has_ended(self, session: Client, parts: Parts):
        parts.redis.delete(*parts.redis.keys("ragkv:session:*"))

        assert_problem(session.get("/v1/documents"), 401)

    def test_a_made_up_cookie_is_no_session(self, client: Client, key: str, subtests: pytest.Subtests):
        for token in ["", "x", "0" * 64, "é" * 64]:
            with subtests.test(token=token[:4]):
                header = f"{COOKIE}={token}".encode()

                assert_problem(client.get("/v1/documents", headers={b"cookie": header}), 401)

    def test_a_key_in_the_header_goes_before_the_session(self, session: Client, parts: Parts):
        other = issue_key_by_name("other", "x", ["read"], parts.database).key
        upload(session, headers={"x-csrf-token": csrf_token(session)})

        assert session.get("/v1/documents", headers={"authorization": f"Bearer {other}"}).json()["items"] == []


class TestForgery:
    def test_a_proxys_password_beside_the_session_is_not_ours(self, session: Client, key: str):
        basic = {"authorization": "Basic b3BlbjpzZXNhbWU="}

        assert session.get("/admin/keys", headers=basic, follow_redirects=False).status_code == 200
        assert session.post("/v1/collections", json={"name": "a"}, headers=basic).status_code == 403, "no token"
        session.cookies.clear()
        assert_problem(session.get("/v1/keys", headers=basic), 401, "Bearer")

    def test_what_changes_something_needs_the_sessions_token(self, session: Client):
        assert_problem(upload(session), 403, "X-CSRF-Token")
        assert_problem(upload(session, headers={"x-csrf-token": "0" * 64}), 403, "X-CSRF-Token")
        assert upload(session, headers={"x-csrf-token": csrf_token(session)}).status_code == 202

    def test_the_token_of_another_session_is_wrong(self, session: Client, key: str):
        token = csrf_token(session)
        log_in(session, key)

        assert_problem(upload(session, headers={"x-csrf-token": token}), 403)

    def test_another_sites_page_cannot_use_the_session(self, session: Client, subtests: pytest.Subtests):
        for sent in [
            {"origin": "https://elsewhere.example"},
            {"origin": "http://127.0.0.1:3000"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ]:
            with subtests.test(sent=sent):
                headers = {"x-csrf-token": csrf_token(session)} | sent

                assert_problem(upload(session, headers=headers), 403)

    @pytest.mark.parametrize("sent", [{"origin": HERE}, {"sec-fetch-site": "same-origin"}])
    def test_the_dashboards_own_page_can(self, session: Client, sent: dict[str, str]):
        assert upload(session, headers={"x-csrf-token": csrf_token(session)} | sent).status_code == 202

    def test_another_site_cannot_log_somebody_in(self, client: Client, key: str):
        response = client.post(
            "/admin/login", data={"key": key}, headers={"origin": "https://elsewhere.example"}, follow_redirects=False
        )

        assert response.status_code == 403
        assert "set-cookie" not in response.headers

    def test_while_the_service_is_open_another_port_cannot_use_the_dashboard(self, client: Client):
        assert_problem(client.post("/admin/logout", headers={"origin": "http://127.0.0.1:3000"}), 403)


class TestPages:
    def test_without_keys_nobody_logs_in(self, client: Client):
        assert "The service is open" in client.get("/admin/keys").text
        assert client.get("/admin/login", follow_redirects=False).headers["location"] == "/admin"

    def test_every_response_carries_the_headers(self, client: Client, key: str, subtests: pytest.Subtests):
        for path in [*PAGES, "/admin/login", "/admin/nowhere", "/admin/static/admin.css", "/admin/static/no.js"]:
            with subtests.test(path):
                for headers in ({}, HTML, {"authorization": f"Bearer {key}"}):
                    response = client.get(path, headers=headers, follow_redirects=False)
                    assert {name: response.headers[name] for name in HEADERS} == HEADERS
                    assert response.headers["cache-control"] == ("no-cache" if path.endswith(".css") else "no-store")

    def test_a_browser_that_has_a_file_gets_it_no_second_time(self, client: Client):
        first = client.get("/admin/static/admin.css")
        again = client.get("/admin/static/admin.css", headers={"if-none-match": first.headers["etag"]})

        assert (first.status_code, again.status_code, again.content) == (200, 304, b"")

    def test_nothing_but_its_files_is_served(self, client: Client, subtests: pytest.Subtests):
        for name in ["..%2fshell.py", "%2e%2e%2fshell.py", "shell.py", "x" * 5000, "%00"]:
            with subtests.test(name[:20]):
                assert client.get(f"/admin/static/{name}").status_code == 404

    def test_no_page_has_anything_inline_or_from_elsewhere(self, client: Client):
        for path in PAGES:
            html = client.get(path).text
            assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", html), path
            assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", html), path

    def test_what_is_not_there_is_a_page_that_says_so(self, client: Client):
        response = client.get(f"/admin/documents/{'0' * 32}", headers=HTML)

        assert (response.status_code, response.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "there is no document" in response.text

    def test_filters_that_make_no_sense_are_left_out_and_cursors_refused(self, client: Client):
        assert client.get("/admin/jobs?status=nonsense").status_code == 200
        assert client.get("/admin/collections/default?status=nonsense").status_code == 200
        for page in ("jobs", "collections", "collections/default", "keys"):
            assert_problem(client.get(f"/admin/{page}?cursor=nonsense"), 422, "cursor")

    def test_of_many_keys_and_collections_a_page_shows_some(self, client: Client, parts: Parts):
        """A tenant may have a collection and a key for each of its users."""
        for number in range(60):
            client.post("/v1/collections", json={"name": f"user {number}"})
        kv, chosen = client.get("/admin/kv").text, client.get("/admin/kv", params={"collection": "user 9"}).text
        assert kv.count("data-collection=") == 50 and "Another of the 61 collections" in kv
        assert 'aria-current="true">user 9<' in chosen
        for number in range(60):
            issue_key(parts.default_collection.tenant_id, f"key {number}", ["admin"], parts.database)
        client.headers.update({"x-api-key": issue_key_by_name("default", "last", ["admin"], parts.database).key})

        first = client.get("/admin/keys").text
        older = re.search(r"/admin/keys\?cursor=[^\"]+", first)
        assert older is not None
        second = client.get(older[0]).text
        shown = [re.findall(r'<tr id="key-(\w+)"', one) for one in (first, second)]
        assert [len(ids) for ids in shown] == [50, 11] and len({*shown[0], *shown[1]}) == 61
        assert "Older" not in second and "Newest" in second

    def test_only_the_default_tenant_sees_where_the_service_keeps_its_things(
        self, client: Client, parts: Parts, key: str
    ):
        other = issue_key_by_name("other", "x", ["admin"], parts.database).key
        mine, theirs = (
            client.get("/admin/settings", headers={"authorization": f"Bearer {one}"}).text for one in (key, other)
        )

        assert str(parts.settings.data_dir) in mine
        assert str(parts.settings.data_dir) not in theirs
        assert "RAGKV_MAX_UPLOAD_BYTES" in theirs

    def test_login_and_files_are_all_that_is_open_to_everybody(self, parts: Parts):
        public = {
            route.path
            for route in create_app(parts).routes
            for handler, _ in getattr(route, "route_handler_map", {}).values()
            if route.path.startswith("/admin") and handler.opt.get(PUBLIC)
        }

        assert public == {
            "/admin/login",
            "/admin/sign-in",
            "/admin/sign-in/callback",
            "/admin/static/{asset:str}",
        }
