"""Questions about documents whose KV is being computed: the first token with early reuse, without it, and once the
document is ready.

`python -m bench.measure.early_reuse CORPUS.jsonl --documents 10`, as a Markdown table. CORPUS has a JSON object of
`title` and `text` a line. Two services with engine and worker are real; documents go to both in turns, one that waits
for KV that a worker is computing and one that does not. Each document has a sentence of its own that the question asks
for.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ragkv.settings import PREFIX
from tests.e2e.service import Service, environment, started
from tests.support.over_http import free_port

QUESTION = "Who keeps the lighthouse of {place}?"
SENTENCE = "The lighthouse of {place} is kept by {keeper}. It was built on the cliff above the harbour."
NEVER = {"kv_wait_ms": 0}
LETTERS = ("ka", "lo", "mi", "ru", "ta", "ve", "zo", "ni")


@dataclass(frozen=True)
class Asked:
    """One answer: seconds to the first token and to the end, and what of its passages' KV was missing."""

    ttft_s: float
    took_s: float
    missing: int
    is_right: bool
    text: str


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--documents", type=int, default=10, help="documents for each service")
    parser.add_argument("--passages", type=int, default=60, help="passages of a document")
    parser.add_argument("--after", type=float, default=1.0, help="seconds from searchable to the question")
    given = parser.parse_args()
    passages = [json.loads(line) for line in given.corpus.read_text().splitlines()]
    rows: dict[str, list[Asked]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="ragkv-early-") as folder, ExitStack() as stack:
        services = {
            name: stack.enter_context(_service(Path(folder, name), **more))
            for name, more in (("early reuse", {}), ("no waiting", NEVER))
        }
        for number in range(-1, given.documents):  # the first shows the processes how fast they are
            for name, service in services.items():
                some = random.Random(number).sample(passages, given.passages)
                for when, asked in _asked_about(service, _named(number), some, given.after).items():
                    if number >= 0:
                        rows[when or name].append(asked)
                        print(f"{when or name}: {asked}", flush=True)
        counted = {name: _counts(service) for name, service in services.items()}
    print(
        "| asked | answers | first token, median | slowest | passages without KV, mean | right |\n|---|---|---|---|---|---|"
    )
    for name, asked in rows.items():
        ttft = [one.ttft_s for one in asked]
        right, missing = sum(one.is_right for one in asked), statistics.mean(one.missing for one in asked)
        print(
            f"| {name} | {len(asked)} | {statistics.median(ttft):.2f} s | {max(ttft):.2f} s | {missing:.1f} | {right} |"
        )
    print(*(f"{name}: {counts}" for name, counts in counted.items()), sep="\n")


def _service(folder: Path, **settings: Any):
    folder.mkdir()
    data = folder / "data"
    unset = {f"{PREFIX}{name}" for name in ("CHUNK_TOKENS", "KV_CACHE_GIB", "DTYPE", "MODEL")}
    environ = {name: value for name, value in environment(data, "embedded", **settings).items() if name not in unset}
    return started(environ, free_port(), folder / "serve.log")


def _named(number: int) -> tuple[str, str]:
    draw = random.Random(f"name {number}")
    place, keeper = ("".join(draw.choices(LETTERS, k=3)).title() for _ in range(2))
    return place, f"{keeper} Ostrava"


def _asked_about(
    service: Service, named: tuple[str, str], passages: list[dict[str, str]], after_s: float
) -> dict[str, Asked]:
    """The answer `after_s` after the document is searchable, then stitched and in full when it is ready. The document
    is deleted then."""
    place, keeper = named
    sections = [f"# {one['title']}\n\n{one['text']}" for one in passages]
    sections.insert(len(sections) * 2 // 3, f"# Lighthouse of {place}\n\n{SENTENCE.format(place=place, keeper=keeper)}")
    service.wait_ready()
    document_id = service.upload("lights.md", "\n\n".join(sections).encode()).json()["id"]
    service.wait_until(lambda: service.document(document_id)["status"] in {"searchable", "ready", "failed"})
    time.sleep(after_s)
    before = service.document(document_id)["status"]
    assert before == "searchable", f"the document is {before}: more --passages"
    asked = {"": _ask(service, place, keeper)}
    assert service.finished(document_id)["status"] == "ready"
    asked |= {f"ready, {mode}": _ask(service, place, keeper, mode=mode) for mode in ("full", "stitched")}
    service.client.delete(f"/v1/documents/{document_id}")
    return asked


def _ask(service: Service, place: str, keeper: str, **more: str) -> Asked:
    body = {"question": QUESTION.format(place=place), "max_tokens": 16, "stream": True, "answer_cache": False} | more
    began = time.perf_counter()
    first, answer = 0.0, dict[str, Any]()
    with service.client.stream("POST", "/v1/ask", json=body) as response:
        for event, data in _events(response):
            first = first or (time.perf_counter() - began if event == "delta" else 0.0)
            answer = data if event == "done" else answer
    text = answer["answer"]
    return Asked(
        first, time.perf_counter() - began, answer["usage"]["failed_chunks"], keeper.split(maxsplit=1)[0] in text, text
    )


def _events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    event = ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            yield event, json.loads(value)


def _counts(service: Service) -> dict[str, float]:
    lines = service.client.get("/metrics").text.splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples if name.startswith("ragkv_kv_awaited_total")}


if __name__ == "__main__":
    main()
