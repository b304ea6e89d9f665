"""The writer: active while chunks are prefilled, never while the prefix is or while the model reads."""

import copy
import os
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from bench.writer.corpus import read_record, write_record
from bench.writer.evaluate import evaluate, ratio_upper
from bench.writer.reading import Reader, Tail, distances, grouped
from bench.writer.run import STRENGTHS, settle
from bench.writer.samples import Sample, Samples
from bench.writer.train import HIDDEN_WEIGHT, Course, Trainer
from bench.writer.trainable import TrainableAdapter
from ragkv.chunk import Chunk
from ragkv.errors import NotFound, Rejected
from ragkv.kv.key import KeyMaker
from ragkv.models import ADAPTER, ADAPTER_CONFIG, Fingerprints
from ragkv.prefill.writer import (
    MAX_ONE_CHUNK_KL,
    Gate,
    install,
    note_written,
    read_card,
    remove,
    write_card,
    writer_before,
)
from ragkv.span import Span
from ragkv.stitch.plan import PlacedChunk, StitchPlan
from tests.support.made_writers import GOOD, card

TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
CONFIGS = [LlamaConfig(**TINY), Qwen2Config(**TINY), Qwen3Config(**TINY, head_dim=16)]
PREFIX = list(range(5, 12))
CHUNKS = [tuple(range(20, 60)), tuple(range(60, 65)), tuple(range(30, 53))]
TAILS = [Tail(tuple(range(1, 9)), (3, 4, 5)), Tail((7, 8), (9,))]
CONTEXT = sum(CHUNKS, ())


class Fixed:
    """Token ids of the one sample there is."""

    def of(self, sample: object) -> tuple[list[tuple[int, ...]], list[Tail]]:
        return list(CHUNKS), TAILS


@pytest.fixture(params=CONFIGS, ids=lambda config: config.model_type)
def model(request):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(request.param).to(torch.float32).eval()


@pytest.fixture
def adapter(model) -> TrainableAdapter:
    return TrainableAdapter.new(model)


def awaken(adapter: TrainableAdapter) -> None:
    """Weights that change something."""
    torch.manual_seed(1)
    for parameter in adapter.parameters:
        parameter.data.normal_(0, 0.05)


class TestReading:
    def test_one_plain_chunk_behind_the_prefix_is_read_as_after_full_prefill(self, model, adapter):
        reader = Reader(model, adapter, PREFIX)

        pairs = distances(reader.full(CHUNKS[0], TAILS), reader.stitched(reader.write(CHUNKS[:1]), TAILS))

        assert max(kl.item() for kl, _ in pairs) < 1e-6

    def test_what_has_no_answer_gets_the_models_own(self, model, adapter):
        reader = Reader(model, adapter, PREFIX)
        awaken(adapter)
        asked = [TAILS[0], Tail(TAILS[0].question_ids, ())]

        kept, answered = reader.answered(reader.prefill(CONTEXT), asked, max_tokens=6)

        assert kept == TAILS[0]
        with adapter.disabled():
            ids = torch.tensor([[*PREFIX, *CONTEXT, *answered.question_ids, *answered.answer_ids]])
            likeliest = model(ids).logits.argmax(-1)[0]
        assert 1 <= len(answered.answer_ids) <= 6
        assert tuple(likeliest[-len(answered.answer_ids) - 1 : -1].tolist()) == answered.answer_ids

    def test_several_are_not(self, model, adapter):
        reader = Reader(model, adapter, PREFIX)

        pairs = distances(reader.full(CONTEXT, TAILS), reader.stitched(reader.write(CHUNKS), TAILS))

        assert min(hidden.item() for _, hidden in pairs) > 1e-5

    def test_full_prefill_knows_no_writer(self, model, adapter):
        reader = Reader(model, adapter, PREFIX)
        before = reader.full(CONTEXT, TAILS)
        awaken(adapter)

        for one, other in zip(before, reader.full(CONTEXT, TAILS), strict=True):
            torch.testing.assert_close(one.logprobs, other.logprobs)


class TestTraining:
    def trainer(self, model, course: Course) -> Trainer:
        torch.manual_seed(0)
        adapter = TrainableAdapter.new(model)
        return Trainer(Reader(model, adapter, PREFIX), adapter, Fixed(), course, [SAMPLE])

    def test_the_reader_comes_nearer_to_full_prefill(self, model):
        trainer = self.trainer(model, Course(samples=40, seconds=600, rate=2e-3))
        before = trainer.validate()

        trainer.run(Samples(NEAR, 0), lambda done, losses: None)

        assert trainer.samples == 40
        assert trainer.validate().hidden < before.hidden / 2

    def test_a_course_that_ends_by_the_clock_ends_with_a_whole_batch(self, model):
        trainer = self.trainer(model, Course(samples=8, seconds=1e-9, batch=2))

        trainer.run(Samples(NEAR, 0), lambda done, losses: None)

        assert trainer.samples == 2
        assert all(parameter.grad is None for parameter in trainer._adapter.parameters)

    @pytest.mark.parametrize("at_once", [10, 1000], ids=["a chunk at a time", "similar ones at once"])
    @pytest.mark.parametrize("kept", [0, 1 << 30], ids=["written twice", "written once"])
    def test_its_gradients_are_those_of_the_adapter_beside_the_weights(
        self, model, monkeypatch, at_once: int, kept: int
    ):
        """Merged weights and a second writing save work and memory, and change nothing."""
        monkeypatch.setattr("bench.writer.train.TOKENS_AT_ONCE", at_once)
        monkeypatch.setattr("bench.writer.train.KEPT_BYTES", kept)
        beside = self.trainer(copy.deepcopy(model), Course(samples=2, seconds=1e9))
        ours = self.trainer(model, Course(samples=2, seconds=1e9))
        for one in (beside, ours):
            awaken(one._adapter)
        learn_beside_the_weights(beside._reader)

        ours._step(SAMPLE)

        assert_same_gradients(beside._adapter, ours._adapter)

    @pytest.mark.parametrize(
        ("lengths", "groups"),
        [
            ([40, 38, 30], [[0, 1, 2]]),
            ([5, 40, 23, 38], [[1, 3], [2], [0]]),
            ([90, 80, 70], [[0, 1], [2]]),
            ([300, 290], [[0], [1]]),
            ([], []),
        ],
        ids=["similar", "padding is bounded", "tokens are bounded", "one each", "none"],
    )
    def test_chunks_of_similar_length_are_written_at_once(self, lengths: list[int], groups: list[list[int]]):
        assert list(grouped([(1,) * length for length in lengths], 200)) == groups

    def test_a_run_that_goes_on_ends_like_one_that_was_not_broken_off(self, model, tmp_path: Path):
        course = Course(samples=8, seconds=1e9)
        whole = self.trainer(copy.deepcopy(model), course)
        whole.run(Samples(NEAR, 0), lambda done, losses: None)
        broken = self.trainer(copy.deepcopy(model), course)
        with pytest.raises(KeyboardInterrupt):
            broken.run(Samples(NEAR, 0), stop_after(4))
        broken._adapter.save(tmp_path)
        torch.save(broken.state(), tmp_path / "state")

        adapter = TrainableAdapter.load(model, tmp_path, trainable=True)
        resumed = Trainer(Reader(model, adapter, PREFIX), adapter, Fixed(), course, [SAMPLE])
        resumed.resume(torch.load(tmp_path / "state", weights_only=True))
        resumed.run(Samples(NEAR, 0), lambda done, losses: None)

        assert resumed.samples == 8
        assert resumed.validate().kl == pytest.approx(whole.validate().kl, rel=1e-3)
        assert resumed.validate().hidden == pytest.approx(whole.validate().hidden, rel=1e-3)

    def test_a_weakened_writer_changes_the_weights_by_a_share(self, model, adapter):
        awaken(adapter)
        plain = {
            name: weight.clone() for name, weight in TrainableAdapter.new(copy.deepcopy(model)).merged_weights().items()
        }
        with adapter.at_strength(0.25):
            for_a_while = adapter.merged_weights()
        whole = adapter.merged_weights()

        adapter.weaken(0.25)

        for name, weight in adapter.merged_weights().items():
            torch.testing.assert_close(weight, for_a_while[name])
            torch.testing.assert_close(weight - plain[name], (whole[name] - plain[name]) / 4, atol=1e-6, rtol=1e-4)

    def test_the_strongest_that_changes_a_chunk_alone_little_enough_is_kept(self, model, monkeypatch):
        trainer = self.trainer(model, Course(samples=40, seconds=600, rate=2e-3))
        trainer.run(Samples(NEAR, 0), lambda done, losses: None)
        with trainer._adapter.at_strength(STRENGTHS[1]):
            just_passing = trainer.validate(alone=True).kl
            weights = trainer._adapter.merged_weights()
        monkeypatch.setattr("bench.writer.run.MARGIN", 1.01 * just_passing / MAX_ONE_CHUNK_KL)

        assert settle(trainer, trainer._adapter) == STRENGTHS[1]
        for name, weight in trainer._adapter.merged_weights().items():
            torch.testing.assert_close(weight, weights[name])

    def test_a_writer_that_changes_a_chunk_alone_too_much_is_kept_as_weak_as_may_be(self, model, monkeypatch):
        monkeypatch.setattr("bench.writer.run.MARGIN", -1.0)
        trainer = self.trainer(model, Course(samples=2, seconds=600))
        trainer.run(Samples(NEAR, 0), lambda done, losses: None)

        assert settle(trainer, trainer._adapter) == min(STRENGTHS)

    def test_a_writer_that_changes_nothing_has_nothing_to_choose(self, model):
        trainer = self.trainer(model, Course(samples=0, seconds=600))

        assert settle(trainer, trainer._adapter) == 1.0

    def test_the_gate_finds_no_difference_for_a_writer_that_changes_nothing(self, model, adapter):
        gate = evaluate(Reader(model, adapter, PREFIX), adapter, Fixed(), [SAMPLE] * 3)

        assert gate.kl == pytest.approx(gate.plain_kl)
        assert gate.nll == pytest.approx(gate.plain_nll)
        assert gate.one_chunk_kl < 1e-6
        assert gate.objections()


def learn_beside_the_weights(reader: Reader) -> None:
    """Gradients of a step of two samples, for one of them, through the adapter as PEFT runs it."""
    for chunks in (CHUNKS, CHUNKS[:1]):
        pairs = distances(reader.full(sum(chunks, ()), TAILS), reader.stitched(reader.write(chunks), TAILS))
        kl, hidden = (torch.stack(column).mean() for column in zip(*pairs, strict=True))
        ((kl + HIDDEN_WEIGHT * hidden) / 2).backward()


def assert_same_gradients(one: TrainableAdapter, other: TrainableAdapter) -> None:
    for ours, theirs in zip(one.parameters, other.parameters, strict=True):
        torch.testing.assert_close(
            torch.zeros_like(ours) if ours.grad is None else ours.grad,
            torch.zeros_like(theirs) if theirs.grad is None else theirs.grad,
            atol=1e-6,
            rtol=1e-3,
        )


def stop_after(samples: int):
    def progress(done: int, losses: object) -> None:
        if done == samples:
            raise KeyboardInterrupt

    return progress


def chunk(number: int, text: str) -> Chunk:
    return Chunk(
        str(number), "d", number, f"Title {number}", text, 0, len(text), None, tuple(range(number, number + 9))
    )


NEAR = [
    [
        chunk(1, "Ada Lovelace wrote a program for the engine of Charles Babbage in 1843. It was never run."),
        chunk(2, "Charles Babbage designed the Analytical Engine, which was never built in his lifetime."),
        chunk(3, "The Analytical Engine had a store and a mill, and read its programs from cards."),
    ],
    [chunk(4, "Grace Hopper wrote a compiler for the Univac in the year 1952."), chunk(5, "The Univac was large.")],
    [chunk(6, "alone")],
]
SAMPLE = Sample(tuple(NEAR[0]), (("Who?", "Ada"),))


class TestSamples:
    def test_a_question_has_an_answer_that_stands_in_its_context(self):
        supply = Samples(NEAR, 0)
        for _ in range(200):
            sample = supply.next()
            context = " ".join(f"{one.title} {one.text}" for one in sample.chunks)
            assert 2 <= len(sample.chunks) <= 4
            assert all(question and answer in context for question, answer in sample.tails)

    def test_known_questions_come_every_second_time_over_all_of_their_passages(self):
        known = [Sample(tuple(NEAR[0]), (("Who?", "Ada"),)), Sample(tuple(NEAR[1]), (("What?", "a compiler"),))]
        supply = Samples(NEAR, 0, tails=2, questions=known)
        given = [supply.next() for _ in range(8)]

        assert {sample.tails[0] for sample in given[1::2]} == {("Who?", "Ada"), ("What?", "a compiler")}
        assert {len(sample.chunks) for sample in given[1::2]} == {3, 2}
        assert all(len(sample.tails) == 2 for sample in given)
        assert not {("Who?", "Ada"), ("What?", "a compiler")} & {sample.tails[0] for sample in given[::2]}

    def test_known_questions_have_one_chunk_as_often_as_the_sizes_have(self):
        known = [Sample(tuple(NEAR[0]), (("Who?", "Ada"),))]
        supply = Samples(NEAR, 0, sizes=(1, 2, 4, 6), questions=known)
        sizes = [len(supply.next().chunks) for _ in range(400)][1::2]

        assert set(sizes) == {1, 3}
        assert 30 < sizes.count(1) < 70

    def test_a_share_of_the_questions_is_left_to_the_model(self):
        supply = Samples(NEAR, 0, unanswered=0.5)
        tails = [tail for _ in range(50) for tail in supply.next().tails]

        assert 60 < sum(not answer for _, answer in tails) < 140
        assert all(question for question, _ in tails)

    def test_the_same_seed_gives_the_same_and_what_is_skipped_is_left_out(self):
        first, second = Samples(NEAR, 7), Samples(NEAR, 7)
        second.skip(5)

        assert [first.next() for _ in range(9)][5:] == [second.next() for _ in range(4)]


class TestIdentity:
    def test_a_writer_names_other_chunks_and_the_same_prefix(self):
        plain, written = (KeyMaker(b"k" * 32, "m", "bfloat16", (1, 2), writer) for writer in ("", "w"))

        assert plain.prefix() == written.prefix()
        assert plain.chunk((3, 4)) != written.chunk((3, 4))
        assert written.chunk((3, 4)) != KeyMaker(b"k" * 32, "m", "bfloat16", (1, 2), "x").chunk((3, 4))

    def test_plans_of_different_writers_never_share_a_cache_variant(self):
        placed = (PlacedChunk("p", Span(0, 4)), PlacedChunk("a", Span(4, 10)), PlacedChunk("b", Span(10, 20)))

        assert len({StitchPlan(placed, writer=writer).cache_variant for writer in ("", "w", "x")}) == 3

    def test_the_first_chunk_is_exact_if_the_plain_model_wrote_it(self):
        placed = (PlacedChunk("p", Span(0, 4)), PlacedChunk("a", Span(4, 10)), PlacedChunk("b", Span(10, 20)))

        assert StitchPlan(placed).exact_end == 10
        assert StitchPlan(placed, writer="w").exact_end == 4


class TestGate:
    def test_a_good_writer_passes(self):
        assert GOOD.objections() == []

    @pytest.mark.parametrize(
        "change", [{"kl_ratio_upper": 0.8}, {"nll": 1.2}, {"one_chunk_kl": 0.05}, {"kl_ratio_upper": float("nan")}]
    )
    def test_what_falls_short_is_named(self, change: dict[str, float]):
        assert len(msgspec.structs.replace(GOOD, **change).objections()) == 1

    def test_the_interval_of_equal_figures_is_one(self):
        assert ratio_upper([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]) == pytest.approx(1.0)


class TestInUse:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        folder = tmp_path / "made"
        folder.mkdir()
        (folder / ADAPTER).write_bytes(b"weights")
        (folder / ADAPTER_CONFIG).write_bytes(b"{}")
        write_card(folder, card())
        return folder

    def test_it_is_put_into_use_replaced_and_taken_out(self, source: Path, tmp_path: Path):
        place = tmp_path / "writer"

        install(source, place, "f")
        install(source, place, "f")

        assert read_card(place) == read_card(source)
        assert remove(place)
        assert not remove(place)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "writer"]
        assert Fingerprints().adapter(place) == ""

    def test_what_a_killed_process_with_the_same_id_left_is_no_obstacle(self, source: Path, tmp_path: Path):
        """As in a container, where ids are the same each time."""
        place = tmp_path / "writer"
        install(source, place, "f")
        for kind in ("partial", "gone"):
            leftover = tmp_path / f".writer.{os.getpid()}.{kind}"
            leftover.mkdir()
            (leftover / ADAPTER).touch()

        install(source, place, "f")

        assert read_card(place) == read_card(source)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "writer"]

    def test_what_it_was_trained_on_goes_with_it(self, source: Path, tmp_path: Path):
        write_record(source, [[Chunk("c", "d", 0, "T", "text", 0, 4, None, (1, 2))]])

        install(source, tmp_path / "writer", "f")

        assert read_record(tmp_path / "writer") == read_record(source) != frozenset()

    def test_the_one_that_wrote_before_is_known(self, tmp_path: Path):
        place = tmp_path / "writer"
        assert writer_before(place, "") is None

        note_written(place, "")
        note_written(place, "one")
        note_written(place, "one")

        assert writer_before(place, "one") == ""
        assert writer_before(place, "chosen but not yet writing") == "one"

    def test_a_damaged_note_is_none(self, tmp_path: Path):
        place = tmp_path / "writer"
        note_written(place, "one")
        (tmp_path / "writer.written.json").write_bytes(b"{")

        assert writer_before(place, "two") is None

    @pytest.mark.parametrize("gate", [None, msgspec.structs.replace(GOOD, nll=9.9)])
    def test_one_that_was_not_evaluated_or_did_not_pass_stays_off(
        self, source: Path, tmp_path: Path, gate: Gate | None
    ):
        write_card(source, card(gate))

        with pytest.raises(Rejected, match="not put into use"):
            install(source, tmp_path / "writer", "f")
        assert not (tmp_path / "writer").exists()

    def test_one_of_another_model_stays_off(self, source: Path, tmp_path: Path):
        with pytest.raises(Rejected, match="other weights"):
            install(source, tmp_path / "writer", "another")

    @pytest.mark.parametrize("name", [ADAPTER, ADAPTER_CONFIG])
    def test_a_part_of_one_is_refused_and_leaves_nothing(self, source: Path, tmp_path: Path, name: str):
        (source / name).unlink()

        with pytest.raises(Rejected, match=f"no {name}"):
            install(source, tmp_path / "writer", "f")
        assert list(tmp_path.iterdir()) == [source]

    @pytest.mark.parametrize("content", [b"", b"{}", b"[1", b'{"model": 3}'])
    def test_a_card_that_cannot_be_read_is_refused(self, source: Path, content: bytes):
        (source / "card.json").write_bytes(content)

        with pytest.raises(Rejected, match="card"):
            read_card(source)

    def test_a_folder_without_a_card_is_no_writer(self, tmp_path: Path):
        with pytest.raises(NotFound):
            read_card(tmp_path)
