"""Which settings a kept answer depends on."""

import msgspec

from ragkv.service.answer_cache.cache import WITHOUT_INFLUENCE, settings_digest
from ragkv.settings import Settings

ALL = frozenset(Settings.__struct_fields__)
INFLUENCE = frozenset({
    "answer_start", "block_size", "choosing_layers", "chunk_tokens", "dtype", "hops", "instructions", "kv_compress",
    "kv_format", "kv_write", "max_answer_tokens", "max_model_len", "passage_order", "question_format", "recompute_max_tokens",
    "recompute_policy", "recompute_ratio", "reranker", "reranker_revision", "sparse_ratio", "top_k",
})  # fmt: skip
"""Those that surely word or choose an answer: listed here as well, as the code trusts its own list."""


def changed(name: str) -> Settings:
    return msgspec.structs.replace(Settings(), **{name: "another"})


def test_only_settings_are_listed_as_without_influence():
    assert WITHOUT_INFLUENCE <= ALL


def test_every_setting_that_words_or_chooses_an_answer_changes_the_digest():
    assert {name for name in INFLUENCE if settings_digest(changed(name)) == settings_digest(Settings())} == set()


def test_so_does_one_that_is_listed_nowhere():
    digests = {settings_digest(changed(name)) for name in ALL - WITHOUT_INFLUENCE}
    assert len(digests - {settings_digest(Settings())}) == len(ALL - WITHOUT_INFLUENCE)


def test_settings_without_influence_change_nothing():
    assert {settings_digest(changed(name)) for name in WITHOUT_INFLUENCE} == {settings_digest(Settings())}


def test_no_secret_is_in_the_digest():
    """Evaluations show it."""
    assert {name for name in ALL if name.endswith(("_key", "_secret"))} <= WITHOUT_INFLUENCE
