"""KV of some of a chunk's tokens: its names, its files, and the prompts that hold it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ragkv.answer.planner import Planner, lay_out
from ragkv.answer.prompt import Prompt
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import Generate
from ragkv.engine.wire import PARAM, plan_to_wire, planned_of
from ragkv.errors import Corrupt, Rejected
from ragkv.kv.file import PlainKV, read_kv
from ragkv.kv.format import KVFormat
from ragkv.kv.key import KeyMaker
from ragkv.kv.rule import Compression, CompressionMethod
from ragkv.kv.store import KVStore
from ragkv.span import Span, tokens_within
from ragkv.stitch.located import LocatedPassage, locate
from ragkv.stitch.plan import StitchPlan
from tests.support.made_kv import LAYOUT, TOKENS, chunk_kv, stored_kv

LAQ = Compression(CompressionMethod.LAQ, 0.5)
WHOLE = KeyMaker(b"s", "m", "bfloat16", (1, 2))
KEYS = replace(WHOLE, compression=LAQ)
CHUNKS = [Chunk(str(i), "d", i, "", "text", 0, 4, None, tuple(range(100 * i, 100 * i + TOKENS))) for i in range(3)]
PASSAGES = [Passage(chunk, 1.0, 1) for chunk in CHUNKS]
KEPT = tuple(range(1, TOKENS, 2))
NOTHING, SOME, ALL = Recompute("none", 0.0, 4), Recompute("head", 0.2, 4), Recompute("question", 1.0, 4)


def some_of(kept: tuple[int, ...] = KEPT) -> PlainKV:
    """KV of these tokens of a chunk."""
    kv = chunk_kv()
    left = len(kept)
    means = kv.mean_keys[: -(-left // 16)]
    return replace(
        kv,
        keys=kv.keys[:, :left],
        values=kv.values[:, :left],
        mean_keys=means,
        kept=torch.tensor(kept, dtype=torch.int32),
    )


@pytest.fixture
def store(tmp_path: Path) -> KVStore:
    """A store with compressed KV of every chunk."""
    store = KVStore(tmp_path)
    store.put(KEYS.prefix(), chunk_kv())
    for chunk in CHUNKS:
        store.put(KEYS.chunk(chunk.token_ids), some_of())
    return store


def laid_out(store: KVStore, recompute: Recompute = NOTHING, keys: KeyMaker = KEYS) -> tuple[LocatedPassage, ...]:
    return lay_out(locate(PASSAGES, keys, store), recompute).passages


def prompt_of(located: tuple[LocatedPassage, ...]) -> Prompt:
    ids, spans = [1, 2], []
    for passage in located:
        spans.append(Span(len(ids), len(ids) + passage.chunk.num_tokens))
        ids += passage.chunk.token_ids
    return Prompt((*ids, 7, 8), Span(0, 2), tuple(spans), Span(len(ids), len(ids) + 2))


def plan_of(store: KVStore, recompute: Recompute = NOTHING, keys: KeyMaker = KEYS) -> StitchPlan:
    located = lay_out(locate(PASSAGES, keys, store), recompute)
    plan = Planner(store).plan(prompt_of(located.passages), located, recompute, None)
    assert plan is not None
    return plan


class TestNames:
    def test_no_other_compression_and_no_kv_of_all_tokens_has_its_name(self):
        ids = CHUNKS[0].token_ids
        others = [
            WHOLE,
            *(replace(WHOLE, compression=Compression(m, k)) for m in list(CompressionMethod)[1:4] for k in (0.5, 0.3)),
        ]
        names = {keys.chunk(ids) for keys in (KEYS, *others)}

        assert len(names) == 1 + len(others)

    def test_the_prefix_is_the_same(self):
        assert KEYS.prefix() == WHOLE.prefix()

    def test_kv_of_all_tokens_serves_where_it_is_not_there_and_never_the_other_way_round(self):
        assert [making.compression for making in KEYS.makings] == [LAQ] * len(KVFormat) + [None] * len(KVFormat)
        assert {making.compression for making in WHOLE.makings} == {None}


class TestFiles:
    @pytest.mark.parametrize("kv_format", KVFormat)
    def test_it_comes_back_with_the_places_of_its_tokens(self, store: KVStore, kv_format: KVFormat):
        key = KEYS.chunk((1, 2, 3))
        store.put(key, some_of(), kv_format)

        kv = stored_kv(store, key, LAYOUT)
        assert (kv.num_tokens, tuple(kv.kept.tolist()), store.kept(key)) == (len(KEPT), KEPT, KEPT)

    def test_quantising_keeps_them(self, store: KVStore):
        key = KEYS.chunk(CHUNKS[0].token_ids)
        assert store.convert(key, "ef" * 32, KVFormat.INT8)
        assert store.kept("ef" * 32) == KEPT

    def test_a_whole_chunks_kv_names_none(self, store: KVStore):
        assert store.kept(KEYS.prefix()) == ()

    @pytest.mark.parametrize(
        "kept",
        [(3, 1, *range(4, 12)), (1, 1, *range(4, 12)), (-1, *range(9)), KEPT[:-1], ()],
        ids=["unordered", "twice", "negative", "too few", "none"],
    )
    def test_places_that_make_no_sense_are_corrupt(self, store: KVStore, kept: tuple[int, ...]):
        key = KEYS.chunk(CHUNKS[0].token_ids)
        store.put(key, replace(some_of(), kept=torch.tensor(kept, dtype=torch.int32)))

        with pytest.raises(Corrupt):
            read_kv(store.path(key), LAYOUT)

    def test_a_file_cut_anywhere_is_no_kv(self, store: KVStore):
        key = KEYS.chunk(CHUNKS[0].token_ids)
        content = store.path(key).read_bytes()
        for length in range(0, len(content), 97):
            store.path(key).write_bytes(content[:length])
            assert laid_out(store)[0].chunk == CHUNKS[0]
            assert key not in store


class TestLayout:
    def test_a_prompt_holds_the_tokens_that_have_kv_alone(self, store: KVStore):
        for passage, chunk in zip(laid_out(store), CHUNKS, strict=True):
            assert passage.chunk.token_ids == tuple(chunk.token_ids[place] for place in KEPT)
            assert (passage.chunk.text, passage.chunk.id) == (chunk.text, chunk.id)
        plan = plan_of(store)
        assert (plan.recompute, plan.num_missing, plan.end) == ((), 0, 2 + 3 * len(KEPT))

    def test_a_chunk_whose_kv_is_gone_is_there_whole_and_recomputed_and_counted(self, store: KVStore):
        store.delete([KEYS.chunk(CHUNKS[1].token_ids)])

        assert [passage.chunk.num_tokens for passage in laid_out(store)] == [len(KEPT), TOKENS, len(KEPT)]
        plan = plan_of(store)
        assert (plan.num_missing, plan.recompute) == (1, (Span(2 + len(KEPT), 2 + len(KEPT) + TOKENS),))

    def test_a_file_with_tokens_that_the_chunk_has_not_is_none(self, store: KVStore):
        beyond = (*KEPT[:-1], TOKENS)
        store.put(KEYS.chunk(CHUNKS[0].token_ids), some_of(beyond))

        assert laid_out(store)[0].chunk == CHUNKS[0]
        plan = plan_of(store, SOME)
        assert (plan.num_missing, plan.placed[1].kept) == (1, "")

    def test_kv_of_all_tokens_stands_beside_it(self, store: KVStore):
        key = WHOLE.chunk(CHUNKS[1].token_ids)
        store.put(key, chunk_kv())
        store.delete([KEYS.chunk(CHUNKS[1].token_ids)])

        passage = laid_out(store)[1]
        assert (passage.chunk, passage.key) == (CHUNKS[1], key)
        assert plan_of(store).num_missing == 0

    def test_a_collection_without_compression_never_reads_it(self, store: KVStore):
        assert [passage.chunk for passage in laid_out(store, keys=WHOLE)] == CHUNKS
        assert plan_of(store, keys=WHOLE).num_missing == 3

    def test_with_everything_recomputed_no_token_is_left_out(self, store: KVStore):
        assert [passage.chunk for passage in laid_out(store, ALL)] == CHUNKS
        plan = plan_of(store, ALL)
        assert (plan.recompute, plan.num_missing) == ((Span(2, 2 + 3 * TOKENS),), 0)

    def test_one_chunk_by_a_writer_is_computed_in_full(self, store: KVStore):
        written = replace(KEYS, writer="w")
        store.put(written.chunk(CHUNKS[0].token_ids), some_of())
        located = lay_out(locate(PASSAGES[:1], written, store), NOTHING)

        assert located.passages[0].chunk == CHUNKS[0]
        assert Planner(store).plan(prompt_of(located.passages), located, NOTHING, None) is None

    def test_no_token_of_it_is_exact(self, store: KVStore):
        """Full prefill of the prompt would not see what was left out."""
        assert plan_of(store).exact_end == 2
        chosen = plan_of(store, Recompute("head", 1 / 3, 4)).recompute
        assert chosen != ()


class TestPlans:
    @pytest.mark.parametrize(
        ("keys", "first", "recomputed"),
        [
            (WHOLE, chunk_kv(), [0, 9, 9]),
            (WHOLE, None, [TOKENS, 6, 6]),
            (KEYS, some_of(), [5, 5, 5]),
            (replace(WHOLE, writer="w"), chunk_kv(), [6, 6, 6]),
        ],
        ids=["exact", "missing", "compressed", "written"],
    )
    def test_the_first_chunk_is_spared_only_where_its_kv_is_exact(
        self, tmp_path: Path, keys: KeyMaker, first: PlainKV | None, recomputed: list[int]
    ):
        """Tokens recomputed of each chunk, by a policy that spends the same number on all it looks at."""
        store = KVStore(tmp_path)
        store.put(keys.prefix(), chunk_kv())
        if first is not None:
            store.put(keys.chunk(CHUNKS[0].token_ids), first)
        for chunk in CHUNKS[1:]:
            store.put(replace(keys, compression=None).chunk(chunk.token_ids), chunk_kv())

        plan = plan_of(store, Recompute("head", 0.3, 4), keys)

        assert [tokens_within(plan.recompute, chunk.span) for chunk in plan.placed[1:]] == recomputed

    def test_a_q_cache_of_another_number_of_blocks_is_not_looked_at(self, tmp_path: Path):
        """Another file may be in the place of the chunk's."""
        store = KVStore(tmp_path)
        store.put(WHOLE.prefix(), chunk_kv())
        for chunk, blocks in zip(CHUNKS, (2, 1, 2), strict=True):
            kv = chunk_kv()
            store.put(WHOLE.chunk(chunk.token_ids), replace(kv, mean_keys=kv.mean_keys[:blocks]))
        located = locate(PASSAGES, WHOLE, store)

        question = torch.ones(len(LAYOUT.q_layers), LAYOUT.q_heads, LAYOUT.head_dim)
        initial = Recompute("initial", 0.3, 16)
        plan = Planner(store).plan(prompt_of(located.passages), located, initial, question)

        assert plan is not None
        assert [tokens_within(plan.recompute, chunk.span) for chunk in plan.placed[1:]] == [0, 0, 18]

    def test_the_same_ids_of_other_places_share_no_cache(self, store: KVStore):
        passages = [Passage(replace(CHUNKS[0], token_ids=(5,) * TOKENS), 1.0, 1)]
        variants = set()
        for start in (0, TOKENS // 2):
            store.put(KEYS.chunk(passages[0].chunk.token_ids), some_of(tuple(range(start, start + TOKENS // 2))))
            located = locate(passages, KEYS, store)
            plan = Planner(store).plan(prompt_of(located.passages), located, NOTHING, None)
            assert plan is not None
            variants.add(plan.cache_variant)
        assert len(variants) == 2

    def test_the_engine_gets_it(self, store: KVStore):
        plan = plan_of(store)
        prompt = prompt_of(laid_out(store))
        sent = plan_to_wire(Generate(prompt.token_ids, "salt", plan))

        got = planned_of(sent, len(prompt.token_ids))
        assert got is not None
        assert got.plan.placed == plan.placed

    @pytest.mark.parametrize("kept", [["a"], [1, 2, 3, 4], ["x" * 65] * 4])
    def test_a_plan_that_does_not_say_it_of_each_chunk_is_refused(self, store: KVStore, kept: list[object]):
        prompt = prompt_of(laid_out(store))
        sent = plan_to_wire(Generate(prompt.token_ids, "salt", plan_of(store)))
        assert sent is not None
        with pytest.raises(Rejected):
            planned_of({PARAM: sent[PARAM] | {"kept": kept}}, len(prompt.token_ids))
