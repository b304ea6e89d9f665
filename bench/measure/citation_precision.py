"""How often citations name the right passage: `python -m bench.measure.citation_precision FILE ... [--questions 200]`,
a Markdown table.

A file has questions as lines of JSON, with their answers and with passages that say whether they lead to the answer:
`{"question", "answers", "passages": [{"title", "text", "is_gold"}]}`. The first answer stands for what a model would
write. Then the next question's answer is cited in its place, unless it is yes or no, which answers other questions too.
Milliseconds are those of the processor.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_high

import msgspec

from bench.measuring import read_lines
from ragkv.answer.cite import POLAR, cite
from ragkv.chunk import Chunk, Passage


class Source(msgspec.Struct, frozen=True):
    title: str
    text: str
    is_gold: bool


class Question(msgspec.Struct, frozen=True):
    question: str
    answers: list[str]
    passages: list[Source]


@dataclass
class Figures:
    """Counts over the questions of a file."""

    questions: int = 0
    cited: int = 0
    """Citations of the questions' own answers."""
    gold: int = 0
    """Those of them whose passage leads to the answer."""
    with_gold: int = 0
    """Questions with such a citation."""
    others: int = 0
    """Questions that were given another's answer."""
    others_cited: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def row(self) -> str:
        return (
            f"{self.questions} | {self.cited} | {self.gold / max(self.cited, 1):.3f} | {self.with_gold / self.questions:.1%} "
            f"| {self.others_cited} of {self.others} | {median_high(self.seconds) * 1000:.1f}"
        )


def measure(questions: list[Question]) -> Figures:
    figures = Figures()
    for asked, other in zip(questions, questions[1:] + questions[:1], strict=True):
        passages = [
            Passage(Chunk(str(n), str(n), 0, one.title, one.text, 0, len(one.text), None, ()), -n, 1)
            for n, one in enumerate(asked.passages)
        ]
        began = time.process_time()
        cited = cite(asked.answers[0], asked.question, passages)
        figures.seconds.append(time.process_time() - began)
        gold = sum(asked.passages[int(citation.chunk_id)].is_gold for citation in cited)
        figures.questions += 1
        figures.cited += len(cited)
        figures.gold += gold
        figures.with_gold += gold > 0
        if (answer := other.answers[0]).casefold() not in POLAR:
            figures.others += 1
            figures.others_cited += bool(cite(answer, asked.question, passages))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--questions", type=int, default=200)
    options = parser.parse_args()
    print(
        "| set | questions | citations | precision | answers cited with a gold passage | another's answer cited | ms an answer |"
        "\n|---|---|---|---|---|---|---|"
    )
    for path in options.files:
        questions = [question for _, question in read_lines(path, Question)][: options.questions]
        print(f"| {path.stem} | {measure(questions).row} |", flush=True)


if __name__ == "__main__":
    main()
