"""Tenants' shares of the space for KV: which tenant has to give some up, and how much."""

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Excess(NamedTuple):
    """Bytes that a tenant is to give up, beyond its quota or for the budget of all."""

    tenant_id: str
    num_bytes: int
    reason: Literal["quota", "budget"]


def excesses(kept: Mapping[str, int], quota: int, limit: int) -> list[Excess]:
    """Tenants that keep too much, the first to be asked first; none if all is within bounds. 0 is no bound.

    A tenant beyond its own quota gives up the rest. Beyond the limit of all together the tenant that keeps most gives
    up, at most until it keeps no more than the next: a tenant within its fair share is asked only after the larger
    ones.
    """
    beyond = [Excess(tenant_id, size - quota, "quota") for tenant_id, size in kept.items() if quota and size > quota]
    too_much = sum(kept.values()) - limit
    if beyond or not limit or too_much <= 0:
        return beyond
    by_size = sorted(kept, key=lambda tenant_id: (-kept[tenant_id], tenant_id))
    following = [kept[tenant_id] for tenant_id in by_size[1:]] + [0]
    steps = zip(by_size, following, strict=True)
    return [Excess(one, min(too_much, max(kept[one] - smaller, 1)), "budget") for one, smaller in steps if kept[one]]


def fair_share(tenants: int, quota: int, limit: int) -> int:
    """Bytes that each of `tenants` tenants may pin; 0 is no bound."""
    share = limit // max(tenants, 1)
    return min(bound for bound in (quota, share) if bound) if quota or share else 0
