"""Compares our text of every file of a folder with another reader's: `python -m bench.measure.readers FOLDER --other
COMMAND`, a Markdown table of the files that differ, then the lines that one of the two lacks.

COMMAND gets the file's path as its last argument and prints the text. For kreuzberg in a virtual environment apart:
`--other "VENV/bin/python -c 'import sys, kreuzberg; print(kreuzberg.extract_file_sync(sys.argv[1]).content)'"`.

Words are compared without case and signs, by their counts: what one reader repeats (the labels of a table in each row)
counts for it; beside that the table says how many of the words the other text has nowhere. A line is listed where the
other text lacks it as it stands and has some of its words fewer times. Words that both have in another order are not
seen.
"""

import argparse
import re
import shlex
import subprocess
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measure.hostile_files import files_in, print_by_suffix
from ingest.parts import parser_of
from ingest.sandbox.parser import Parser
from ragkv.errors import RagKVError
from ragkv.settings import Settings

WORD = re.compile(r"\w+")
LINE_CHARS = 160
SECONDS = 120
READERS = ("ours", "other")


class Unread(Exception):
    """The reason why a reader has no text of a file."""


@dataclass(frozen=True, slots=True)
class Surplus:
    """Words of a text that another has fewer times, those of them that it has nowhere, and the lines with such words,
    those with most that are nowhere first."""

    words: Counter[str]
    absent: frozenset[str]
    lines: list[str]


def words_of(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFC", text).casefold())


def surplus(text: str, other: str) -> Surplus:
    """Words and lines of a text that the other lacks."""
    other_words = words_of(other)
    words = Counter(words_of(text)) - Counter(other_words)
    absent = frozenset(words.keys() - set(other_words))
    stream = f" {' '.join(other_words)} "
    lines: dict[str, tuple[int, int]] = {}
    for line in map(str.strip, text.splitlines()):
        line_words = words_of(line)
        counts = sum(word in absent for word in line_words), sum(word in words for word in line_words)
        if any(counts) and f" {' '.join(line_words)} " not in stream:
            lines[line] = counts
    return Surplus(words, absent, sorted(lines, key=lines.__getitem__, reverse=True))


def texts_of(parser: Parser, name: str, body: bytes) -> Iterator[str]:
    """The text of a file, then those of the files attached to it, if they are read. Raises Unread for the file."""
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.seek(0)
        try:
            parsed = parser.parse(name, file)
        except RagKVError as error:
            raise Unread(str(error).removeprefix(f"{name}: ")) from None
    yield parsed.text
    for attachment in parsed.attachments:
        try:
            yield from texts_of(parser, attachment.name, attachment.body)
        except Unread:
            continue


def read_by(command: list[str], path: Path) -> str:
    """The text that the other reader prints. Raises Unread."""
    try:
        done = subprocess.run([*command, path], capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unread(f"it takes more than {SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").split("\n")
        raise Unread(next(filter(None, reversed(lines)), f"exit status {done.returncode}"))
    return done.stdout.decode(errors="replace")


def compare(path: Path, parser: Parser, command: list[str]) -> tuple[list[str], list[Surplus]]:
    """The table's cells for a file, and what each reader alone has: nothing where one of them did not read it."""
    texts: list[str | Unread] = []
    for read in (lambda: "\n".join(texts_of(parser, path.name, path.read_bytes())), lambda: read_by(command, path)):
        try:
            texts.append(read())
        except Unread as reason:
            texts.append(reason)
    counts = [f"{len(words_of(text)):,}" if isinstance(text, str) else f"not read: {text}" for text in texts]
    if any(isinstance(text, Unread) for text in texts):
        return [*counts, "", ""], []
    surpluses = [surplus(*texts), surplus(*reversed(texts))]
    return [*counts, *(f"{alone.words.total():,} ({len(alone.absent):,})" for alone in surpluses)], surpluses


def show(name: str, surpluses: list[Surplus], num_lines: int) -> Iterator[str]:
    """What each reader alone has of a file, as Markdown: lines, and words that are in none of these."""
    for reader, alone in zip(READERS, surpluses, strict=False):
        if alone.words:
            yield f"\n**{name}**, only {reader}:\n"
            yield from (f"- {line[:LINE_CHARS]}" for line in alone.lines[:num_lines])
            if more := len(alone.lines[num_lines:]):
                yield f"- ... {more:,} more lines"
            words = alone.words.keys() - set(words_of("\n".join(alone.lines)))
            if words:
                yield f"- words in no such line: {' '.join(sorted(words))[:LINE_CHARS]}"


def main() -> None:
    """Print the tables and the lists."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--other", required=True, type=shlex.split, help="command of the other reader")
    options.add_argument("--lines", type=int, default=10, help="lines to list of a file for each reader")
    arguments = options.parse_args()
    parser = parser_of(Settings())
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    lists: list[str] = []
    print("| file | words, ours | words, other | more in ours (nowhere in other) | more in other (nowhere in ours) |")
    print("|---|---|---|---|---|")
    for path in files_in(arguments.folder):
        name = str(path.relative_to(arguments.folder))
        cells, surpluses = compare(path, parser, arguments.other)
        if not surpluses or any(alone.words for alone in surpluses):
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        lists += show(name, surpluses, arguments.lines)
        fuller = (reader for reader, alone in zip(READERS, surpluses, strict=False) if alone.absent)
        totals[path.suffix.lower()].update(["files", *["both"] * bool(surpluses), *fuller])
    parser.close()
    print("\n| format | files | read by both | words in ours alone | words in the other alone |\n|---|---|---|---|---|")
    print_by_suffix(totals, ("files", "both", *READERS))
    print(*lists, sep="\n")


if __name__ == "__main__":
    main()
