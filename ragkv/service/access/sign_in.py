"""Sign-in by OpenID Connect as configured: the provider, and the rights that its groups grant here."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ragkv.errors import Forbidden, Rejected, Unauthorised
from ragkv.service.access.sessions import SignedIn
from ragkv.service.base.caller import KEY_SCOPES, Caller, KeyScope, TenantName
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import tenant_ids_by_name
from ragkv.settings import PREFIX, Settings
from ragkv.text import clean_name
from ragkv.urls import is_loopback, is_private_transport

SESSION_S = range(300, 12 * 3600 + 1)
"""Allowed lifetimes of a person's session."""
KEY_DAYS = range(1, 3650 + 1)
"""Allowed longest lifetimes of API keys that people create."""
NEEDED: KeyScope = "admin"
"""The scope that the dashboard's pages need."""
_SYNTAX = "RAGKV_OIDC_GROUPS must be a list of GROUP=TENANT:SCOPE, separated by semicolons, like `rag-admins=default:admin; /team/red=red:admin`"


@dataclass(frozen=True, slots=True)
class Grant:
    """The members of the provider's group have the scope in the tenant."""

    group: str
    tenant: str
    scope: KeyScope


@dataclass(frozen=True, slots=True)
class SignIn:
    """The provider and what its groups may do. `public_url`: the origin of the dashboard as browsers see it; None on
    this machine alone."""

    issuer: str
    client_id: str
    client_secret: str | None = field(repr=False)
    scopes: str
    groups_claim: str
    grants: tuple[Grant, ...]
    session_s: int
    public_url: str | None

    def __post_init__(self) -> None:
        """Check the configuration. Raises Rejected for what no sign-in could work with."""
        _check_url("RAGKV_OIDC_ISSUER", self.issuer)
        if self.public_url is not None:
            _check_url("RAGKV_PUBLIC_URL", self.public_url)
        if "openid" not in self.scopes.split():
            raise Rejected("RAGKV_OIDC_SCOPES must contain the scope openid")
        if self.session_s not in SESSION_S:
            raise Rejected(f"RAGKV_OIDC_SESSION_S must be between {SESSION_S[0]} and {SESSION_S[-1]}")
        if not any(grant.scope == "admin" for grant in self.grants):
            raise Rejected("RAGKV_OIDC_GROUPS gives no group the scope admin, which the dashboard needs")

    @property
    def provider(self) -> str:
        """The provider's host, as people know it."""
        return urlsplit(self.issuer).netloc

    @property
    def summary(self) -> str:
        """One line for people who run the service."""
        tenants = ", ".join(dict.fromkeys(grant.tenant for grant in self.grants))
        groups = len({grant.group for grant in self.grants})
        return f"by API key, and by OpenID Connect at {self.provider}: {groups} group(s), for tenants {tenants}"

    @property
    def on_loopback(self) -> bool:
        """Whether the provider runs on this machine, where it may speak plain HTTP."""
        return is_loopback(urlsplit(self.issuer).hostname or "")


def sign_in_of(settings: Settings) -> SignIn | None:
    """Sign-in as the settings configure it; None without a provider. Raises Rejected for what it could not work
    with."""
    if settings.oidc_key_days not in KEY_DAYS:
        raise Rejected(f"{PREFIX}OIDC_KEY_DAYS must be between {KEY_DAYS[0]} and {KEY_DAYS[-1]}")
    if settings.oidc_issuer is None:
        for name in ("oidc_client_id", "oidc_client_secret", "oidc_groups"):
            if getattr(settings, name):
                raise Rejected(f"{PREFIX}{name.upper()} has no effect without {PREFIX}OIDC_ISSUER: set both")
        return None
    if not settings.oidc_client_id:
        raise Rejected(f"{PREFIX}OIDC_ISSUER needs {PREFIX}OIDC_CLIENT_ID, the name of this service at the provider")
    return SignIn(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret,
        scopes=settings.oidc_scopes,
        groups_claim=settings.oidc_groups_claim,
        grants=read_grants(settings.oidc_groups or ""),
        session_s=settings.oidc_session_s,
        public_url=None if settings.public_url is None else settings.public_url.rstrip("/"),
    )


def read_grants(text: str) -> tuple[Grant, ...]:
    """The grants of `GROUP=TENANT:SCOPE` entries between semicolons or on lines of their own, in their order.

    A group's name may hold anything but those two. Raises Rejected, naming the entry.
    """
    grants = []
    for entry in filter(None, map(str.strip, re.split(r"[;\n]", text))):
        group, equals, right = map(str.strip, entry.rpartition("="))
        tenant, colon, scope = map(str.strip, right.rpartition(":"))
        if not (equals and colon and group and tenant):
            raise Rejected(f"{_SYNTAX}; this is not: {entry[:80]!r}")
        key_scope = next((candidate for candidate in KEY_SCOPES if candidate == scope), None)
        if key_scope is None:
            scopes = ", ".join(KEY_SCOPES)
            raise Rejected(f"RAGKV_OIDC_GROUPS: {scope[:80]!r} in {entry[:80]!r} is not a scope: use {scopes}")
        grants.append(Grant(group, clean_name(tenant), key_scope))
    if not grants:
        raise Rejected(_SYNTAX)
    return tuple(grants)


class Rights:
    """The grants of the settings, in their order. `tenants`: ids by name.

    Asked at every request: grants that the settings no longer have count for no session, however old.
    """

    def __init__(self, grants: Iterable[Grant], tenants: Mapping[str, str]) -> None:
        self._grants = tuple(grants)
        self._tenants = tenants

    @classmethod
    def of(cls, grants: Iterable[Grant], database: Database) -> "Rights":
        """Rights by these grants, their tenants looked up by name. Raises Rejected for a tenant that does not exist."""
        tenants = {name: tenant_id for tenant_id, name in database.rows(tenant_ids_by_name())}
        grants = tuple(grants)
        for grant in grants:
            if grant.tenant not in tenants:
                near = difflib.get_close_matches(grant.tenant, tenants, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise Rejected(
                    f"RAGKV_OIDC_GROUPS: there is no tenant {grant.tenant!r}: {hint}"
                    f"`ragkv keys create --tenant {grant.tenant} --name first` creates it"
                )
        return cls(grants, tenants)

    def groups_that_count(self, groups: Iterable[str]) -> tuple[str, ...]:
        """The groups that appear in a grant."""
        named = {grant.group for grant in self._grants}
        return tuple(dict.fromkeys(group for group in groups if group in named))

    def tenants_of(self, groups: Iterable[str]) -> tuple[TenantName, ...]:
        """The tenants whose dashboard members of the groups may use, in the order of the grants. Raises Forbidden."""
        scopes = self._scopes(groups)
        if open_to := _with_dashboard(scopes):
            return open_to
        if scopes:
            lesser = ", ".join(f"{scope} in {tenant.name}" for tenant, scope in scopes.items())
            raise Forbidden(f"your groups give you the scope {lesser}; the dashboard needs the scope {NEEDED}")
        raise Forbidden("none of your groups has access here: ask the administrator to add you to one that does")

    def caller_of(self, signed_in: SignedIn) -> Caller:
        """The caller that a session stands for. Raises Unauthorised once the session's groups give nothing in its
        tenant."""
        scopes = self._scopes(signed_in.groups)
        for tenant, scope in scopes.items():
            if tenant.id == signed_in.tenant_id:
                return Caller(tenant.id, None, frozenset({scope}), signed_in.person, _with_dashboard(scopes))
        raise Unauthorised("your groups no longer give access to this tenant: sign in again")

    def _scopes(self, groups: Iterable[str]) -> dict[TenantName, KeyScope]:
        """The widest scope in each tenant."""
        mine, scopes = frozenset(groups), dict[TenantName, KeyScope]()
        for grant in self._grants:
            if grant.group in mine:
                tenant = TenantName(self._tenants[grant.tenant], grant.tenant)
                scopes[tenant] = max(scopes.get(tenant, grant.scope), grant.scope, key=KEY_SCOPES.index)
        return scopes


def _check_url(name: str, url: str) -> None:
    """Check a URL. Raises Rejected for a URL that is not https, or http on this machine."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for one that is no number
    except ValueError:
        raise Rejected(f"{name} is not a URL: {url[:80]!r}") from None
    if not is_private_transport(url) or parts.username is not None or parts.query or parts.fragment:
        raise Rejected(f"{name} must begin with https:// (http:// only on this machine) and name a host: {url[:80]!r}")


def _with_dashboard(scopes: Mapping[TenantName, KeyScope]) -> tuple[TenantName, ...]:
    return tuple(tenant for tenant, scope in scopes.items() if scope == NEEDED)
