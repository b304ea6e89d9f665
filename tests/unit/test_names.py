"""Names that people give, and scopes of keys."""

import pytest

from ragkv.errors import Rejected
from ragkv.service.base.caller import KEY_SCOPES, Caller
from ragkv.text import clean_name
from ragkv.urls import is_loopback


def test_one_name_has_one_spelling():
    assert clean_name("  Cafe\u0301 papers ") == "Caf\u00e9 papers"


@pytest.mark.parametrize("name", ["", " ", "a" * 201, "a\x00b", "a\nb", "\u202eabc", "0123456789abcdef" * 2])
def test_what_cannot_be_shown_or_reads_like_an_id_is_no_name(name: str):
    with pytest.raises(Rejected):
        clean_name(name)


def test_each_scope_includes_those_before_it():
    allowed = {
        scope: [other for other in KEY_SCOPES if Caller("t", "k", frozenset([scope])).may(other)]
        for scope in KEY_SCOPES
    }

    assert allowed == {
        "metrics": ["metrics"],
        "read": ["metrics", "read"],
        "write": ["metrics", "read", "write"],
        "admin": ["metrics", "read", "write", "admin"],
    }


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.0.0.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_only_loopback_addresses_are_this_machines_own(host: str, local: bool):
    assert is_loopback(host) == local
