"""`ragkv ask`: answer one question in this process."""

import asyncio
from typing import get_args

import click
import msgspec
from rich.console import Console

from ragkv.answer.question import Answer, Citation, Question
from ragkv.chunk import Passage
from ragkv.cli.opened import COLLECTION, opened_parts, running_engine
from ragkv.service.base.redis import is_there
from ragkv.service.base.tenants import collection_ref
from ragkv.service.parts import Parts
from ragkv.settings import LEAST_READ, Mode
from ragkv.stitch.policies import ALIASES, POLICIES, PolicyAlias, PolicyName, policy_name

_QUOTE_CHARACTERS = 140


@click.command()
@click.argument("question")
@click.option("--stream", is_flag=True, help="Print the answer while it is generated.")
@COLLECTION
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="stitched",
    help="stitched: use stored KV. full: compute the whole prompt.",
)
@click.option(
    "--policy",
    type=click.Choice([*POLICIES, *ALIASES]),
    help="Policy that selects the tokens to recompute, by name or alias.",
)
@click.option("--recompute-ratio", type=click.FloatRange(0, 1), help="Share of the context to recompute.")
@click.option(
    "--sparse-ratio",
    type=click.FloatRange(LEAST_READ, 1),
    help="Share of the passages' tokens to read: whole passages, best rank first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ask(
    question: str,
    collection: str,
    stream: bool,
    mode: Mode,
    policy: PolicyName | PolicyAlias | None,
    recompute_ratio: float | None,
    sparse_ratio: float | None,
    as_json: bool,
) -> None:
    """Answer QUESTION from the ingested documents."""
    with opened_parts(Parts.prepare) as parts:
        ref = collection_ref(parts.default_collection.tenant_id, collection, parts.database)
        request = Question(
            ref.tenant_id, ref.collection_id, question, mode, policy_name(policy), recompute_ratio,
            sparse_ratio=sparse_ratio, sees_kept_question=True,
        )  # fmt: skip
        asyncio.run(_ask(parts, request, stream and not as_json, as_json))


async def _ask(parts: Parts, request: Question, stream: bool, as_json: bool) -> None:
    console = Console(stderr=True)
    # Where no Redis is configured and no service runs, nothing is cached, and answers take no feedback.
    answerer = parts.answerer if is_there(parts.redis, parts.settings) else parts.answerer.uncached
    await answerer.check(request)  # a question that cannot be answered must not wait for the engine
    async with running_engine(parts, console):
        async for event in answerer.stream(request):
            if isinstance(event, Answer):
                _finish(event, stream, as_json, console)
            elif stream:
                click.echo(event.text, nl=False)


def _finish(answer: Answer, stream: bool, as_json: bool, console: Console) -> None:
    if as_json:
        click.echo(msgspec.json.encode(as_builtins(answer)).decode())
        return
    click.echo("" if stream else answer.text)
    for citation in answer.citations:
        quote = " ".join(citation.quote.split())
        shown = quote if len(quote) <= _QUOTE_CHARACTERS else quote[: _QUOTE_CHARACTERS - 1] + "…"
        console.print(f"  {place(citation)}: {shown}", highlight=False, markup=False)
    for warning in answer.warnings:
        console.print(f"warning: {warning}", highlight=False, markup=False)
    console.print(summary(answer), highlight=False, markup=False)


def as_builtins(answer: Answer) -> dict[str, object]:
    """The answer in JSON's types, passages best first, without their token ids."""
    answer = answer.best_first()
    fields = msgspec.to_builtins(answer)
    del fields["prompt_positions"]
    passages = [_passage(*facts) for facts in zip(answer.passages, answer.prompt_positions, strict=True)]
    omitted = [_passage(passage) for passage in answer.omitted_passages]
    return {"answer": fields.pop("text"), **fields, "passages": passages, "omitted_passages": omitted}


def _passage(passage: Passage, prompt_position: int | None = None) -> dict[str, object]:
    return {
        "chunk_id": passage.chunk.id,
        "document_id": passage.chunk.document_id,
        "title": passage.chunk.title,
        "page": passage.chunk.page,
        "page_label": passage.chunk.page_label_at(),
        "start": passage.chunk.start,
        "end": passage.chunk.end,
        "score": passage.score,
        "hop": passage.hop,
        "prompt_position": prompt_position,
        "text": passage.chunk.text,
        "outdated": passage.chunk.outdated,
    }


def summary(answer: Answer) -> str:
    """One line on where the prompt's tokens came from and how long the first token took."""
    usage, timings, cached_answer = answer.usage, answer.timings, answer.cached_answer
    if cached_answer is not None:
        return f"from the answer cache: {cached_answer.question!r}, asked {cached_answer.age_s:.0f} s ago; after {timings.ttft_ms:.0f} ms"
    cached = f"{usage.cached} cached, " if usage.cached else ""
    read = (
        f"{len(answer.passages)} of {len(answer.passages) + len(answer.omitted_passages)} passages; "
        if answer.omitted_passages
        else ""
    )
    return (
        f"{read}{usage.prompt} prompt tokens: {cached}{usage.stitched} stitched, {usage.recomputed} recomputed, "
        f"{usage.computed} computed; first token after {timings.ttft_ms:.0f} ms "
        f"({timings.retrieve_ms:.0f} retrieval, {timings.engine_ttft_ms:.0f} engine)"
    )


def place(citation: Citation) -> str:
    """A citation's place: title, page, characters; and the reason if its text is outdated."""
    page = f", {citation.page_label}" if citation.page_label else ""
    outdated = f" (outdated: {citation.outdated})" if citation.outdated else ""
    return f"{citation.title}{page} [{citation.start}-{citation.end}]{outdated}"
