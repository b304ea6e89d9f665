"""Each part of the evidence that ranks passages: a corpus on which that part alone decides.

Dense vectors are set by hand: a question is the first axis, and `nearness` says how near a passage is to it.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from qdrant_client import QdrantClient

from ragkv.chunk import Chunk
from ragkv.retrieve import sparse
from ragkv.retrieve.encoder import search_text
from ragkv.retrieve.index import Index, Point, Vectors
from ragkv.retrieve.links import TitledChunk
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.names import DocumentNames, Named
from ragkv.retrieve.qdrant import QdrantIndex
from ragkv.retrieve.retriever import HOLDERS, RARE, TERMS, Retriever, Searcher
from ragkv.threads import Threads

DIM = 3
MEMORY: Callable[[], Index] = MemoryIndex
INDEXES: dict[str, Callable[[], Index]] = {
    "memory": MEMORY,
    "Qdrant": lambda: QdrantIndex(QdrantClient(location=":memory:"), "Qdrant in this process"),
}


@dataclass(frozen=True, slots=True)
class Text:
    """A passage: its text, its cosine with a question, and that with what an enriched search asks. document: None for
    one of its own."""

    text: str
    nearness: float
    enriched: float = 0.0
    document: str | None = None


class Shelf:
    """Passages by title."""

    def __init__(self, texts: Mapping[str, Text]) -> None:
        self._chunks = {
            title: Chunk(title, document_of(title, one), 0, title, one.text, 0, len(one.text), None, (1,))
            for title, one in texts.items()
        }

    def indexed_documents(self, tenant_id: str, collection_id: str) -> dict[str, int]:
        return {chunk.document_id: 1 for chunk in self._chunks.values()}

    def of_other_encoders(self, tenant_id: str, collection_id: str) -> frozenset[str]:
        return frozenset()

    def named(
        self, tenant_id: str, collection_id: str, terms: Sequence[int], limit: int, document_ids=None
    ) -> list[Named]:
        names = DocumentNames()
        for document_id in self.indexed_documents(tenant_id, collection_id):
            names.rename(document_id, document_id)
        return names.named(terms, limit, document_ids)

    def chunks(self, tenant_id: str, chunk_ids: Sequence[str]) -> list[Chunk]:
        return [self._chunks[i] for i in chunk_ids if i in self._chunks]

    def titles(
        self, tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
    ) -> Iterable[TitledChunk]:
        return [TitledChunk(chunk.document_id, 0, chunk.id, chunk.title) for chunk in self._chunks.values()]


def found(
    texts: Mapping[str, Text],
    question: str,
    hops: int = 2,
    made: Callable[[], Index] = MEMORY,
    document_ids: frozenset[str] | None = None,
) -> dict[str, float]:
    """Titles, best first, with their scores."""
    index = made()
    passages = retriever_over(texts, question, index).search("t", "c", question, len(texts), hops, document_ids)
    index.close()
    return {passage.chunk.title: passage.score for passage in passages}


def retriever_over(texts: Mapping[str, Text], question: str, index: Index) -> Retriever:
    """A retriever of these passages. question: the one that will be asked."""
    index.ensure(DIM)
    points = [
        Point(title, document_of(title, one), title, Vectors(vector_of(one), *terms))
        for (title, one), terms in zip(
            texts.items(),
            sparse.document_vectors([search_text(title, one.text) for title, one in texts.items()]),
            strict=True,
        )
    ]
    index.upsert("t", "c", points)

    def embed(asked: str) -> Vectors:
        axis = np.array([1, 0, 0] if asked == question else [0, 1, 0], np.float32)
        return Vectors(axis, *sparse.query_vector(asked))

    return Retriever(embed, index, Shelf(texts))


def document_of(title: str, text: Text) -> str:
    return text.document or f"document {title}"


def vector_of(text: Text) -> np.ndarray:
    rest = math.sqrt(1 - text.nearness**2 - text.enriched**2)
    return np.array([text.nearness, text.enriched, rest], np.float32)


def first(texts: Mapping[str, Text], question: str, hops: int = 2, made: Callable[[], Index] = MEMORY) -> str:
    return next(iter(found(texts, question, hops, made)))


def letters(names: Sequence[str]) -> dict[str, Text]:
    """Letters that differ in what they are about alone; the first is the nearest to any question, the last the
    farthest."""
    written = "The sum of {} of the year 2026 is due within 14 days. Please transfer it to the account of our office."
    return {
        f"Letter {'abcdefgh'[i % 8]} {i // 8}": Text(written.format(name), 0.9 - i / 100)
        for i, name in enumerate(names)
    }


@pytest.mark.parametrize("made", INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("invoice INV-28188", "What is the sum of invoice INV-28188?"),
        ("invoice INV-28188", "sum 28188"),
        ("invoice no. 28188", "What is the sum of invoice INV-28188?"),
        ("order E12", "What is the sum of order E12?"),
        ("order E-12", "What is the sum of order E12?"),
        ("part SK20931C", "sum SK-20931-C"),
        ("release 2.1", "What is the sum of release 2.1?"),
        ("the part AB/7-C", "What is the sum of the part AB/7-C?"),
        ("room 101", "What is the sum of room 101?"),
        ("mail to ola@vestby.no", "What is the sum of the mail to ola@vestby.no?"),
    ],
)
def test_the_passage_that_has_the_identifier_asked_for_comes_first(name, asked, hops, made):
    """Of forty like letters, whatever their dense vectors say."""
    texts = letters([f"invoice INV-{10_000 + 37 * i}" for i in range(39)] + [name])
    assert first(texts, asked, hops, made) == list(texts)[-1]


def test_the_passage_that_has_an_identifier_comes_before_one_that_a_link_names():
    texts = letters([f"invoice INV-{10_000 + 37 * i}" for i in range(40)])
    texts |= {
        "Vestby Energi": Text("Vestby Energi sells power. What is the sum of an invoice? It is in the letter.", 0.95)
    }
    assert first(texts, "What is the sum of the invoice INV-11443 of Vestby Energi?") == list(texts)[39]


def test_an_identifier_of_several_passages_favours_each_by_its_share():
    """The more passages have it, the less it says."""
    invoices = [f"invoice INV-{10_000 + 37 * i}" for i in range(40)]
    texts = letters([*invoices[:30], *["order AX-77"] * 2, *invoices[30:]])
    assert set(list(found(texts, "What is the sum of order AX-77?"))[:2]) == set(list(texts)[30:32])


@pytest.mark.parametrize(
    "asked",
    [
        "What is the sum that is due within 14 days?",  # 14 counts
        "What is the sum of the year 2026?",  # in all of them
        "What is the sum of invoice INV-99999?",  # in none
    ],
)
def test_a_number_that_identifies_no_passage_decides_nothing(asked):
    texts = letters([f"invoice INV-{10_000 + 37 * i}" for i in range(40)])
    scores = found(texts, asked, hops=1)
    assert next(iter(scores)) == next(iter(texts))
    assert max(scores.values()) <= 1.0


def test_a_small_number_of_one_passage_decides_nothing():
    texts = letters([f"invoice INV-{10_000 + 37 * i}" for i in range(39)] + ["the 3 boats"])
    assert found(texts, "Name 3 reasons to transfer it to our account", hops=1)[list(texts)[-1]] < 1.0


def test_an_identifier_that_only_documents_left_out_have_decides_nothing():
    texts = letters([f"invoice INV-{10_000 + 37 * i}" for i in range(40)])
    chosen = frozenset(f"document {title}" for title in list(texts)[:10])
    scores = found(texts, "What is the sum of invoice INV-11443?", document_ids=chosen)
    assert set(scores) == set(list(texts)[:10])


def test_of_many_identifiers_the_first_are_looked_up():
    """A question of thousands of numbers takes a bounded number of look-ups."""

    looked_up = []

    class Counted(MemoryIndex):
        def holders(self, tenant_id, collection_id, terms, *args, **kwargs):
            looked_up.append(len(terms[0]))
            return super().holders(tenant_id, collection_id, terms, *args, **kwargs)

    texts = letters([f"invoice INV-{10_000 + 37 * i}" for i in range(HOLDERS)])
    found(texts, " ".join(str(10_000 + i) for i in range(5_000)), hops=1, made=Counted)
    assert len(looked_up) <= 2
    assert max(looked_up) == TERMS


PARTIES = ["Vestby", "Harlow", "Norden", "Kestrel", "Brightwater", "Castello", "Oakfield", "Sunmark"]


NEAREST = 0.5
"""The score of the passage that is nearest, and has no word of the question."""


def contracts(parties: Sequence[str] = PARTIES) -> dict[str, Text]:
    """Like contracts, whose first page alone names the party. Of their clauses the nearest to a question is that of the
    first one, and none has a word of it."""
    pages = {
        f"Agreement {i}, page 1": Text(f"between Meridian and {party}, the customer", 0.3, document=party)
        for i, party in enumerate(parties)
    }
    return pages | {
        f"Agreement {i}, page 2": Text("It takes thirty days in writing.", 0.9 - i / 1000, document=party)
        for i, party in enumerate(parties)
    }


@pytest.mark.parametrize("made", INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("number", [0, 4, 7])
def test_of_like_documents_the_one_that_another_passage_identifies_is_meant(number, hops, made):
    scores = found(contracts(), f"How long is notice to {PARTIES[number]}?", hops, made)
    assert next(title for title in scores if title.endswith("page 2")) == f"Agreement {number}, page 2"


def test_words_that_many_passages_have_say_nothing_of_their_documents():
    texts = contracts([f"Party{i}" for i in range(RARE + 1)])
    clauses = [title for title in texts if "page 2" in title]
    scores, without = found(texts, "Who is the customer?", hops=1), found(texts, "Who is the zebra?", hops=1)
    assert [scores[title] for title in clauses] == pytest.approx([without[title] for title in clauses])


def test_a_common_word_counts_among_the_documents_that_have_a_rare_one():
    """Vestby Energi: two documents have the first word, a hundred the other."""
    parties = ["Vestby Foods", "Vestby Energi", *(f"Party{i} Energi" for i in range(2 * RARE))]
    scores = found(contracts(parties), "How long is notice to Vestby Energi?", hops=1)
    assert next(title for title in scores if "page 2" in title) == "Agreement 1, page 2"


def test_a_document_is_meant_by_the_name_of_its_file():
    """Which none of its passages has."""
    texts = {title: replace(text, document=f"plan_{text.document}.pdf") for title, text in contracts().items()}
    texts = {title: replace(text, text=text.text.split(" and ")[0]) for title, text in texts.items()}
    scores = found(texts, f"How long is notice by plan_{PARTIES[5]}.pdf?", hops=1)
    assert next(title for title in scores if "page 2" in title) == "Agreement 5, page 2"
    assert scores["Agreement 5, page 2"] > 1.0


def test_the_rarity_of_a_name_is_that_of_the_collection():
    """Two of twelve files are plans, six have a passage about the harbour: the plan is meant, also of two documents."""
    parties = [f"Party{i}" for i in range(10)] + ["plan_a.pdf", "plan_b.pdf"]
    texts = {
        title: replace(text, text=f"{text.text} at the harbour")
        if title.endswith("page 1") and text.document in parties[:6]
        else text
        for title, text in contracts(parties).items()
    }
    texts = {title: replace(text, text=text.text.replace("plan_", "")) for title, text in texts.items()}
    scores = found(texts, "How long is notice by the plan of the harbour?", 1, document_ids=frozenset(parties[3::8]))
    assert next(title for title in scores if "page 2" in title) == "Agreement 11, page 2"


def test_several_documents_that_are_meant_share():
    scores = found(contracts(), f"How long is notice to {PARTIES[0]} or {PARTIES[5]}?", hops=1)
    assert scores["Agreement 0, page 2"] == pytest.approx(NEAREST + 1 / 2 / 2, abs=1e-6)


def test_what_only_documents_left_out_say_does_not_count():
    chosen = frozenset(PARTIES[:4])
    question = f"How long is notice to {PARTIES[0]} or {PARTIES[5]}?"
    seen = {title: text for title, text in contracts().items() if text.document in chosen}
    assert found(contracts(), question, 1, document_ids=chosen) == pytest.approx(found(seen, question, 1))


def test_the_words_of_the_only_document_say_nothing():
    texts = {title: text for title, text in contracts().items() if text.document == PARTIES[0]}
    scores = found(texts, f"How long is notice to {PARTIES[0]}?", hops=1)
    assert scores["Agreement 0, page 2"] == pytest.approx(NEAREST)


def test_a_document_of_one_passage_gains_nothing():
    """Its words count as those of the passage."""
    texts = {title: Text(text.text, text.nearness) for title, text in contracts().items()}
    assert max(found(texts, f"How long is notice to {PARTIES[0]}?", hops=1).values()) <= 1.0


def test_a_title_that_the_question_names_is_a_link():
    """No search prefers the passage: all others have the words of its title, and are nearer."""
    others = {
        f"Notes {i}": Text("The harbour board met at the harbour. The board of the harbour voted.", 0.9)
        for i in range(60)
    }
    texts = others | {
        "Harbour Board": Text("It has nine members and many other duties besides, which a law of its own names.", 0.1)
    }
    assert "Harbour Board" in list(found(texts, "Who chose the Harbour Board?"))[:5]


def test_the_enriched_search_finds_what_the_best_passage_speaks_of():
    """The question names neither, and no title leads there."""
    others = {f"Notes {i}": Text("The weather was fine on that day.", 0.5 - i / 1000) for i in range(60)}
    texts = others | {
        "Ferry": Text("The ferry of the fjord is driven by an electric turbine.", 0.9),
        "Machines": Text("An electric turbine needs oil twice a year.", 0.0, enriched=0.9),
    }
    asked = "Which supplies does the ferry of the fjord carry?"
    assert list(found(texts, asked, hops=2))[:2] == ["Ferry", "Machines"]
    assert "Machines" not in list(found(texts, asked, hops=1))[:5]


def linked(*named: str) -> dict[str, float]:
    """Scores after two hops of five notes, each nearer than the next, and of the two titles. named: for each note the
    title it names; in small letters, which all notes have, a title is no name."""
    texts = {
        f"note {i}": Text("on the road from alnwick to bodmin".replace(name.lower(), name), 0.9 - i / 10)
        for i, name in enumerate(named)
    }
    return found(texts | {"Alnwick": Text("a road", 0.2), "Bodmin": Text("a road", 0.21)}, "what")


def test_several_links_to_a_passage_count_as_the_strongest():
    """Many mention a capital; it is not the answer for that."""
    assert linked(*["Alnwick"] * 5) == pytest.approx(linked("Alnwick", "-", "-", "-", "-"))


def test_a_link_from_a_worse_passage_weighs_less():
    scores, without = linked("Alnwick", "-", "-", "Bodmin", "-"), linked(*"-----")
    gains = {title: scores[title] - without[title] for title in scores}
    assert gains == pytest.approx(dict.fromkeys(scores, 0.0) | {"Alnwick": 1.0, "Bodmin": 0.25})


def test_a_passage_that_names_its_own_title_is_no_link_to_itself():
    texts = {
        "Alnwick": Text("Alnwick is a town.", 0.5),
        "Bodmin": Text("It is a town.", 0.51),
        "Corfe": Text("A town.", 0.52),
    }
    silent = texts | {"Alnwick": Text("alnwick is a town.", 0.5)}
    assert found(texts, "what")["Alnwick"] == pytest.approx(found(silent, "what")["Alnwick"])


def test_a_search_cleans_its_question():
    """As copied from a page, with a zero width space and a soft hyphen inside the words."""
    texts = letters([f"invoice INV-{10_000 + 37 * i}" for i in range(40)])
    retriever = retriever_over(texts, "What is the sum of INV-11443?", MemoryIndex())

    searcher = Searcher(retriever, Threads("retrieval", 1))
    copied = "What is the s\u00adum of INV-11\u200b443?"
    passages = asyncio.run(searcher.search("t", "c", copied, top_k=3, hops=1))
    assert passages[0].chunk.title == list(texts)[-1]
