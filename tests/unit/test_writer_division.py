"""What a writer is trained on is never what it is validated or evaluated on, whatever later calls are given."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.writer.corpus import (
    LEAST_NEIGHBOURHOODS,
    NEIGHBOURS,
    Division,
    cut,
    digest_of,
    divide,
    read_record,
    write_record,
)
from bench.writer.samples import Sample, Samples
from ragkv.chunk import Chunk, prompt_text
from ragkv.errors import Rejected
from ragkv.tokenizer import Tokenizer


def document(name: str, chunks: int) -> list[Chunk]:
    return [made(name, f"Sentence {number} of {name}.", (number, *name.encode())) for number in range(chunks)]


def made(title: str, text: str, token_ids: Sequence[int]) -> Chunk:
    return Chunk(f"{title} {text}", title, 0, title, text, 0, len(text), None, tuple(token_ids))


A, B, C = document("a", 400), document("b", 400), document("c", 400)


def digests(part: list[list[Chunk]]) -> set[str]:
    return {digest_of(chunk) for near in part for chunk in near}


def held_out(division: Division) -> set[str]:
    return digests(division.validation) | digests(division.evaluation)


def test_a_fifth_is_held_out_in_two_parts():
    division = divide([*A, *B], frozenset())

    assert len(division.training) == 40
    assert (len(division.validation), len(division.evaluation)) == (3, 7)
    assert not digests(division.training) & held_out(division)
    assert not digests(division.validation) & digests(division.evaluation)


@pytest.mark.parametrize("later", [[*A, *B], [*B, *A], A, B, [*C, *A, *B], [*A, *C]])
def test_nothing_that_was_trained_on_is_held_out_later(later: list[Chunk]):
    trained_on = digests(divide([*A, *B], frozenset()).training)
    try:
        division = divide(later, trained_on)
    except Rejected:
        assert not set(map(digest_of, later)) - trained_on
        return

    assert not held_out(division) & trained_on


def test_a_run_that_goes_on_has_the_division_that_it_had():
    first = divide([*A, *B], frozenset())

    assert divide([*A, *B], digests(first.training)) == first


def test_so_it_has_where_chunks_repeat_each_other():
    repeating = [*A, *B[:300], *A[:20], *B[300:]]
    first = divide(repeating, frozenset())

    assert not digests(first.training) & held_out(first)
    assert divide(repeating, digests(first.training)) == first


@pytest.mark.parametrize("chunks", [96, 97, 111, 113, 160, 177, 193])
def test_every_part_has_chunks_to_make_contexts_of(chunks: int):
    division = divide(A[:chunks], frozenset())

    for part in (division.training, division.validation, division.evaluation):
        assert Samples(part, 0).next().chunks


def test_a_neighbourhood_without_two_chunks_gives_no_samples():
    with pytest.raises(Rejected, match="give other documents"):
        Samples([A[:1], []], 0)


def test_with_more_documents_a_run_goes_on_on_more():
    trained_on = digests(divide([*A, *B], frozenset()).training)

    assert digests(divide([*A, *B, *C], trained_on).training) > trained_on


def test_where_all_of_it_was_trained_on_there_is_nothing_to_evaluate_on():
    trained_on = set(map(digest_of, A))

    with pytest.raises(Rejected, match="trained on most of these 400 chunks"):
        divide(A, trained_on)


def test_too_few_chunks_are_refused():
    with pytest.raises(Rejected, match="96 or more"):
        divide(A[: NEIGHBOURS * (LEAST_NEIGHBOURHOODS - 1)], frozenset())


def test_what_was_trained_on_is_recorded_and_what_was_recorded_stays(tmp_path: Path):
    write_record(tmp_path, [A[:16]])
    write_record(tmp_path, [B[:16]])

    assert read_record(tmp_path) == {digest_of(chunk) for chunk in (*A[:16], *B[:16])}
    assert read_record(tmp_path / "none") == frozenset()


@pytest.fixture(scope="module")
def tokenizer(language_model: Path) -> Tokenizer:
    return Tokenizer.load(language_model)


class TestCut:
    TEXT = "Ada Lovelace wrote notes on the engine. Charles Babbage designed it, and Luigi Menabrea described it."

    @pytest.mark.parametrize("title", ["Engines", "", "Ada Lovelace wrote notes on the engine."])
    def test_the_text_is_that_of_the_tokens_that_are_left(self, tokenizer: Tokenizer, title: str):
        chunk = made(title, self.TEXT, tokenizer.encode(prompt_text(title, self.TEXT)))
        size = len(tokenizer.encode(prompt_text(title, self.TEXT[:40]).rstrip()))

        shortened = cut(chunk, size, tokenizer)

        assert shortened.token_ids == chunk.token_ids[:size]
        assert tokenizer.decode(list(shortened.token_ids)) == prompt_text(title, shortened.text).rstrip("\n")
        assert self.TEXT.startswith(shortened.text)

    def test_a_chunk_that_is_short_enough_stays(self, tokenizer: Tokenizer):
        chunk = made("Engines", self.TEXT, (1, 2, 3))

        assert cut(chunk, 3, tokenizer) is chunk

    def test_a_title_that_takes_all_of_it_leaves_no_text(self, tokenizer: Tokenizer):
        title = "A title of many words " * 9
        chunk = made(title, self.TEXT, tokenizer.encode(prompt_text(title, self.TEXT)))

        assert cut(chunk, 5, tokenizer).text == ""


def test_passages_without_a_title_are_asked_about_without_one():
    """Every answer holds words, and no question quotes an empty title."""
    texts = [f"Marie Curie and Pierre Curie met in Paris in the spring of {year}." for year in range(1890, 1922)]
    untitled = [made("", text, (1, 2)) for text in texts]
    samples = Samples([untitled], 0, unanswered=0.2, questions=[Sample(tuple(untitled[:4]), (("Who?", "Marie"),))])

    tails = [tail for _ in range(100) for tail in samples.next().tails]

    assert all('""' not in question for question, _ in tails)
    assert {bool(answer) for question, answer in tails if "most important fact" not in question} == {True}
