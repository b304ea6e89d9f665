"""Rights of people who signed in: their groups at the provider grant them here, as an API key would."""

import difflib
from collections.abc import Iterable, Mapping

from ragkv.errors import Forbidden, Rejected, Unauthorised
from ragkv.service.access.sessions import SignedIn
from ragkv.service.access.sign_in import Grant
from ragkv.service.base.caller import KEY_SCOPES, Caller, KeyScope, TenantName
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import tenant_ids_by_name

NEEDED: KeyScope = "admin"
"""What the dashboard's pages need."""


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
        with database.reading() as session:
            tenants = {name: tenant_id for tenant_id, name in session.execute(tenant_ids_by_name())}
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


def _with_dashboard(scopes: Mapping[TenantName, KeyScope]) -> tuple[TenantName, ...]:
    return tuple(tenant for tenant, scope in scopes.items() if scope == NEEDED)
