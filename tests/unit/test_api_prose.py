"""The texts of the OpenAPI document: read by people who have never seen the code."""

import re
from collections.abc import Iterator

import pytest

from api.app import EXAMPLES, create_app
from api.schema.document import Json, document_of
from ragkv.service.parts import Parts
from ragkv.settings import Settings

VERBS = frozenset({
    "Ask", "Attach", "Cancel", "Check", "Create", "Delete", "Detach", "Download", "Evaluate", "Evict", "Get", "List", "Pin", "Rebuild",
    "Rate", "Replace", "Retry", "Revoke", "Search", "Stop", "Stream", "Sync", "Update", "Upload", "Verify",
})  # fmt: skip
MORE_VERBS = VERBS | {"Answer", "Embed", "Queue", "Rename"}
LONGEST_SUMMARY = 60
NO_OPENING = re.compile(r"(?i)(what|who|whose|which|where|how|nobody|somebody)\b")
NO_PHRASE = re.compile(
    r"(?i)\b(will not do|for want of|one of ours|nobody|somebody|anybody|whoever|of its own|serves? again|has come|"
    r"rests? on|left out|leave it out|have come|is away|made anew|no longer there|stays)\b"
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    parts = Parts(Settings(data_dir=tmp_path_factory.mktemp("prose")))
    parts.prepare_database()
    yield document_of(create_app(parts), EXAMPLES)
    parts.close()


def test_a_summary_is_short_and_opens_with_a_verb(document: Json):
    for where, operation in operations_of(document):
        summary = operation["summary"]
        assert summary.split()[0] in VERBS, (where, summary)
        assert len(summary.split()) > 1, (where, summary)
        assert len(summary) <= LONGEST_SUMMARY, (where, summary)
        assert not summary.endswith("."), (where, summary)


def test_a_description_of_an_operation_is_a_sentence_with_a_verb_first(document: Json):
    for where, operation in operations_of(document):
        text = operation["description"]
        assert text.split()[0] in MORE_VERBS, (where, text)
        assert text.endswith("."), (where, text)


def test_every_summary_is_that_of_one_operation(document: Json):
    summaries = sorted(operation["summary"] for _, operation in operations_of(document))

    assert summaries == sorted(set(summaries))


def test_everything_is_described(document: Json):
    for where, text in texts_of(document):
        assert isinstance(text, str), where
        assert text.strip(), where


def test_descriptions_are_plain_english(document: Json):
    for where, text in texts_of(document):
        assert not NO_OPENING.match(text), (where, text)
        assert not NO_PHRASE.search(text), (where, text)
        assert not text[0].islower(), (where, text)


def test_every_tag_that_is_used_is_described(document: Json):
    used = {tag for _, operation in operations_of(document) for tag in operation["tags"]}

    assert used == {tag["name"] for tag in document["tags"]}


def operations_of(document: Json) -> Iterator[tuple[str, Json]]:
    for path, item in document["paths"].items():
        yield from ((f"{method} {path}", operation) for method, operation in item.items())


def texts_of(document: Json) -> Iterator[tuple[str, str | None]]:
    """Every text that a reader sees: where, and the text; None for one that is missing."""
    yield "info", document["info"]["description"]
    yield from ((f"tag {tag['name']}", tag["description"]) for tag in document["tags"])
    for name, scheme in document["components"]["securitySchemes"].items():
        yield f"key {name}", scheme["description"]
    for where, operation in operations_of(document):
        yield f"{where}: summary", operation["summary"]
        yield f"{where}: description", operation["description"]
        for parameter in operation.get("parameters", ()):
            yield f"{where}: parameter {parameter['name']}", parameter.get("description")
        for status, answer in operation["responses"].items():
            yield f"{where}: {status}", answer.get("description")
            for header, described in answer.get("headers", {}).items():
                yield f"{where}: header {header}", described.get("description")
            yield from _events(where, answer)
    for name, schema in document["components"]["schemas"].items():
        yield f"type {name}", schema.get("description")
        for field, described in schema.get("properties", {}).items():
            yield f"field {name}.{field}", described.get("description")


def _events(where: str, answer: Json) -> Iterator[tuple[str, str | None]]:
    """The fields of server-sent events."""
    for media in answer.get("content", {}).values():
        for event in [media["schema"], *media["schema"].get("oneOf", ())]:
            for field, described in event.get("properties", {}).items():
                yield f"field {where}: event's {field}", described.get("description")
