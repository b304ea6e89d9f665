"""Sign-in: what is read from its settings, what is refused at start, and the rights of those who signed in."""

from itertools import permutations
from pathlib import Path

import pytest

from api.admin.administration import shown_settings
from ragkv.errors import Forbidden, Rejected, Throttled, Unauthorised
from ragkv.service.access.gate import Gate
from ragkv.service.access.rate import RateLimit
from ragkv.service.access.sessions import SignedIn
from ragkv.service.access.sign_in import Grant, Rights, read_grants, sign_in_of
from ragkv.service.base.caller import KEY_SCOPES, Person, TenantName
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.redis import connect
from ragkv.settings import Settings
from ragkv.urls import is_private_transport

RIGHT = {
    "oidc_issuer": "https://login.example.com/realms/x",
    "oidc_client_id": "ragkv",
    "oidc_client_secret": "s3cret",
    "oidc_groups": "admins=default:admin",
}


def test_groups_may_be_named_as_directories_name_them():
    text = "admins=default:admin; /team/red = red : write\nCN=ops,OU=it,DC=example=two words:read;\n"

    assert read_grants(text) == (
        Grant("admins", "default", "admin"),
        Grant("/team/red", "red", "write"),
        Grant("CN=ops,OU=it,DC=example", "two words", "read"),
    )


def test_groups_that_cannot_be_read_are_refused_with_the_entry(subtests: pytest.Subtests):
    for groups, reason in [
        ("", "GROUP=TENANT:SCOPE"),
        (" ; ;", "GROUP=TENANT:SCOPE"),
        ("admins", "this is not: 'admins'"),
        ("admins=default", "this is not: 'admins=default'"),
        ("=default:admin", "this is not"),
        ("admins=:admin", "this is not"),
        ("admins=default:root", "'root' in 'admins=default:root' is not a scope"),
        ("admins=default:admin; x", "this is not: 'x'"),
        ("admins=" + "0" * 32 + ":admin", "look like an id"),
        ("admins=default:read; others=default:write", "gives no group the scope admin"),
    ]:
        with subtests.test(groups=groups), pytest.raises(Rejected, match=reason):
            sign_in_of(Settings.of(RIGHT | {"oidc_groups": groups}))


def test_settings_that_no_sign_in_could_work_with_are_refused(subtests: pytest.Subtests):
    for given, reason in [
        ({"oidc_issuer": "http://login.example.com"}, "RAGKV_OIDC_ISSUER must begin with https"),
        ({"oidc_issuer": "login.example.com"}, "RAGKV_OIDC_ISSUER must begin with https"),
        ({"oidc_issuer": "https://"}, "RAGKV_OIDC_ISSUER must begin with https"),
        ({"oidc_issuer": "https://user:pass@login.example.com"}, "RAGKV_OIDC_ISSUER"),
        ({"oidc_issuer": "https://login.example.com?x=1"}, "RAGKV_OIDC_ISSUER"),
        ({"oidc_issuer": "https://login.example.com:port"}, "RAGKV_OIDC_ISSUER is not a URL"),
        ({"oidc_issuer": "https://[::1"}, "RAGKV_OIDC_ISSUER is not a URL"),
        ({"oidc_issuer": None}, "OIDC_CLIENT_ID has no effect without RAGKV_OIDC_ISSUER"),
        ({"oidc_client_id": None}, "needs RAGKV_OIDC_CLIENT_ID"),
        ({"oidc_scopes": "email"}, "must contain the scope openid"),
        ({"oidc_session_s": "10"}, r"must be between 300 and 43200"),
        ({"oidc_key_days": "0"}, r"OIDC_KEY_DAYS must be between 1 and 3650"),
        ({"public_url": "http://rag.example.com"}, "RAGKV_PUBLIC_URL must begin with https"),
        ({"public_url": "https://rag.example.com/rag"}, "without a path"),
    ]:
        with subtests.test(given=given), pytest.raises(Rejected, match=reason):
            sign_in_of(Settings.of(RIGHT | given))


def test_the_summary_and_the_shown_settings_hide_the_secret():
    settings = Settings.of(RIGHT | {"public_url": "https://rag.example.com/"})

    sign_in = sign_in_of(settings)
    assert sign_in is not None
    assert sign_in.public_url == "https://rag.example.com"
    assert "s3cret" not in repr(sign_in)
    assert "s3cret" not in repr(shown_settings(settings))
    assert sign_in.summary == (
        "by API key, and by OpenID Connect at login.example.com: 1 group(s), for tenants default"
    )


def test_plain_http_is_for_this_machine_alone(subtests: pytest.Subtests):
    for url, private in [
        ("https://example.com", True),
        ("http://127.0.0.1:9400/x", True),
        ("http://localhost:9400", True),
        ("http://[::1]/", True),
        ("http://example.com", False),
        ("http://localhost.example.com", False),
        ("ftp://localhost", False),
        ("https://", False),
        ("http://[", False),
    ]:
        with subtests.test(url=url):
            assert is_private_transport(url) == private


def signed_in(*groups: str, tenant: str = "default", subject: str = "ada") -> SignedIn:
    person = Person(subject=subject, name=subject, email=None)
    return SignedIn(person=person, groups=groups, tenant_id=f"id of {tenant}")


def rights_of(*grants: Grant) -> Rights:
    return Rights(grants, {grant.tenant: f"id of {grant.tenant}" for grant in grants})


GRANTS = [Grant(f"{scope}ers", "default", scope) for scope in KEY_SCOPES]


@pytest.mark.parametrize(
    "grants", list(permutations(GRANTS)), ids=lambda grants: " ".join(grant.scope for grant in grants)
)
def test_the_widest_grant_of_several_groups_in_one_tenant_wins_whatever_their_order(grants: tuple[Grant, ...]):
    rights = rights_of(*grants)
    groups = [grant.group for grant in reversed(grants)]

    assert rights.caller_of(signed_in(*groups)).scopes == {"admin"}
    assert rights.tenants_of(groups) == (TenantName("id of default", "default"),)
    lesser = [group for group in groups if group != "adminers"]
    assert rights.caller_of(signed_in(*lesser)).scopes == {"write"}
    with pytest.raises(Forbidden, match="the scope write in default"):
        rights.tenants_of(lesser)


def test_groups_without_a_grant_do_not_count():
    rights = rights_of(*GRANTS)

    assert rights.groups_that_count(["guests", "readers", "guests", "readers"]) == ("readers",)
    with pytest.raises(Forbidden, match="none of your groups"):
        rights.tenants_of(["guests"])
    with pytest.raises(Unauthorised, match="no longer"):
        rights.caller_of(signed_in("guests"))


def test_a_wide_grant_in_one_tenant_widens_no_other():
    rights = rights_of(Grant("staff", "red", "admin"), Grant("staff", "default", "read"))

    caller = rights.caller_of(signed_in("staff"))

    assert caller.scopes == {"read"}
    assert caller.tenants == rights.tenants_of(["staff"]) == (TenantName("id of red", "red"),)


def test_requests_of_all_who_signed_in_count_against_their_tenant_together(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    server = EmbeddedRedis(settings)
    server.start()
    try:
        alone, together = (RateLimit(connect(settings), most, fails_open=False) for most in (60, 2))
        gate = Gate(
            Database(settings.database),
            alone,
            "id of default",
            open_without_keys=False,
            tenant_limit=together,
            rights=rights_of(Grant("staff", "default", "admin"), Grant("staff", "red", "admin")),
        )
        for subject in ("ada", "grace"):
            gate.readmit(signed_in("staff", subject=subject))
        with pytest.raises(Throttled):
            gate.readmit(signed_in("staff", subject="hedy"))
        assert gate.readmit(signed_in("staff", tenant="red", subject="ada")).tenant_id == "id of red"
    finally:
        server.stop()
