"""Several engines behind a router: share of prompt tokens found in an engine's cache, right answers, and kills.

`python -m bench.measure.routing ARTICLES.md --service URL`, as a table. ARTICLES has articles below lines that begin
with `# ` (docs/writer/articles.md). A running `ragkv serve` reads contexts cut from them, a document each, and is asked
about them as Zipf's law has it (1/rank), by clients each of which asks one question after the other.

--save FILE writes the answers as they come, --compare FILE counts those that differ from the ones in it: saved from a
service with one engine. --kill NAME ends one of the processes whose command line begins with NAME, by SIGKILL, some
seconds after the start, and again after it has been back for some.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.e2e.service import command_line

QUESTION = "What is told here, in one sentence?"
CHARACTERS = 4300
"""Of a context: some 1,000 tokens."""
QUIET_S = 10.0
"""At least, before the first kill and between a process's return and the next kill."""


@dataclass(frozen=True)
class Asked:
    """One answer, as far as it came. `error`: what ended it, if it was not whole."""

    context: int
    text: str
    error: str
    prompt: int = 0
    cached: int = 0
    ttft_s: float = 0.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("articles", type=Path)
    parser.add_argument("--service", default="http://127.0.0.1:8000")
    parser.add_argument("--contexts", type=int, default=80)
    parser.add_argument("--questions", type=int, default=240)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first questions of the log")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--answer", type=int, default=16, help="tokens of an answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="ask about each context once, in order")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--kill", metavar="NAME")
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    texts = list(itertools.islice(_contexts(given.articles), given.contexts))
    asked = asyncio.run(_measure(given, texts))
    right = dict(map(json.loads, given.compare.read_text().splitlines())) if given.compare else {}
    _show(asked, right)


async def _measure(given: argparse.Namespace, texts: Sequence[str]) -> list[Asked]:
    async with httpx.AsyncClient(base_url=given.service, timeout=600) as client:
        ids = await _read(client, texts)
        numbers = (
            range(len(ids)) if given.each else _zipf(len(ids), given.skip + given.questions, given.seed)[given.skip :]
        )
        left, asked = iter(numbers), list[Asked]()

        async def one_client() -> None:
            for number in left:
                asked.append(await _ask(client, ids[number], number, given.answer))
                if given.save and not asked[-1].error:
                    with given.save.open("a") as file:
                        print(json.dumps([number, asked[-1].text]), file=file)

        clients = asyncio.gather(*(one_client() for _ in range(given.clients)))
        killer = asyncio.create_task(_kill(client, given.kill, given.kills)) if given.kill else None
        await clients
        if killer:
            killer.cancel()
        return asked


def _contexts(articles: Path) -> Iterator[str]:
    """Texts of whole articles, each of at least CHARACTERS."""
    text = ""
    for article in articles.read_text().split("\n# "):
        text += "# " + article.removeprefix("# ") + "\n"
        if len(text) >= CHARACTERS:
            yield text[:CHARACTERS]
            text = ""


def _zipf(contexts: int, questions: int, seed: int) -> list[int]:
    weights = [1 / (rank + 1) for rank in range(contexts)]
    return random.Random(seed).choices(range(contexts), weights, k=questions)


async def _read(client: httpx.AsyncClient, texts: Sequence[str]) -> list[str]:
    """The contexts' document ids, once all are ready. What an earlier measurement uploaded is not uploaded again."""
    page = (await client.get("/v1/documents", params={"limit": 200})).json()["items"]
    ids = {document["name"]: document["id"] for document in page}
    names = [f"context-{number}.md" for number in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        if name not in ids:
            response = await client.post("/v1/documents", files={"file": (name, text.encode())})
            assert response.is_success, response.text
            ids[name] = response.json()["id"]
    for name in names:
        while (document := (await client.get(f"/v1/documents/{ids[name]}")).json())["status"] != "ready":
            assert document["status"] != "failed", document
            await asyncio.sleep(1)
    return [ids[name] for name in names]


async def _ask(client: httpx.AsyncClient, document_id: str, number: int, answer_tokens: int) -> Asked:
    options = {"mode": "stitched", "recompute_ratio": 0, "hops": 1, "top_k": 16, "answer_cache": False}
    body = {"question": QUESTION, "document_ids": [document_id], "max_tokens": answer_tokens, "stream": True} | options
    began, first, text, event = time.perf_counter(), 0.0, "", ""
    try:
        async with client.stream("POST", "/v1/ask", json=body) as response:
            if response.status_code != 200:
                return Asked(number, "", (await response.aread()).decode())
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                event = value if name == "event" else event
                if name != "data":
                    continue
                data = json.loads(value)
                if event == "delta":
                    first = first or time.perf_counter() - began
                    text += data["text"]
                elif event == "error":
                    return Asked(number, text, value)
                elif event == "done":
                    usage = data["usage"]
                    return Asked(number, data["answer"], "", usage["prompt"], usage["cached"], first)
    except httpx.HTTPError as error:
        return Asked(number, text, repr(error))
    return Asked(number, text, "the stream ended early")


async def _kill(client: httpx.AsyncClient, name: str, kills: int) -> None:
    whole = len(_called(name))
    assert whole, f"no process is called {name}"
    for number in range(kills):
        await asyncio.sleep(random.Random(number).uniform(QUIET_S, 2 * QUIET_S))
        victim, began = random.Random(number).choice(_called(name)), time.monotonic()
        victim.kill()
        print(f"kill {number + 1}: process {victim.pid}", flush=True)
        notices = {(await client.get("/readyz")).status_code for _ in range(20) if not await asyncio.sleep(0.5)}
        while len(_called(name)) < whole:
            await asyncio.sleep(1)
            notices.add((await client.get("/readyz")).status_code)
        print(f"  started again within {time.monotonic() - began:.0f} s, readyz said {sorted(notices)}", flush=True)


def _called(name: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if command_line(process).startswith(name)]


def _show(asked: Sequence[Asked], right: dict[int, str]) -> None:
    whole = [one for one in asked if not one.error]
    begun = [one for one in asked if one.error and one.text]
    lost = [one for one in asked if one.error and not one.text]
    for one in begun + lost:
        print(f"context {one.context}: {one.text!r}, {one.error[:300]}")
    wrong = [one for one in whole if right and one.text != right[one.context]]
    wrong += [one for one in begun if right and not right[one.context].startswith(one.text.strip())]
    for one in wrong:
        print(f"context {one.context}: {one.text!r} instead of {right[one.context]!r}")
    share = sum(one.cached for one in whole) / sum(one.prompt for one in whole)
    prompt, first = statistics.mean(one.prompt for one in whole), [one.ttft_s for one in whole]
    print(
        "| questions | whole | ended after they had begun | lost before | wrong | prompt tokens | found in a cache | first token: mean, p50 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {len(asked)} | {len(whole)} | {len(begun)} | {len(lost)} | {len(wrong) if right else '-'} | {prompt:.0f} "
        f"| {share:.3f} | {statistics.mean(first):.2f}, {statistics.median(first):.2f} s |"
    )


if __name__ == "__main__":
    main()
