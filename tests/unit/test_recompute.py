"""The share of a context that is recomputed: asked for, set, or by default, which depends on who wrote the KV."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ragkv.answer.question import Question
from ragkv.answer.recompute import DEFAULT_RATIO, Recomputing
from ragkv.kv.format import KVFormat
from ragkv.kv.key import KeyMaker, Making
from ragkv.kv.rule import Compression, CompressionMethod
from ragkv.kv.store import KVStore
from ragkv.prefill.writer import EMBEDDED_WRITER, SUFFICIENT_KL, suffices, write_card
from ragkv.settings import Settings
from ragkv.stitch.located import locate
from tests.support.made_kv import chunk_kv
from tests.support.made_writers import GOOD, card
from tests.unit.test_compressed_kv import PASSAGES, some_of

ASKED = Question("t", "c", "Who?")
KEYS = KeyMaker(b"s", "m", "bfloat16", (1, 2), writer="w", writer_before="")


def ratio(
    question: Question = ASKED, settings: Settings | None = None, *, suffices: bool = True, written: bool = True
) -> float:
    return Recomputing(settings or Settings(), suffices).of(question).for_kv(written=written).ratio


class TestRatio:
    def test_nothing_is_recomputed_of_what_a_sufficient_writer_made(self):
        assert ratio() == 0
        assert Recomputing(Settings(), True).default(written=True).budget(4000) == 0

    def test_a_tenth_is_of_other_kv_and_320_tokens_at_most(self):
        assert ratio(written=False) == ratio(suffices=False) == DEFAULT_RATIO
        assert Recomputing(Settings(), True).default(written=False).budget(4000) == 320

    def test_a_policy_that_is_named_is_to_be_seen(self):
        assert ratio(replace(ASKED, policy="deviation")) == DEFAULT_RATIO

    def test_what_is_set_holds_for_any_kv(self):
        set_to = Settings(recompute_ratio=0.2)
        assert ratio(settings=set_to) == ratio(settings=set_to, written=False) == 0.2
        assert ratio(settings=Settings(recompute_ratio=0.0), written=False) == 0

    def test_what_is_asked_for_holds_above_all_however_long_the_context(self):
        asked = replace(ASKED, recompute_ratio=0.5)
        assert ratio(asked, Settings(recompute_ratio=0.2)) == 0.5
        assert Recomputing(Settings(), True).of(asked).for_kv(written=True).budget(4000) == 2000


class TestWhoWrote:
    """Whether the writer in use made all KV that is there."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> KVStore:
        store = KVStore(tmp_path)
        for passage in PASSAGES:
            store.put(KEYS.chunk(passage.chunk.token_ids), chunk_kv())
        return store

    def replaced(self, store: KVStore, keys: KeyMaker, making: Making) -> None:
        """The first chunk's KV, as made otherwise."""
        ids = PASSAGES[0].chunk.token_ids
        store.delete([KEYS.chunk(ids)])
        store.put(keys.chunk(ids, making), chunk_kv() if making.compression is None else some_of())

    def test_all_of_it(self, store: KVStore):
        assert locate(PASSAGES, KEYS, store).is_written

    def test_what_is_missing_is_computed_anyhow(self, store: KVStore):
        store.delete([KEYS.chunk(PASSAGES[0].chunk.token_ids)])

        assert locate(PASSAGES, KEYS, store).is_written

    def test_the_format_does_not_matter(self, store: KVStore):
        self.replaced(store, KEYS, Making("w", KVFormat.INT8))

        assert locate(PASSAGES, KEYS, store).is_written

    @pytest.mark.parametrize("before", ["", "another"])
    def test_not_while_kv_of_the_writer_before_still_serves(self, store: KVStore, before: str):
        keys = replace(KEYS, writer_before=before)
        self.replaced(store, keys, Making(before))

        assert not locate(PASSAGES, keys, store).is_written

    def test_not_where_tokens_are_left_out(self, store: KVStore):
        keys = replace(KEYS, compression=Compression(CompressionMethod.LAQ, 0.5))
        self.replaced(store, keys, Making("w", compression=keys.compression))

        assert not locate(PASSAGES, keys, store).is_written

    def test_not_by_the_plain_model(self, tmp_path: Path):
        assert not locate(PASSAGES, replace(KEYS, writer="", writer_before=None), KVStore(tmp_path)).is_written


class TestSufficientWriter:
    def test_the_one_that_comes_with_ragkv(self):
        assert suffices(EMBEDDED_WRITER)

    @pytest.mark.parametrize("kl", [SUFFICIENT_KL, 0.2])
    def test_not_one_that_left_more(self, tmp_path: Path, kl: float):
        write_card(tmp_path, card(msgspec.structs.replace(GOOD, kl=kl), "m"))

        assert not suffices(tmp_path)

    def test_not_one_that_was_never_evaluated(self, tmp_path: Path):
        write_card(tmp_path, card(None, "m"))

        assert not suffices(tmp_path)

    def test_not_a_folder_without_a_card_that_can_be_read(self, tmp_path: Path):
        assert not suffices(tmp_path)
        (tmp_path / "card.json").write_bytes(b"{")
        assert not suffices(tmp_path)
