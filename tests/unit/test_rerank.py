"""A cross-encoder of random weights, made here: what is read, how orders are fused, what is refused."""

import json
from functools import partial

import pytest
import torch
from click.testing import CliRunner
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

from bench.retrieval import METHODS, RERANKED
from ragkv.chunk import Chunk, Passage
from ragkv.cli import main
from ragkv.errors import Rejected
from ragkv.models import encoder_folder, reranker_folder
from ragkv.retrieve.encoder import Encoder, embed_chunks, embed_question
from ragkv.retrieve.index import Point
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.names import Named
from ragkv.retrieve.rerank import CANDIDATES, Reranker
from ragkv.retrieve.retriever import Retriever
from ragkv.settings import Settings

WORDS = [f"word{i}" for i in range(200)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def save_bert(folder, kind, labels=1):
    """A BERT so small that it takes a millisecond, with weights that tell texts apart."""
    torch.manual_seed(3)
    folder.mkdir()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL, *WORDS]))
    config = BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=labels,
        initializer_range=1.0,
    )
    kind(config).eval().save_pretrained(folder)
    BertTokenizerFast(str(vocabulary), model_max_length=64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("models") / "cross-encoder", BertForSequenceClassification)


@pytest.fixture(scope="module")
def reranker(folder):
    return Reranker.load(folder)


def passage(name: str, text: str, rank: int) -> Passage:
    return Passage(
        Chunk(name, "d", rank, "word0", text, 0, len(text), None, (1,)), score=1 / (1 + rank), hop=1 + rank % 2
    )


def test_scores_are_the_models_own_for_question_and_text_together(reranker, folder):
    texts = ["word1 word2", "word3", "word4 " * 30, "word5 word6 word7"]
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = [model(**tokenizer("word9", text, return_tensors="pt")).logits.item() for text in texts]

    scores = reranker.scores("word9", texts)

    assert scores == pytest.approx(torch.sigmoid(torch.tensor(logits)).tolist(), abs=1e-5)
    assert len(set(scores)) == len(texts)


def test_a_text_beyond_the_window_is_cut(reranker):
    assert len(reranker.scores("word9", ["word1 " * 5000])) == 1


def test_nothing_to_score_is_no_error(reranker):
    assert reranker.scores("word9", []) == []
    assert reranker.reordered("word9", []) == []


def test_both_orders_have_an_equal_say(reranker):
    """Reciprocal ranks add up: first in one order and third in the other is 1/2 + 1/4."""
    passages = [passage(f"p{i}", f"word{7 * i} word{i + 1}", i) for i in range(6)]
    scores = reranker.scores("word9", [f"word0\n{p.chunk.text}" for p in passages])
    by_model = sorted(range(6), key=lambda i: -scores[i])
    expected = {f"p{i}": 1 / (2 + i) + 1 / (2 + by_model.index(i)) for i in range(6)}

    found = reranker.reordered("word9", passages)

    assert {p.chunk.id: p.score for p in found} == pytest.approx(expected)
    assert [p.score for p in found] == sorted(expected.values(), reverse=True)
    assert {p.chunk.id: p.hop for p in found} == {p.chunk.id: p.hop for p in passages}


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [(BertModel, 1, "holds no cross-encoder: RAGKV_RERANKER"), (BertForSequenceClassification, 3, "gives 3 scores")],
)
def test_a_model_that_is_no_re_ranker_is_refused(tmp_path, kind, labels, message):
    with pytest.raises(Rejected, match=message):
        Reranker.load(save_bert(tmp_path / "other", kind, labels))


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(Rejected, match="RAGKV_RERANKER"):
        Reranker.load(tmp_path)
    with pytest.raises(Rejected, match=r"RAGKV_RERANKER=.*no config\.json"):
        reranker_folder(Settings(reranker=str(tmp_path)))


def test_there_is_no_re_ranker_unless_one_is_set(folder):
    assert reranker_folder(Settings()) is None
    assert reranker_folder(Settings(reranker=str(folder))) == folder


class Library:
    """Chunks in memory: what the database is to retrieval."""

    def __init__(self, texts):
        self.held = {t: Chunk(t, "d", i, "", t, 0, len(t), None, (1,)) for i, t in enumerate(texts)}

    def indexed_documents(self, tenant_id, collection_id):
        return {"d": 1}

    def of_other_encoders(self, tenant_id, collection_id):
        return frozenset()

    def outdated(self, tenant_id, collection_id):
        return frozenset()

    def named(self, tenant_id, collection_id, terms, limit, document_ids=None):
        return [Named(0, frozenset()) for _ in terms]

    def chunks(self, tenant_id, chunk_ids):
        return [self.held[i] for i in chunk_ids if i in self.held]

    def titles(self, tenant_id, collection_id, document_ids=None):
        return []


def test_the_retriever_orders_the_best_candidates_anew(reranker):
    """What the re-ranker likes may come from below the passages asked for, and from among the candidates alone."""
    encoder = Encoder.load(encoder_folder(Settings()))
    library = Library([f"word9 word{i}" for i in range(CANDIDATES + 5)])
    index = MemoryIndex()
    vectors = embed_chunks(encoder, [("", text) for text in library.held])
    index.upsert("t", "c", [Point(t, "d", "", v) for t, v in zip(library.held, vectors, strict=True)])
    plain = Retriever(partial(embed_question, encoder), index, library).search("t", "c", "word9", CANDIDATES, hops=2)

    found = Retriever(partial(embed_question, encoder), index, library, reranker=reranker).search(
        "t", "c", "word9", 5, hops=2
    )

    expected = reranker.reordered("word9", plain)[:5]
    assert [p.chunk.id for p in found] == [p.chunk.id for p in expected]
    assert {p.chunk.id for p in found} != {p.chunk.id for p in plain[:5]}


def test_eval_has_two_more_rows_with_a_re_ranker(tmp_path, folder):
    corpus, data, out = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl", tmp_path / "report.json"
    corpus.write_text("".join(json.dumps({"id": i, "text": f"word{i} word{i + 1}"}) + "\n" for i in range(12)))
    data.write_text(json.dumps({"question": "word3", "gold_ids": [3]}) + "\n")
    arguments = ["eval", "retrieval", "--corpus", str(corpus), "--data", str(data), "--json", str(out)]
    env = {"RAGKV_RERANKER": str(folder), "COLUMNS": "120"}

    result = CliRunner().invoke(main, arguments, env=env)

    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert report["reranker"] == str(folder)
    assert [row["method"] for row in report["rows"]] == [*METHODS, *RERANKED]
    assert all(row["ms_per_query"] > 0 for row in report["rows"])
    assert "RAGKV_RERANKER" not in result.stdout
