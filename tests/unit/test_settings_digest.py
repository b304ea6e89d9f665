"""Which settings a kept answer depends on."""

import msgspec
import pytest

from ragkv.answer_cache.settings_digest import WITHOUT_INFLUENCE, settings_digest
from ragkv.settings import Settings

ALL = frozenset(Settings.__struct_fields__)


def changed(name: str) -> Settings:
    return msgspec.structs.replace(Settings(), **{name: "another"})


def test_only_settings_are_listed_as_without_influence():
    assert WITHOUT_INFLUENCE <= ALL


@pytest.mark.parametrize("name", sorted(ALL - WITHOUT_INFLUENCE))
def test_any_other_setting_changes_the_digest(name: str):
    assert settings_digest(changed(name)) != settings_digest(Settings())


@pytest.mark.parametrize("name", sorted(WITHOUT_INFLUENCE))
def test_a_setting_without_influence_does_not(name: str):
    assert settings_digest(changed(name)) == settings_digest(Settings())


@pytest.mark.parametrize(
    "name", ["instructions", "top_k", "recompute_policy", "reranker", "reranker_revision", "dtype"]
)
def test_what_words_or_chooses_an_answer_has_influence(name: str):
    assert name not in WITHOUT_INFLUENCE


def test_no_secret_is_in_the_digest():
    """Evaluations show it."""
    assert {name for name in ALL if name.endswith(("_key", "_secret"))} <= WITHOUT_INFLUENCE
