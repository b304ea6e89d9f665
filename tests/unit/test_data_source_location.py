"""Where the location of a data source leads: never out of what the operator allows."""

from functools import partial

import pytest
from obstore.store import from_url

from ragkv.errors import Forbidden, Rejected
from ragkv.service.data_sources.location import allowed_locations, location_of, root_of

CONFIG = {
    "s3": {},
    "gs": {"skip_signature": "true"},
    "az": {"account_name": "account", "access_key": "a2V5"},
}  # fmt: skip


def test_a_name_that_a_parser_of_urls_reads_as_the_folder_above_is_refused(subtests: pytest.Subtests):
    refusal = partial(pytest.raises, Rejected, match=r"must not contain \. or \.\.")
    for scheme in CONFIG:
        for name in ["%2e%2e", ".%2E", "%2E", ".. ", " .", "%20..", ".."]:
            with subtests.test(scheme=scheme, name=name), refusal():
                location_of(f"{scheme}://bucket/red/{name}/blue")


def test_a_prefix_is_opened_as_it_is_written(subtests: pytest.Subtests):
    """The store's own parser of URLs neither decodes a name nor leaves the prefix that was compared with what is
    allowed."""
    for scheme, config in CONFIG.items():
        for name in [
            "%252e%252e",
            "..%00",
            "a b",
            "a%20b",
            "é",
            "...",
            "%2f%2e%2e",
            "..;",
            "a+b&c=d",
            "\\..",
            "~",
            "{x}",
        ]:
            with subtests.test(scheme=scheme, name=name):
                location = location_of(f"{scheme}://bucket/red/{name}/reports")
                assert root_of(location, "red", allowed_locations(f"red={scheme}://bucket/red"))

                store = from_url(location.url, config=config)

                assert store.prefix == f"red/{name}/reports"


@pytest.mark.parametrize("name", ["%00", "%0a", "%1b[2J"])
def test_a_folder_with_an_encoded_control_character_is_refused(name: str):
    with pytest.raises(Rejected, match="printable characters"):
        location_of(f"file:///srv/a{name}b")


def test_another_tenants_prefix_is_forbidden():
    with pytest.raises(Forbidden, match="ask its operator"):
        root_of(location_of("s3://bucket/blue"), "red", allowed_locations("red=s3://bucket/red,blue=s3://bucket/blue"))
