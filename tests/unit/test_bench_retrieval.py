"""Recall on a corpus of passages: what counts, what is refused, and one run with the embedded encoder."""

import json
import math
import re

import pytest
from click.testing import CliRunner

from bench.retrieval import (
    METHODS,
    Corpus,
    FoundPassages,
    evaluate,
    has_all,
    read_questions,
    recall,
    reciprocal_rank,
    summarise,
)
from ragkv.cli import main
from ragkv.errors import Rejected
from ragkv.models import encoder_folder
from ragkv.retrieve.encoder import Encoder
from ragkv.retrieve.names import name_terms
from ragkv.settings import Settings

# From 2WikiMultihopQA (Apache-2.0), shortened.
PASSAGES = [
    {"id": 0, "title": "Lothair II", "text": "Lothair II was the second son of Lothair I and Ermengarde of Tours."},
    {"id": 1, "title": "Ermengarde of Tours", "text": "Ermengarde of Tours (d. 20 March 851) was buried in Erstein."},
    {"id": 2, "title": "Teutberga", "text": "Teutberga( died 11 November 875) was a queen of Lotharingia."},
    {"id": 3, "title": "Dino Risi", "text": "Dino Risi( 23 December 1916 - 7 June 2008) was an Italian director."},
    {"id": 4, "title": "Blood Street", "text": "Blood Street is a 1988 film co-directed by Leo Fong."},
    {"id": 5, "title": "Leo Fong", "text": "Leo Fong (born November 23, 1928) is a Chinese American actor."},
    {"id": 6, "title": "Swapan Saha", "text": "Swapan Saha( born 10 January 1930) is an Indian film director."},
    {"id": 7, "title": "Diane Kurys", "text": "Diane Kurys( born 3 December 1948) is a French filmmaker."},
    {"id": 8, "title": "Erstein", "text": "Erstein is a town in the Elsass, on the river Ill."},
    {"id": 9, "title": "Ajmer", "text": "Ajmer is a city in Rajasthan. It lies among hills."},
    {"id": 10, "title": "Lyon", "text": "Lyon is a city where two rivers meet. It is known for silk."},
]
QUESTIONS = [
    {"id": "a", "question": "When did Lothair II's mother die?", "gold_ids": [0, 1]},
    {"id": "b", "question": "What nationality is the director of film Blood Street?", "gold_ids": [4, 5]},
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def corpus_file(tmp_path):
    return write_lines(tmp_path / "corpus.jsonl", PASSAGES)


@pytest.fixture
def data_file(tmp_path):
    return write_lines(tmp_path / "queries.jsonl", QUESTIONS)


@pytest.fixture
def corpus(corpus_file):
    return Corpus.read(corpus_file)


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load(encoder_folder(Settings()))


@pytest.mark.parametrize(("k", "share"), [(1, 0.0), (2, 0.5), (3, 0.5), (4, 1.0), (10, 1.0)])
def test_recall_is_the_share_of_gold_passages_among_the_first_k(k, share):
    assert recall(["x", "a", "y", "b"], {"a", "b"}, k) == share


def test_recall_of_nothing_found_is_zero():
    assert recall([], {"a"}, 10) == 0


@pytest.mark.parametrize(("k", "all_found"), [(2, False), (3, False), (4, True)])
def test_all_gold_needs_every_gold_passage(k, all_found):
    assert has_all(["x", "a", "y", "b"], {"a", "b"}, k) is all_found


def test_three_gold_passages_are_never_all_among_two():
    assert not has_all(["a", "b", "c"], {"a", "b", "c"}, 2)


@pytest.mark.parametrize(("found", "expected"), [(["a", "b"], 1), (["x", "y", "b", "a"], 1 / 3), (["x"], 0), ([], 0)])
def test_the_reciprocal_rank_is_that_of_the_first_gold_passage(found, expected):
    assert reciprocal_rank(found, {"a", "b"}) == expected


def test_a_row_is_the_mean_over_questions_in_percent_and_the_median_time():
    outcomes = [
        FoundPassages(["a", "b"], frozenset("ab"), seconds=0.001),
        FoundPassages(["x", "c", "y", "d"], frozenset("cd"), seconds=0.002),
        FoundPassages(["x", "y"], frozenset("efgh"), seconds=9.0),
    ]
    row = summarise("dense", outcomes)

    assert row.method == "dense"
    assert row.recall_at_2 == pytest.approx(100 * (1 + 0.5 + 0) / 3, abs=1e-3)
    assert row.recall_at_5 == row.recall_at_10 == pytest.approx(100 * 2 / 3, abs=1e-3)
    assert row.all_gold_at_2 == pytest.approx(100 / 3, abs=1e-3)
    assert row.all_gold_at_5 == row.all_gold_at_10 == pytest.approx(100 * 2 / 3, abs=1e-3)
    assert row.mrr == pytest.approx(100 * (1 + 0.5 + 0) / 3, abs=1e-3)
    assert row.ms_per_query == pytest.approx(2.0)


def test_a_corpus_keeps_its_passages_by_id_and_title(tmp_path):
    """Ids may be numbers or strings, a title may be missing, several passages may share one."""
    rows = [{"id": 7, "title": "T", "text": "one"}, {"id": "b", "title": "T", "text": "two"}, {"id": 9, "text": "x"}]
    corpus = Corpus.read(write_lines(tmp_path / "c.jsonl", rows))

    assert len(corpus) == 3
    assert "7" in corpus and "8" not in corpus
    assert [chunk.text for chunk in corpus.chunks("t", ["b", "gone", "7"])] == ["two", "one"]
    assert [(chunk.title, chunk.chunk_id) for chunk in corpus.titles("t", "c")] == [("T", "7"), ("T", "b"), ("", "9")]


def test_passages_are_of_the_document_they_name_or_of_one_of_their_own(tmp_path):
    rows = [
        {"id": 1, "text": "a", "document": "plan.pdf"},
        {"id": 2, "text": "b"},
        {"id": 3, "text": "c", "document": "plan.pdf"},
    ]
    corpus = Corpus.read(write_lines(tmp_path / "c.jsonl", rows))

    documents = [chunk.document_id for chunk in corpus.chunks("t", ["1", "2", "3"])]
    assert documents[0] == documents[2] != documents[1]
    assert set(corpus.indexed_documents("t", "c")) == set(documents)
    assert corpus.named("t", "c", sorted(name_terms("plan")), 1) == [(1, {documents[0]})]


def test_blank_lines_are_skipped_and_still_counted(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": 1, "title": "", "text": "a"}\n\n  \n{"id": 2}\n')

    with pytest.raises(Rejected, match=r"c\.jsonl, line 4: .*`text`"):
        Corpus.read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": 1, "text": "a"}\nnot json\n', "line 2: JSON is malformed"),
        (b'{"id": 1, "text": "a"}\n[1]\n', "line 2: Expected `object`"),
        (b'{"id": 1, "text": 5}\n', "line 1: Expected `str`"),
        (b'{"id": 1, "text": "\xff"}\n', "line 1: .*can't decode"),
        (b'{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}\n', "line 2: a second passage with id 1"),
        (b'{"id": 1, "text": "a"}\n{"id": "1", "text": "b"}\n', "line 2: a second passage with id 1"),
        (b"\n", "no passages"),
    ],
)
def test_a_bad_corpus_is_refused_with_file_and_line(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)

    with pytest.raises(Rejected, match=rf"bad\.jsonl.*{message}"):
        Corpus.read(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: Input data was truncated"),
        ('{"question": "q"}', "line 2: .*`gold_ids`"),
        ('{"question": "q", "gold_ids": []}', "line 2: .*length >= 1"),
        ('{"question": "", "gold_ids": [1]}', "line 2: .*length >= 1"),
        ('{"question": "q", "gold_ids": [1, 99, 98]}', "line 2: no passage with id 99, 98 in the corpus"),
    ],
)
def test_bad_questions_are_refused_with_file_and_line(tmp_path, corpus, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{json.dumps(QUESTIONS[0])}\n{line}\n")

    with pytest.raises(Rejected, match=rf"bad\.jsonl, {message}"):
        read_questions(path, corpus)


def test_a_file_without_questions_is_refused(tmp_path, corpus):
    with pytest.raises(Rejected, match=r"none\.jsonl: no questions"):
        read_questions(write_lines(tmp_path / "none.jsonl", []), corpus)


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path, corpus, name):
    for read in (Corpus.read, lambda path: read_questions(path, corpus)):
        with pytest.raises(Rejected, match=str(tmp_path / name)):
            read(tmp_path / name)


def test_a_limit_takes_the_first_questions(data_file, corpus):
    assert [q.text for q in read_questions(data_file, corpus, limit=1)] == [QUESTIONS[0]["question"]]
    assert len(read_questions(data_file, corpus)) == len(read_questions(data_file, corpus, limit=9)) == 2


def test_every_method_is_measured_and_hops_find_what_the_question_does_not_name(data_file, corpus, encoder):
    told = []
    rows, _ = evaluate(corpus, read_questions(data_file, corpus), encoder, lambda *what: told.append(what))

    assert tuple(row.method for row in rows) == METHODS
    by_method = {row.method: row for row in rows}
    assert by_method["hybrid + hops"].all_gold_at_2 == 100
    assert by_method["bm25"].recall_at_2 < 100, "the mother and the director are not named"
    assert all(row.mrr == 100 for row in rows), "each question names one of its passages"
    assert all(row.ms_per_query > 0 for row in rows)
    assert told[-1] == ("asking questions", 2, 2)
    assert ("encoding passages", 11, 11) in told


def test_a_question_of_stop_words_finds_nothing_by_bm25(tmp_path, corpus, encoder):
    """And the other methods still search for it."""
    data = write_lines(tmp_path / "q.jsonl", [{"question": "who was it?", "gold_ids": [0]}])
    found, _ = evaluate(corpus, read_questions(data, corpus), encoder, lambda *what: None)
    rows = {row.method: row for row in found}

    assert rows["bm25"].mrr == 0
    assert rows["dense"].mrr == rows["hybrid"].mrr > 0


def test_the_command_prints_a_table_and_writes_the_same_figures(tmp_path, corpus_file, data_file):
    """JSON for machines, in percent."""
    out = tmp_path / "report.json"
    files = ["--corpus", str(corpus_file), "--data", str(data_file), "--json", str(out)]
    result = CliRunner().invoke(main, ["eval", "retrieval", *files, "--limit", "1"], env={"COLUMNS": "80"})

    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert (report["corpus"], report["data"]) == (corpus_file.name, data_file.name)
    assert (report["n"], report["passages"]) == (1, 11)
    assert (report["encoder"], report["reranker"]) == ("embedded", None)
    assert [row["method"] for row in report["rows"]] == list(METHODS)
    figures = {"recall_at_2", "recall_at_5", "recall_at_10", "all_gold_at_2", "all_gold_at_5", "all_gold_at_10", "mrr"}
    for row in report["rows"]:
        assert row.keys() == figures | {"method", "ms_per_query"}
        assert all(0 <= row[name] <= 100 and math.isfinite(row[name]) for name in figures)
        assert row["method"] in result.stdout
    assert "R@2 R@5 R@10 all@2 all@5 all@10 MRR@10 ms" in re.sub(" +", " ", result.stdout), "in 80 columns"
    assert "questions: 1, passages: 11" in result.stdout
    assert "hybrid + hops against dense: all@5 +0.0 points" in result.stdout, "one question, and dense finds both"
    assert "RAGKV_RERANKER" in result.stdout, "how to get the rows that are left out"


def test_the_command_says_in_one_line_what_is_wrong(tmp_path, corpus_file):
    arguments = ["eval", "retrieval", "--corpus", str(corpus_file), "--data", str(tmp_path / "missing.jsonl")]
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 1
    assert result.stderr == f"ragkv: {tmp_path / 'missing.jsonl'}: No such file or directory\n"


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, corpus_file, data_file):
    out = tmp_path / "nowhere" / "report.json"
    arguments = ["--corpus", str(corpus_file), "--data", str(data_file), "--json", str(out)]
    result = CliRunner().invoke(main, ["eval", "retrieval", *arguments])

    assert result.exit_code == 1
    assert f"there is no folder {out.parent}" in result.stderr
    assert not result.stdout
