"""From a question to passages, with the embedded encoder and an in-memory index."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ragkv.chunk import Chunk
from ragkv.errors import Rejected
from ragkv.models import encoder_folder
from ragkv.retrieve.encoder import Encoder, embed_chunks, embed_question
from ragkv.retrieve.index import DEPTH, Point
from ragkv.retrieve.links import TitledChunk
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.mirror import Mirror
from ragkv.retrieve.names import Named
from ragkv.retrieve.retriever import Retriever
from ragkv.settings import Settings

# From 2WikiMultihopQA (Apache-2.0), shortened.
TEXTS = {
    "Lothair II": "Lothair II was the king of Lotharingia. He was the second son of Emperor Lothair I and Ermengarde of "
    "Tours. He was married to Teutberga, daughter of Boso the Elder.",
    "Ermengarde of Tours": "Ermengarde of Tours (d. 20 March 851) was the daughter of Hugh of Tours, a member of the "
    "Etichonen family. In 849, she made a donation to the abbey Erstein in the Elsass, in which she is buried.",
    "Teutberga": "Teutberga( died 11 November 875) was a queen of Lotharingia by marriage to Lothair II.",
    "Lambert, Margrave of Tuscany": "Lambert( died after 938) was the second son of Adalbert II of Tuscany and Bertha, "
    "daughter of Lothair II of Lotharingia.",
    "Theodred II (Bishop of Elmham)": "The date of Theodred's consecration unknown, but the date of his death was "
    "sometime between 995 and 997.",
    "Dino Risi": "Dino Risi( 23 December 1916 – 7 June 2008) was an Italian film director.",
    "Blood Street": "Blood Street is a 1988 film co-directed by Leo Fong.",
    "Leo Fong": "Leo Fong (born November 23, 1928) is a Chinese American actor, martial artist and boxer.",
    "Swapan Saha": "Swapan Saha( born 10 January 1930 in Ajmer) is an Indian Bengali film director and producer.",
    "Diane Kurys": "Diane Kurys( born 3 December 1948) is a French filmmaker and actress. She was born in Lyon.",
}
DIRECTOR = "What nationality is the director of film Blood Street?"
MOTHER = "When did Lothair II's mother die?"


class Library:
    """Documents of one chunk each, in memory: what the database is to retrieval."""

    def __init__(self, encoder: Encoder, texts: Mapping[str, str]) -> None:
        self._vectors = dict(zip(texts, embed_chunks(encoder, list(texts.items())), strict=True))
        self.held = {t: Chunk(t, f"doc {t}", 0, t, text, 0, len(text), None, (1,)) for t, text in texts.items()}
        self.title_reads = self.chunk_reads = 0

    def indexed_documents(self, tenant_id: str, collection_id: str) -> dict[str, int]:
        return {chunk.document_id: 1 for chunk in self.held.values()} if collection_id == "c" else {}

    def of_other_encoders(self, tenant_id: str, collection_id: str) -> frozenset[str]:
        return frozenset()

    def outdated(self, tenant_id: str, collection_id: str) -> frozenset[str]:
        return frozenset()

    def named(self, tenant_id, collection_id, terms, limit, document_ids=None) -> list[Named]:
        return [Named(0, frozenset()) for _ in terms]

    def points(self, document_ids: Sequence[str]) -> list[Point]:
        return [
            Point(c.id, c.document_id, c.title, self._vectors[c.id])
            for c in self.held.values()
            if c.document_id in document_ids
        ]

    def chunks(self, tenant_id: str, chunk_ids: Sequence[str]) -> list[Chunk]:
        self.chunk_reads += 1
        return [self.held[i] for i in chunk_ids if i in self.held]

    def titles(
        self, tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
    ) -> list[TitledChunk]:
        found = [c for c in self.held.values() if document_ids is None or c.document_id in document_ids]
        self.title_reads += len(found)
        return [TitledChunk(c.document_id, c.ordinal, c.id, c.title) for c in found]


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load(encoder_folder(Settings()))


@pytest.fixture
def library(encoder):
    return Library(encoder, TEXTS)


@pytest.fixture
def retriever(encoder, library):
    index = MemoryIndex()
    index.ensure(encoder.dim)
    return Retriever(partial(embed_question, encoder), index, library, Mirror(index, library))


def titles(passages) -> list[str]:
    return [passage.chunk.title for passage in passages]


def test_a_passage_that_only_the_first_hop_names_is_brought_in_by_the_second(retriever):
    """The question does not name the director; the film's passage does."""
    assert "Leo Fong" not in titles(retriever.search("t", "c", DIRECTOR, 3, hops=1))
    assert set(titles(retriever.search("t", "c", DIRECTOR, 2, hops=2))) == {"Blood Street", "Leo Fong"}


def test_a_passage_knows_the_hop_that_brought_it_in(retriever):
    hops = {p.chunk.title: p.hop for p in retriever.search("t", "c", DIRECTOR, 2, hops=2)}
    assert hops == {"Blood Street": 1, "Leo Fong": 2}
    assert {p.hop for p in retriever.search("t", "c", DIRECTOR, 3, hops=1)} == {1}


def test_a_conversation_neither_hides_a_new_subject_nor_loses_the_earlier_one(retriever):
    earlier = f"{MOTHER} 20 March 851"

    new_subject = titles(retriever.search("t", "c", DIRECTOR, 3, hops=2, earlier=earlier))
    assert new_subject[0] == "Blood Street" and "Leo Fong" in new_subject
    assert "Leo Fong" not in titles(retriever.search("t", "c", f"{DIRECTOR} {earlier}", 3, hops=2))

    referring = "And how old is that person?"
    earlier = "Who was born in Ajmer? Swapan Saha"
    assert "Swapan Saha" not in titles(retriever.search("t", "c", referring, 2, hops=2))
    assert "Swapan Saha" in titles(retriever.search("t", "c", referring, 2, hops=2, earlier=earlier))


def test_the_best_passage_of_a_later_turn_scores_as_in_a_search_for_it_alone(retriever: Retriever):
    """What is above a threshold for scores in the first turn is so in the second."""
    alone = retriever.search("t", "c", DIRECTOR, 3, hops=2)
    again = retriever.search("t", "c", DIRECTOR, 3, hops=2, earlier=DIRECTOR)
    assert titles(again) == titles(alone)
    assert again[0].score == pytest.approx(alone[0].score)
    assert [passage.score for passage in again] == sorted((passage.score for passage in again), reverse=True)


def test_passages_come_best_first_and_each_once(retriever):
    passages = retriever.search("t", "c", MOTHER, 10, hops=3)
    scores = [p.score for p in passages]
    assert scores == sorted(scores, reverse=True)
    assert len(set(titles(passages))) == len(passages)


@pytest.mark.parametrize("earlier", ["", "Where was it printed?"])
def test_the_same_words_in_many_documents_are_found_once(encoder: Encoder, earlier: str):
    """As the notice at the end of each mail, which took the place of all else."""
    notices = {f"{number}": "Lothair II is confidential: tell your mother when you die." for number in range(9)}
    library = Library(encoder, TEXTS | notices)
    library.held |= {i: replace(library.held[i], title="Notice") for i in notices}
    index = MemoryIndex()
    index.ensure(encoder.dim)
    retriever = Retriever(partial(embed_question, encoder), index, library, Mirror(index, library))
    passages = retriever.search("t", "c", MOTHER, 4, hops=2, earlier=earlier)
    assert len(passages) == 4
    assert titles(passages).count("Notice") == 1


def test_passages_behind_many_of_the_same_words_are_found(encoder: Encoder, retriever: Retriever):
    notices = {f"{number}": f"{MOTHER} This is confidential." for number in range(4 * DEPTH)}
    library = Library(encoder, TEXTS | notices)
    library.held |= {i: replace(library.held[i], title="Notice") for i in notices}
    index = MemoryIndex()
    index.ensure(encoder.dim)
    filled = Retriever(partial(embed_question, encoder), index, library, Mirror(index, library))
    passages = filled.search("t", "c", MOTHER, len(TEXTS) + 1, hops=1)
    assert sorted(titles(passages)) == sorted([*TEXTS, "Notice"])
    assert titles(passages)[1] == titles(retriever.search("t", "c", MOTHER, 1, hops=1))[0]


def test_an_empty_collection_has_no_passages(retriever):
    assert retriever.search("t", "empty", MOTHER, 5, hops=2) == []


def test_fewer_passages_than_asked_for_are_all_there_are(retriever):
    assert len(retriever.search("t", "c", MOTHER, 100, hops=2)) == len(TEXTS)


def test_a_deleted_document_is_gone_at_the_next_search(retriever, library):
    assert "Lothair II" in titles(retriever.search("t", "c", MOTHER, 5, hops=2))
    del library.held["Lothair II"]
    assert "Lothair II" not in titles(retriever.search("t", "c", MOTHER, 10, hops=2))


def test_titles_are_read_once_and_those_of_a_new_document_when_it_comes(retriever, library):
    held = library.held.pop("Dino Risi")
    for _ in range(3):
        retriever.search("t", "c", MOTHER, 5, hops=2)
    assert library.title_reads == len(TEXTS) - 1

    library.held["Dino Risi"] = held
    retriever.search("t", "c", MOTHER, 5, hops=2)
    del library.held["Leo Fong"]
    retriever.search("t", "c", MOTHER, 5, hops=2)
    assert library.title_reads == len(TEXTS)


def test_a_question_without_words_is_no_error(retriever):
    assert len(retriever.search("t", "c", "??", 3, hops=2)) == 3


def test_vectors_have_unit_length_and_keep_the_order_of_texts(encoder):
    texts = ["a river", "a much longer text about the law of income tax " * 20, "ships"] * 15
    vectors = encoder.encode(texts)
    assert vectors.shape == (45, encoder.dim)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[0], encoder.encode(["a river"])[0], atol=1e-5)


def test_encoding_nothing_gives_no_rows(encoder):
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_progress_ends_with_everything_done(encoder):
    seen: list[tuple[int, int]] = []
    encoder.encode(["text"] * 40, lambda done, total: seen.append((done, total)))
    assert seen == [(32, 40), (40, 40)]


def test_a_folder_that_holds_no_encoder_is_rejected(tmp_path):
    with pytest.raises(Rejected, match="RAGKV_ENCODER"):
        Encoder.load(tmp_path)


def test_chunks_are_not_read_for_each_title_that_is_named(retriever, library):
    some = frozenset(["doc Lothair II", "doc Teutberga"])
    retriever.search("t", "c", " and ".join(TEXTS), 10, hops=2, document_ids=some)
    assert library.chunk_reads < len(TEXTS) / 2


def test_documents_left_out_are_found_by_no_hop(retriever):
    """Neither by a search nor by a link to their title."""
    some = frozenset(f"doc {title}" for title in TEXTS if title != "Ermengarde of Tours")
    found = retriever.search("t", "c", MOTHER, 10, hops=2, document_ids=some)

    assert {passage.chunk.document_id for passage in found} <= some
    assert found[0].chunk.title == "Lothair II"
    assert retriever.search("t", "c", MOTHER, 10, hops=2, document_ids=frozenset()) == []
