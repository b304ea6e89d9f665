"""What is done with texts from outside takes time in proportion to their length."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

from ragkv.answer.cite import cite
from ragkv.answer.sentences import sentences
from ragkv.retrieve.links import TitledChunk, TitleLinks, names
from ragkv.retrieve.sparse import _known_stem, query_vector, stem, without_accents
from ragkv.service.answer_cache.guards import is_time_bound, may_share_answer
from ragkv.text import MAX_MARKS, normalised
from tests.support.growth import assert_linear

HOSTILE = {
    "opening quotes that never close": "„",
    "quoted letters": '"a" ',
    "single quotes": "'a ",
    "capital letters": "A ",
    "line ends": "a.\n",
    "sentence ends": "? ",
    "spaces": " ",
    "combining marks": "\u0315\u0300",
    "letters that become many": "\ufdfa",
    "phrases of time": "this ",
    "one long word": "a",
    "parentheses": "( ",
    "colons": "a: ",
    "times": "30:",
}
WORK: dict[str, Callable[[str], Any]] = {
    "deciding words": partial(may_share_answer, "Who wrote it?"),
    "moments": is_time_bound,
    "terms": query_vector,
    "accents": without_accents,
    "sentences": sentences,
    "an answer that is cut": lambda text: cite(f"{text} x", "Who?", (), is_cut=True),
    "names of titles": names,
    "titles in text": TitleLinks([TitledChunk("d", 0, "a", "Ada Lovelace"), TitledChunk("d", 1, "b", "Ada")]).mentioned,
    "normal form": partial(normalised, "NFC"),
}


def test_hostile_text_takes_linear_time(subtests: pytest.Subtests):
    for (how, work), (kind, text) in product(WORK.items(), HOSTILE.items()):
        with subtests.test(work=how, text=kind):
            assert_linear(work, partial(repeated, text), 1000)


def repeated(text: str, size: int) -> str:
    return "x" + text * (size // len(text))


def test_a_normal_form_has_a_limit_of_marks_and_keeps_all_else():
    assert normalised("NFC", "e\u0301") == "é"
    assert normalised("NFC", "e" + "\u0300" * 100) == normalised("NFC", "e" + "\u0300" * MAX_MARKS)


def test_long_words_are_stemmed_and_not_remembered():
    known = _known_stem.cache_info().currsize
    assert stem("running" * 20) == "running" * 19 + "run"
    assert _known_stem.cache_info().currsize == known
