"""Titles found in text."""

import pytest

from ragkv.retrieve.links import MAX_CHUNKS, TitleLinks, names

TITLES = {
    "Ermengarde of Tours": ["ermengarde"],
    "Rio (film)": ["rio"],
    "Paris: History": ["paris-1", "paris-2"],
    "Tours": ["tours"],
    "Time": ["time"],
    "The Wild Life": ["wild"],
    "1984": ["1984"],
}


@pytest.fixture(scope="module")
def links():
    return TitleLinks(TITLES)


def test_a_title_in_the_text_is_found(links):
    assert links.mentioned("Lothair was the son of Ermengarde of Tours.") == [("ermengarde",)]


def test_the_longest_title_at_a_place_wins(links):
    """ "Tours" is inside "Ermengarde of Tours"."""
    assert ("tours",) not in links.mentioned("Ermengarde of Tours was a queen.")
    assert ("tours",) in links.mentioned("She lived in Tours.")


def test_a_qualifier_in_parentheses_may_be_left_out(links):
    assert links.mentioned("Rio was released in 2011.") == [("rio",)]


def test_a_section_is_found_by_document_and_by_section(links):
    assert links.mentioned("He moved to Paris.") == [("paris-1", "paris-2")]
    assert links.mentioned("See History for more.") == [("paris-1", "paris-2")]


def test_a_common_word_is_not_a_title(links):
    assert links.mentioned("It took a long time and the wild life was gone.") == []


def test_a_number_alone_is_not_a_title(links):
    assert links.mentioned("It was built in 1984.") == []


def test_accents_do_not_matter():
    assert TitleLinks({"Cesc Fàbregas": ["c"]}).mentioned("with Cesc Fabregas") == [("c",)]


def test_each_title_is_reported_once_in_order(links):
    assert links.mentioned("Tours, Rio and Tours again") == [("tours",), ("rio",)]


def test_a_name_that_too_many_chunks_share_is_no_link():
    titles = {f"Report {i}: Introduction": [str(i)] for i in range(MAX_CHUNKS + 1)}
    assert TitleLinks(titles).mentioned("The Introduction says so.") == []


def test_a_title_without_words_has_no_names():
    assert names("") == set()
    assert names("!? (-)") == set()
