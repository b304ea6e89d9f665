"""Titles found in text."""

import random

import pytest

from ragkv.retrieve.links import MAX_CHUNKS, TitledChunk, TitleLinks, names

TITLES = {
    "Ermengarde of Tours": ["ermengarde"],
    "Rio (film)": ["rio"],
    "Paris: History": ["paris-1", "paris-2"],
    "Tours": ["tours"],
    "Time": ["time"],
    "The Wild Life": ["wild"],
    "1984": ["1984"],
}


def links_of(titles):
    """One document, with these ids under each title."""
    pairs = [(title, chunk_id) for title, ids in titles.items() for chunk_id in ids]
    return TitleLinks(TitledChunk("d", i, chunk_id, title) for i, (title, chunk_id) in enumerate(pairs))


@pytest.fixture(scope="module")
def links():
    return links_of(TITLES)


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


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Version 2", "What is new in Version 2.1?"),
        ("A100", "How heavy is the A100-B?"),
        ("A100", "How heavy is the A100-b?"),
        ("Model S", "Who drives a Model S.E. today?"),
        ("Bergen", "The road to Bergen-Sund is closed."),
        ("Sund", "The road to Bergen-Sund is closed."),
        ("Bergen", "The road to Bergen\u2011Sund is closed."),
        ("Coca", "Who sells Coca-Cola?"),
        ("The Rolling", "The Rolling&Co. left."),
        ("Form AC", "He filled in Form AC/DC."),
        ("Rule 1", "See Rule 1:30 of it."),
        ("Step 2", "Step 2,5 is the next."),
    ],
)
def test_the_beginning_or_end_of_a_longer_name_is_no_link(title: str, text: str):
    assert links_of({title: ["part"]}).mentioned(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "He left Bergen.",
        "Bergen, Sund",
        "Bergen - Sund",
        "Bergen's port",
        "a Bergen-based firm",
        "Oslo/Bergen",
        "(Bergen)",
        "Bergen: a town",
        "the ex-Bergen ferry",
    ],
)
def test_a_name_beside_signs_of_the_sentence_is_a_link(text: str):
    assert links_of({"Bergen": ["bergen"]}).mentioned(text) == [("bergen",)]


def test_the_longer_name_is_a_link_where_it_is_a_title():
    links = links_of({"Version 2": ["2"], "Version 2.1": ["2.1"], "A100": ["a100"], "A100-B": ["a100-b"]})
    assert links.mentioned("Does Version 2.1 run on the A100-B?") == [("2.1",), ("a100-b",)]
    assert links.mentioned("Does Version 2 run on the A100?") == [("2",), ("a100",)]


def test_a_common_word_is_not_a_title(links):
    assert links.mentioned("It took a long time and the wild life was gone.") == []


@pytest.mark.parametrize(
    ("title", "text"), [("WHO", "Who wrote it?"), ("How? (song)", "How old is it?"), ("Will", "Will it rain?")]
)
def test_the_first_word_of_a_question_is_not_a_title(title: str, text: str):
    assert links_of({title: ["part"]}).mentioned(text) == []


def test_a_name_that_looks_like_a_common_word_is_a_link_in_capitals_or_with_others():
    assert links_of({"WHO": ["who"]}).mentioned("Who leads the WHO?") == [("who",)]
    assert links_of({"The Who": ["band"]}).mentioned("When did The Who play in Leeds?") == [("band",)]


def test_a_number_alone_is_not_a_title(links):
    assert links.mentioned("It was built in 1984.") == []


def test_accents_do_not_matter():
    assert links_of({"Cesc Fàbregas": ["c"]}).mentioned("with Cesc Fabregas") == [("c",)]


def test_each_title_is_reported_once_in_order(links):
    assert links.mentioned("Tours, Rio and Tours again") == [("tours",), ("rio",)]


def test_a_name_that_too_many_chunks_share_is_no_link():
    titles = {f"Report {i}: Introduction": [str(i)] for i in range(MAX_CHUNKS + 1)}
    assert links_of(titles).mentioned("The Introduction says so.") == []


def test_a_title_without_words_has_no_names():
    assert names("") == set()
    assert names("!? (-)") == set()


WORDS = ["Ada", "Bell", "Paris", "History", "1984"]


def random_document(document_id: str, dice: random.Random) -> list[TitledChunk]:
    """Titles of few words, so that many share a name: some at the limit of how many may."""
    titles = [": ".join(dice.choices(WORDS, k=dice.randint(1, 2))) for _ in range(dice.randint(0, 12))]
    return [TitledChunk(document_id, i, f"{document_id}-{i}", title) for i, title in enumerate(titles)]


def test_links_that_followed_the_changes_are_those_of_what_is_there_now(subtests):
    for seed in range(20):
        with subtests.test(seed=seed):
            dice = random.Random(seed)
            documents: dict[str, list[TitledChunk]] = {}
            followed = TitleLinks()
            for _ in range(60):
                changed = dice.sample([f"d{i:02}" for i in range(40)], dice.randint(1, 6))
                for document_id in changed:
                    documents[document_id] = [] if dice.random() < 0.3 else random_document(document_id, dice)
                written = [chunk for document_id in changed for chunk in documents[document_id]]
                followed = followed.changed(changed, dice.sample(written, len(written)))

                anew = TitleLinks(chunk for chunks in documents.values() for chunk in chunks)
                for text in (*WORDS, "Paris History", "Ada Bell of Paris, 1984 Paris", "ada Bell History"):
                    assert followed.mentioned(text) == anew.mentioned(text)
                assert vars(followed) == vars(anew)


def test_links_that_others_use_stay_as_they_are():
    before = links_of({"Ada": ["a"], "Bell": ["b"]})
    after = before.changed(["d"], [TitledChunk("e", 0, "c", "Ada")])

    assert before.mentioned("Ada Bell") == [("a",), ("b",)]
    assert after.mentioned("Ada Bell") == [("c",)]
