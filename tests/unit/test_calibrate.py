"""Calibration: readings as the engine has them, utility, cover, the choice, its check, and when it counts."""

import copy
import dataclasses
import itertools
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, Qwen2Config, Qwen3Config

from ingest.calibrate.check import StitchedCase, check, mean_at_ratios
from ingest.calibrate.choose import FINALISTS, choose, finalists, ratio_of
from ingest.calibrate.clozes import CONTEXT_TOKENS, clozes_of, contexts_of
from ingest.calibrate.cover import Attention, Case, Observed, Selecting, observe, utility_of
from ingest.calibrate.reading import NoWriter, SelectiveReader
from ingest.writer.reading import Tail, distances
from ragkv.answer.prompt import PromptBuilder, Wording
from ragkv.batched import batched
from ragkv.calibration import Ratio, read_calibration, write_calibration
from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.chunk import Chunk
from ragkv.errors import Rejected
from ragkv.parts import Parts
from ragkv.settings import Settings
from ragkv.span import Span
from ragkv.tokenizer import Tokenizer
from tests.calibrated import FOUND
from tests.engine.world import sample_chunks

TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512, "initializer_range": 0.3,
}  # fmt: skip
CONFIGS = [LlamaConfig(**TINY), Qwen2Config(**TINY), Qwen3Config(**TINY, head_dim=16)]
PREFIX = list(range(5, 12))
CHUNKS = (tuple(range(20, 60)), tuple(range(60, 65)), tuple(range(30, 53)))
TEXT = sum(CHUNKS, ())
SECOND, THIRD = Span(47, 52), Span(52, 75)
TAIL = Tail(tuple(range(1, 9)), (3, 4, 5))


@pytest.fixture(params=CONFIGS, ids=lambda config: config.model_type)
def model(request):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(request.param).to(torch.float32).eval().requires_grad_(False)


@pytest.fixture
def reader(model) -> SelectiveReader:
    return SelectiveReader(model, NoWriter(), PREFIX)


class TestReading:
    def test_recomputing_everything_is_full_prefill(self, reader):
        """The oracle, here as in the engine."""
        [full] = reader.full(TEXT, [TAIL])

        recomputed = reader.recomputed(reader.write(CHUNKS), range(7, 75), TEXT, TAIL)

        torch.testing.assert_close(recomputed, full.logprobs, atol=1e-4, rtol=1e-4)

    def test_recomputing_nothing_is_reading_what_is_stitched(self, reader):
        stitched = reader.write(CHUNKS)

        torch.testing.assert_close(
            reader.recomputed(stitched, (), (), TAIL),
            reader.stitched(stitched, [TAIL])[0].logprobs,
            atol=1e-4,
            rtol=1e-4,
        )

    def test_what_is_recomputed_has_full_prefills_kv_where_all_before_it_has(self, reader):
        """The second chunk, behind a first one that is exact; the third stays as it was stitched."""
        stitched, full = reader.write(CHUNKS), reader.prefill(TEXT)
        mixed = [
            tuple(
                torch.cat([theirs[:, :, : SECOND.end], ours[:, :, SECOND.end :]], 2)
                for ours, theirs in zip(*layer, strict=True)
            )
            for layer in zip(stitched, full, strict=True)
        ]

        recomputed = reader.recomputed(stitched, range(SECOND.start, SECOND.end), CHUNKS[1], TAIL)

        torch.testing.assert_close(recomputed, reader.stitched(mixed, [TAIL])[0].logprobs, atol=1e-4, rtol=1e-4)

    def test_attention_is_what_eager_attention_gives(self, model, reader):
        """Renormalised over what may be selected, and over the whole context."""
        eager = (
            AutoModelForCausalLM.from_config(copy.deepcopy(model.config), attn_implementation="eager").float().eval()
        )
        eager.load_state_dict(model.state_dict())
        stitched, cache = reader.write(CHUNKS), DynamicCache()
        for layer, (keys, values) in enumerate(stitched):
            cache.update(keys, values, layer)
        with torch.no_grad():
            seen = eager(torch.tensor([TAIL.question_ids]), past_key_values=cache, output_attentions=True).attentions
        rows = [layer[0, :, -4:, : THIRD.end] for layer in seen]

        attention = Attention.of(reader, stitched, TAIL, SECOND.start)

        for weights, start, found in ((rows, SECOND.start, attention.plain), (rows, 0, attention.with_sink)):
            kept = [layer[..., start:] / layer[..., start:].sum(-1, keepdim=True) for layer in weights]
            expected = torch.stack([layer.mean((0, 1))[SECOND.start - start :] for layer in kept])
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


class TestUtility:
    def test_it_is_the_slope_of_kl_by_the_gate_of_one_token(self, reader):
        stitched, full = reader.write(CHUNKS), reader.prefill(TEXT)
        teacher = reader.stitched(full, [TAIL])

        def kl(token: int, gate: float) -> float:
            gates = torch.full((75, 1), 0.5)
            gates[token] = gate
            gated = [
                tuple(ours + gates * (theirs - ours) for ours, theirs in zip(*layer, strict=True))
                for layer in zip(stitched, full, strict=True)
            ]
            [(distance, _)] = distances(teacher, reader.stitched(gated, [TAIL]))
            return distance.item()

        utility = utility_of(reader, full, stitched, TAIL)

        token = int(utility.abs().argmax())
        assert token >= SECOND.start
        assert utility[token].item() == pytest.approx((kl(token, 0.4) - kl(token, 0.6)) / 0.2, rel=0.05)
        assert utility[: SECOND.start].abs().max() < utility.abs().max() / 100  # the first chunk is exact

    def test_a_case_is_observed_whole(self, reader):
        selecting = Selecting((SECOND, THIRD), 4, 7)

        observed = observe(reader, Case(CHUNKS, TAIL), selecting)

        assert observed.utility.shape == (28,)
        assert observed.attention.plain.shape == observed.attention.with_sink.shape == (3, 28)
        assert observed.cover(DEFAULT_CHOICE) <= 1


def told_by(layers: set[int], *, with_sink: bool = True, plain: bool = True, best: int = 5) -> Observed:
    """Of ten blocks of four tokens one is useful; these of six layers attend to it, the others, and more, to the first
    block."""
    utility = torch.full((40,), 0.01)
    utility[4 * best : 4 * best + 4] = 1.0
    right, wrong = torch.zeros(40), torch.zeros(40)
    right[4 * best : 4 * best + 4], wrong[:4] = 0.2, 0.25
    rows = torch.stack([right if layer in layers else wrong for layer in range(6)])
    none = wrong.expand(6, 40)
    attention = Attention(rows if plain else none, rows if with_sink else none)
    return Observed(Selecting((Span(100, 140),), 4, 4), attention, utility)


class TestChoice:
    def test_the_layers_that_cover_most_are_the_finalists(self):
        observed = [told_by({4, 5}, best=best) for best in range(1, 9)]

        default, first, *others = finalists(observed, 6)

        assert default == DEFAULT_CHOICE
        assert first.layers == (4, 5)
        assert {one.cover(first) for one in observed} == {1.0}
        assert len(others) == FINALISTS - 1
        assert DEFAULT_CHOICE not in others

    def test_single_layers_that_lie_apart_may_be_chosen(self):
        observed = [told_by({0, 2, 5}, best=best) for best in range(1, 9)]

        assert finalists(observed, 6)[1].layers == (0, 2, 5)

    def test_the_sink_counts_where_it_tells(self):
        def best(**told: bool) -> Choice:
            return finalists([told_by({4, 5}, best=place, **told) for place in range(1, 9)], 6)[1]

        assert best(plain=False).sink_aware
        assert not best(with_sink=False).sink_aware

    def test_text_on_which_stitching_changes_nothing_is_refused(self):
        nothing = [Observed(one.selecting, one.attention, one.utility * 0) for one in [told_by({4})] * 12]

        with pytest.raises(Rejected, match="0 of 12 contexts"):
            finalists(nothing, 6)

    def test_the_least_kl_is_chosen_not_the_most_cover(self):
        default = [0.2 + case / 100 for case in range(12)]
        kls = {
            DEFAULT_CHOICE: default,
            Choice((4, 5)): [kl * 1.1 for kl in default],
            Choice((1, 2)): [kl * 0.7 for kl in default],
        }

        assert choose(kls) == Choice((1, 2))

    def test_the_default_is_kept_where_none_is_surely_better(self):
        """Half of the cases are better by far, the others worse."""
        default = [0.2] * 12
        kls = {
            DEFAULT_CHOICE: default,
            Choice((4, 5)): [kl * (0.2 if case % 2 else 3) for case, kl in enumerate(default)],
        }

        assert ratio_of(kls[Choice((4, 5))], default).mean < 1
        assert choose(kls) == DEFAULT_CHOICE


def chunk(number: int, tokens: int = 300) -> Chunk:
    text = (
        f"The engine number {number} was designed by Charles Babbage in the city of London. It was never built there. "
        f"Another engine, the {number + 1840}th of all, was drawn much later by Ada Lovelace for an old friend."
    )
    return Chunk(str(number), "d", number, f"Engine {number}", text, 0, len(text), None, tuple(range(tokens)))


class TestClozes:
    def test_contexts_are_neighbours_that_share_nothing(self):
        contexts = contexts_of([chunk(number) for number in range(18)])

        assert [[one.ordinal for one in context] for context in contexts] == [
            [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]
        ]  # fmt: skip
        assert all(sum(one.num_tokens for one in context) >= CONTEXT_TOKENS for context in contexts)

    def test_the_gap_stands_in_a_chunk_behind_the_first(self):
        contexts = contexts_of([chunk(number) for number in range(16)])

        clozes = clozes_of(contexts, 12, seed=0)

        assert len({(cloze.question, cloze.answer) for cloze in clozes}) == 12
        for cloze in clozes:
            sentence, _, about = cloze.question.partition(" What is missing, about ")
            [source] = [one for one in cloze.chunks if one.title == about.removesuffix("?")]
            assert source.ordinal != cloze.chunks[0].ordinal
            assert sentence.replace("____", cloze.answer) in source.text
            assert cloze.answer not in source.title

    def test_text_without_names_has_none(self):
        bare = [
            dataclasses.replace(chunk(number), text="nothing here has any name at all. " * 9) for number in range(4)
        ]

        assert clozes_of([bare], 12, seed=0) == []


class TestCheck:
    def test_a_made_up_bad_choice_is_refused(self, language_model: Path, tmp_path: Path):
        """The first layers of the embedded model know nothing of what a question needs."""
        settings = Settings()
        tokenizer = Tokenizer.load(language_model)
        prompts = PromptBuilder(
            tokenizer, Wording(settings.instructions, settings.question_format, settings.answer_start), 4096
        )
        contexts = list(batched(list(itertools.islice(sample_chunks(tokenizer, 64), 12)), 2))
        reader = SelectiveReader(
            AutoModelForCausalLM.from_pretrained(language_model, dtype=torch.float32).eval(),
            NoWriter(),
            prompts.prefix_ids,
        )
        checked = []
        for cloze in clozes_of(contexts, 2, seed=0):
            case = Case(
                tuple(one.token_ids for one in cloze.chunks),
                Tail(prompts.question_ids(cloze.question), prompts.answer_ids(cloze.answer)),
            )
            ends = list(itertools.accumulate(map(len, case.chunks), initial=reader.num_prefix))
            spans = tuple(Span(start, end) for start, end in itertools.pairwise(ends))[1:]
            stitched = StitchedCase(reader, case, Selecting(spans, 4, 24))
            checked.append(check(stitched, Choice((0, 1)), 0, ratios=()))
        ours, default = [one.choice for one in checked], [one.default for one in checked]
        bad = msgspec.structs.replace(FOUND, layers="0-1", sink_aware=False, to_default=ratio_of(ours, default))

        with pytest.raises(Rejected, match=r"the layers 0-1 were not put into use: its KL is .* times the default's"):
            write_calibration(tmp_path / "calibration.json", bad)

        assert not (tmp_path / "calibration.json").exists()

    def test_a_ratio_is_a_geometric_mean(self):
        ratio = ratio_of([0.1, 0.2, 5.0], [0.2, 0.4, 0.5])

        assert ratio.mean == pytest.approx(2.5 ** (1 / 3))
        assert ratio.low <= ratio.mean <= ratio.high

    def test_ratios_are_means_over_the_cases(self):
        rows = [{0.0: kl, 0.5: 0.0} for kl in (0.1, 0.3)]

        assert mean_at_ratios(rows) == ((0.0, pytest.approx(0.2)), (0.5, 0.0))


class TestUse:
    def test_what_is_not_better_than_random_is_refused(self, tmp_path: Path):
        for worse in (Ratio(1.0, 0.5, 1.5), Ratio(1.2, 1.1, 1.3)):
            with pytest.raises(Rejected, match="random blocks"):
                write_calibration(tmp_path / "c.json", msgspec.structs.replace(FOUND, to_random=worse))

    def test_the_least_ratio_is_told_with_and_without_the_writer(self):
        assert dict(FOUND.described())["Least that keeps a KL of 0.05"] == "RAGKV_RECOMPUTE_RATIO=0.1"

        both = msgspec.structs.replace(FOUND, plain_kl_at=((0.0, 0.3), (0.1, 0.09)))

        assert dict(both.described())["Least that keeps a KL of 0.05"] == (
            "RAGKV_RECOMPUTE_RATIO=0.1; without the writer none of these"
        )
        assert dict(both.described())["KL by ratio, without the writer"] == "0: 0.300, 0.1: 0.090"

    def test_it_comes_back_as_it_was_written(self, tmp_path: Path):
        write_calibration(tmp_path / "c.json", FOUND)

        assert read_calibration(tmp_path / "c.json") == FOUND
        assert read_calibration(tmp_path / "none.json") is None

    def test_a_damaged_one_is_refused_with_what_to_do(self, tmp_path: Path):
        (tmp_path / "c.json").write_text("{")

        with pytest.raises(Rejected, match=r"c\.json: .*; delete it"):
            read_calibration(tmp_path / "c.json")

    def parts(self, folder: Path, language_model: Path, **given: object) -> Parts:
        return Parts(Settings.of({"data_dir": folder, "model": str(language_model)} | given))

    def test_it_counts_for_its_model_where_nothing_is_set(self, tmp_path: Path, language_model: Path):
        fingerprint = self.parts(tmp_path, language_model).model_fingerprint
        ours = msgspec.structs.replace(FOUND, model_fingerprint=fingerprint)
        write_calibration(tmp_path / "calibration.json", ours)

        assert self.parts(tmp_path, language_model).choice == Choice(tuple(range(10, 20)), sink_aware=True)
        assert self.parts(tmp_path, language_model, choosing_layers="5").choice == Choice((5,), sink_aware=True)
        assert self.parts(tmp_path, language_model, sink_aware=False).choice == Choice(sink_aware=False)

        for other in ({"model_fingerprint": "another"}, {"writer_fingerprint": "w"}):
            write_calibration(tmp_path / "calibration.json", msgspec.structs.replace(ours, **other))
            assert self.parts(tmp_path, language_model).choice == DEFAULT_CHOICE

    def test_layers_that_the_model_lacks_are_refused_at_start(self, tmp_path: Path, language_model: Path):
        parts = self.parts(tmp_path, language_model, choosing_layers="20-30")

        with pytest.raises(Rejected, match="layers 0 to 29"):
            parts.prepare()
