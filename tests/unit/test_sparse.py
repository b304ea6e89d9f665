"""BM25 term vectors."""

import numpy as np
import pytest

from ragkv.retrieve import sparse


def test_words_are_folded_and_without_accents():
    assert sparse.words("Cesc FÀBREGAS joined, in 2003!") == ["cesc", "fabregas", "joined", "in", "2003"]


def test_terms_are_stems_without_stop_words():
    assert sparse.terms("The directors of the films were directing") == ["director", "film", "direct"]


def test_scripts_without_spaces_give_a_term_for_each_character():
    assert sparse.words("東京 Tokyo") == ["東", "京", "tokyo"]


def test_an_id_is_the_same_in_every_process():
    """A stored vector must be found after a restart: no use of Python's randomised hash."""
    assert sparse.term_id("london") == 0x777CE615


def test_a_second_mention_weighs_less_than_the_first():
    once, twice = (
        dict(zip(*sparse.document_vector(t), strict=True)) for t in ("river bank water", "river river water")
    )
    river = sparse.term_id("river")
    assert once[river] < twice[river] < 2 * once[river]


def test_the_same_mention_weighs_less_in_a_longer_text():
    short = dict(zip(*sparse.document_vector("river"), strict=True))
    long = dict(zip(*sparse.document_vector("river " + "water stone " * 50), strict=True))
    assert long[sparse.term_id("river")] < short[sparse.term_id("river")]


def test_a_text_of_average_length_weighs_a_single_mention_1():
    """With tf = 1 and length = average the formula is (k1 + 1) / (1 + k1)."""
    text = " ".join(f"w{i}" for i in range(int(sparse.AVERAGE_TERMS)))
    assert sparse.document_vector(text)[1] == pytest.approx(1.0)


def test_ids_ascend_and_are_distinct():
    indices, values = sparse.document_vector("one river and another river met two more rivers")
    assert np.all(np.diff(indices.astype(np.int64)) > 0)
    assert indices.dtype == np.uint32
    assert values.dtype == np.float32


def test_a_question_weighs_each_distinct_term_1():
    indices, values = sparse.query_vector("Which river, river or stream?")
    assert len(indices) == 2
    assert values.tolist() == [1.0, 1.0]


def test_a_text_without_terms_has_an_empty_vector():
    assert sparse.document_vector("of the and")[0].size == 0
    assert sparse.query_vector("")[0].size == 0
