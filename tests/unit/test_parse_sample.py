"""The sample corpus that the repository carries."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ingest.parse import Parsed, parse

SAMPLE = Path(__file__).parents[2] / "docs" / "sample"
DOCUMENTS = sorted((SAMPLE / "documents").iterdir())
QUESTIONS: list[dict[str, Any]] = [json.loads(line) for line in (SAMPLE / "questions.jsonl").read_text().splitlines()]


def articles(parsed: Parsed) -> dict[str, str]:
    """Text by title; the document's own heading is not an article."""
    ends = [*(s.start for s in parsed.sections[1:]), len(parsed.text)]
    found = {s.title: parsed.text[s.body : end] for s, end in zip(parsed.sections, ends, strict=True)}
    return {title: text for title, text in found.items() if text.strip()}


@pytest.fixture(scope="module")
def corpus() -> dict[str, str]:
    return {t: text for path in DOCUMENTS for t, text in articles(parse(path.name, path.read_bytes())).items()}


def test_the_sample_has_five_formats_and_a_hundred_articles(corpus: dict[str, str]) -> None:
    assert {path.suffix for path in DOCUMENTS} == {".md", ".html", ".txt", ".docx", ".pdf"}
    assert len(corpus) == 104
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*.*")) < 400_000


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_each_document_has_a_title_of_its_own(path: Path) -> None:
    parsed = parse(path.name, path.read_bytes())
    assert parsed.title == parsed.sections[0].title
    assert parsed.title != path.stem


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q["question"][:40])
def test_a_question_needs_both_of_its_articles(question: dict[str, Any], corpus: dict[str, str]) -> None:
    """The first names what the question asks about, the second alone has the answer."""
    texts = [" ".join(corpus[title].split()) for title in question["gold_titles"]]
    answers = re.compile("|".join(map(re.escape, question["answers"])))
    assert sum(bool(answers.search(text)) for text in texts) == 1


def test_every_article_is_named_with_its_source() -> None:
    sources = (SAMPLE / "SOURCES.md").read_text()
    for path in DOCUMENTS:
        assert all(title in sources for title in articles(parse(path.name, path.read_bytes())))
