"""Ranking by attention: shares of chunks, heads that tell, their file, and the order they give."""

from pathlib import Path

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from ingest.calibrate.clozes import Cloze
from ingest.calibrate.heads import CANDIDATES, Asked, HeadsPlan, best_heads, candidates_of, find_heads, mrr_of
from ingest.calibrate.reading import NoWriter, SelectiveReader
from ragkv.chunk import Chunk, Passage
from ragkv.clock import utc_now
from ragkv.errors import Rejected
from ragkv.heads import Heads, heads_for, read_heads, write_heads
from ragkv.parts import Parts
from ragkv.retrieve.fusion import in_both_orders
from ragkv.settings import Settings
from ragkv.span import Span
from ragkv.stitch.rank import chunk_shares
from ragkv.stitch.select import query_slices
from tests.unit.test_calibrate import TINY

PREFIX = list(range(5, 12))
QUESTION, TEXT = tuple(range(1, 9)), Span(2, 7)
CHUNKS = (tuple(range(20, 60)), tuple(range(60, 65)))
FOUND = Heads(
    model="m", model_fingerprint="f", writer_fingerprint="", made_at=utc_now(), collection="default", questions=48,
    candidates=20, seed=0, heads=((3, 1), (5, 0)), mrr=0.8, all_heads_mrr=0.4, chance_mrr=0.18,
)  # fmt: skip


def still(_positions: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    """A rotation by nothing."""
    return heads


def turned(positions: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    """RoPE over two dimensions."""
    angle = positions.float()[:, None]
    first, second = heads[..., 0], heads[..., 1]
    return torch.stack((first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()), dim=-1)


class TestShares:
    def test_what_the_chunks_and_the_prefix_get_is_all_there_is(self):
        torch.manual_seed(0)
        queries, prefix, *chunks = (torch.randn(n, heads, 2) for n, heads in ((3, 4), (5, 2), (6, 2), (2, 2)))

        shares = chunk_shares(queries, torch.arange(3), prefix, chunks, turned)
        with_prefix = chunk_shares(queries, torch.arange(3), torch.empty(0, 2, 2), [prefix, *chunks], still)

        assert shares.shape == (4, 2)
        assert (shares.sum(-1) < 1).all()
        torch.testing.assert_close(with_prefix.sum(-1), torch.ones(4))

    def test_the_order_of_the_chunks_changes_nothing(self):
        torch.manual_seed(0)
        queries, prefix, *chunks = (torch.randn(n, heads, 2) for n, heads in ((3, 4), (5, 2), (6, 2), (2, 2)))

        one = chunk_shares(queries, torch.arange(3), prefix, chunks, turned)
        other = chunk_shares(queries, torch.arange(3), prefix, chunks[::-1], turned)

        torch.testing.assert_close(one, other.flip(-1))

    def test_a_long_question_is_taken_a_few_queries_at_a_time_and_says_the_same(self, monkeypatch):
        torch.manual_seed(0)
        queries, prefix, *chunks = (torch.randn(n, heads, 2) for n, heads in ((30, 4), (5, 2), (6, 2), (2, 2)))
        at_once = chunk_shares(queries, torch.arange(30), prefix, chunks, turned)

        monkeypatch.setattr("ragkv.stitch.select.MAX_LOGITS", 7 * 4 * 13)

        assert [part.stop - part.start for part in query_slices(queries, 13)] == [7] * 5
        torch.testing.assert_close(chunk_shares(queries, torch.arange(30), prefix, chunks, turned), at_once)

    def test_what_was_passed_in_is_left_as_it_was(self):
        prefix = torch.ones(2, 1, 2)

        chunk_shares(torch.ones(1, 1, 2), torch.arange(1), prefix, [prefix], lambda _, heads: heads.zero_())

        assert prefix.eq(1).all()

    @pytest.mark.parametrize(
        "config",
        [LlamaConfig(**TINY), Qwen2Config(**TINY), Qwen3Config(**TINY, head_dim=16)],
        ids=lambda c: c.model_type,
    )
    def test_the_first_layer_attends_as_it_does_in_a_prompt(self, config):
        """It knows no context: its queries and keys are what they are in a prompt. There the question's own tokens take
        part as well: what it gives to itself is the measure for both prompts."""
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).to(torch.float32).eval().requires_grad_(False)
        model.set_attn_implementation("eager")

        def attention(*before: int) -> torch.Tensor:
            ids = torch.tensor([[*before, *QUESTION]])
            rows = model(ids, output_attentions=True).attentions[0][0][:, len(before) :]
            own = rows[..., len(before) :].diagonal(dim1=-2, dim2=-1)
            return (rows[..., : len(before)] / own[..., None])[:, TEXT.start : TEXT.end]

        to_prefix = attention(*PREFIX).sum(-1)
        to_chunk = attention(*PREFIX, *CHUNKS[0])[..., len(PREFIX) :].sum(-1)

        reader = SelectiveReader(model, NoWriter(), PREFIX)
        shares = reader.shares(QUESTION, TEXT, reader.keys(CHUNKS[:1]), range(config.num_hidden_layers))

        assert shares.shape == (config.num_hidden_layers, config.num_attention_heads, 1)
        torch.testing.assert_close(shares[0, :, 0], (to_chunk / (to_chunk + to_prefix)).mean(-1))


class TestHeads:
    def asked(self, gold: int) -> Asked:
        """Head 1 of layer 2 knows; all others prefer chunk 0."""
        shares = torch.zeros(3, 2, 4)
        shares[..., 0] = 1
        shares[2, 1] = torch.eye(4)[gold]
        return Asked(shares, gold)

    def test_those_that_find_the_source_are_chosen_first(self):
        asked = [self.asked(gold) for gold in (1, 2, 3)]

        heads = best_heads(asked)

        assert heads[0] == (2, 1)
        assert len(heads) == len(set(heads)) == 6
        assert mrr_of(asked[0], heads[:1]) == 1
        assert mrr_of(asked[0], heads) == 0.5

    def test_candidates_are_of_the_context_and_those_behind_it(self):
        pool = [[chunk(f"{context}-{i}") for i in range(6)] for context in range(5)]
        cloze = Cloze(tuple(pool[4]), pool[4][2], "?", "!")

        candidates = candidates_of(cloze, pool)

        assert candidates[:6] == [pool[4][2], *pool[4][:2], *pool[4][3:]]
        assert candidates[6] is pool[0][0]
        assert len(candidates) == CANDIDATES

    def test_the_source_is_a_candidate_in_a_context_of_many_chunks(self):
        """Of small chunks a context has more than a re-ranker sees."""
        pool = [[chunk(f"{context}-{i}") for i in range(34)] for context in range(2)]
        candidates = candidates_of(Cloze(tuple(pool[0]), pool[0][30], "?", "!"), pool)

        assert pool[0][30] in candidates
        assert len(candidates) == len({one.id for one in candidates}) == CANDIDATES

    def test_text_without_names_and_numbers_is_refused(self, tmp_path: Path):
        text = "this is a sentence that goes on and on and says nothing that could be left out of it at all."
        chunks = [Chunk(f"c{i}", "d", i, "", text, 0, len(text), None, (1,) * 200) for i in range(200)]

        with pytest.raises(Rejected, match="too few sentences with names or numbers"):
            find_heads(Parts(Settings(data_dir=tmp_path)), chunks, HeadsPlan("d", 12, 0), lambda *_: None)


class TestFile:
    def test_what_was_written_is_read(self, tmp_path: Path):
        write_heads(tmp_path / "heads.json", FOUND)

        assert read_heads(tmp_path / "heads.json") == FOUND
        assert read_heads(tmp_path / "none.json") is None
        assert heads_for("f", tmp_path / "heads.json") == FOUND

    def test_heads_that_find_less_than_all_heads_do_are_refused(self, tmp_path: Path):
        poor = msgspec.structs.replace(FOUND, mrr=0.3)

        with pytest.raises(Rejected, match=r"MRR is 0\.30"):
            write_heads(tmp_path / "heads.json", poor)
        assert not (tmp_path / "heads.json").exists()

    def test_those_of_another_model_do_not_count(self, tmp_path: Path):
        write_heads(tmp_path / "heads.json", FOUND)

        with pytest.raises(Rejected, match="calibrate-heads"):
            heads_for("another", tmp_path / "heads.json")

    def test_a_damaged_file_is_named(self, tmp_path: Path):
        (tmp_path / "heads.json").write_bytes(b"{")

        with pytest.raises(Rejected, match=r"heads\.json"):
            read_heads(tmp_path / "heads.json")


def test_a_passage_that_another_order_leaves_out_keeps_its_place_in_the_first():
    passages = [Passage(chunk(str(i)), 0.0, 1) for i in range(3)]

    found = in_both_orders(passages, [2, 0])

    assert [passage.chunk.id for passage in found] == ["0", "2", "1"]


def chunk(chunk_id: str) -> Chunk:
    return Chunk(chunk_id, "d", 0, "", "", 0, 0, None, (1, 2))
