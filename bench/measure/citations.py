"""Citations over all formats: `python -m bench.measure.citations FOLDER [--sentences 50] [--pictures FOLDER]`, a
Markdown table, and for whoever wants to see them the pages of PDF files, scans and images with the boxes drawn on them.

Sentences are drawn evenly over the formats of the folder's files that can be read, and within each over files and their
length; each is held against the document's page, its text, its pages, and for PDF the boxes. Scans and images have no
letters to hold a box against: what lies under it is read by OCR once more. It is right if a tenth of the letters differ
at most, or two.
"""

import argparse
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from api.v1.passages import PICTURED
from bench.measure.hostile_files import files_in
from bench.measure.ocr import distance
from bench.measure.search import service_without_kv
from ingest.ocr.rapid import Recogniser
from ingest.parse import Parsed, parse
from ingest.parse.scan import OCR, Recognise
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.answer.question import Citation
from ragkv.errors import Rejected
from tests.support.cited_marks import citations_in, faults, read_under, save_lit
from tests.support.over_http import Client, upload

_GOLDEN = 0.618034
"""Multiples of it, without the whole part, are spread evenly however many there are."""


@dataclass(frozen=True)
class _Document:
    """A file that was read, with a citation of each of its sentences."""

    id: str
    parsed: Parsed
    cited: list[Citation]


def measure(
    files: dict[str, list[Path]], options: argparse.Namespace, client: Client, ingest: IngestParts, recognise: Recognise
) -> int:
    """Print the table. Returns the number of citations that are wrong."""
    wanted: int = options.sentences
    tried: Counter[str] = Counter()
    wrong: dict[str, list[str]] = defaultdict(list)
    documents: dict[Path, _Document | None] = {}
    number = 0
    while tried.total() < wanted and files:
        suffix = sorted(files)[number % len(files)]
        path = files[suffix][number // len(files) % len(files[suffix])]
        number += 1
        if path not in documents:
            documents[path] = _added(path, client, ingest, recognise)
        document = documents[path]
        if document is None:
            files[suffix].remove(path)
            files = {name: paths for name, paths in files.items() if paths}
            continue
        one = document.cited[int(number * _GOLDEN % 1 * len(document.cited))]
        kind = f"{suffix}, by OCR" if document.parsed.scans else suffix
        tried[kind] += 1
        found = list(faults(client, document.id, document.parsed, path.read_bytes(), one))
        if document.parsed.scans:
            under = "".join(read_under(client, document.id, one, recognise).split())
            quote = "".join(one.quote.split())
            if distance(under, quote) > max(2, len(quote) // 10):
                found.append(f"under the boxes stands {under[:80]!r}")
        wrong[kind] += [f"{path.name} {one.start}-{one.end} {one.quote[:60]!r}: {'; '.join(found)}"] if found else []
        if options.pictures and document.parsed.media_type.startswith(PICTURED):
            save_lit(client, document.id, one, options.pictures / f"{tried.total():03}-{path.stem}")
        print(f"{tried.total()} of {wanted}", end="\r", file=sys.stderr, flush=True)
    print("| format | citations | right |\n|---|---|---|")
    for suffix, count in sorted(tried.items()):
        print(f"| {suffix} | {count} | {count - len(wrong[suffix])} |")
    total = sum(map(len, wrong.values()))
    print(
        f"| all | {tried.total()} | {tried.total() - total} |\n",
        *(line for some in wrong.values() for line in some),
        sep="\n",
    )
    return total


def _added(path: Path, client: Client, ingest: IngestParts, recognise: Recognise) -> _Document | None:
    """The file as a document; None, and told, for one that cannot be read, or without a sentence that is cited."""
    try:
        parsed = parse(path.name, path.read_bytes(), OCR(max_pages=100, recognise=recognise))
    except Rejected as refusal:
        print(f"left out: {refusal}", file=sys.stderr)
        return None
    document_id: str = upload(client, path.read_bytes(), path.name).json()["id"]
    ingest_document(document_id, ingest)
    shown = client.get(f"/v1/documents/{document_id}").json()
    assert shown["status"] == "searchable", shown
    if not (cited := citations_in(document_id, ingest.parts.database)):
        print(f"left out: {path.name}: none of its sentences is cited", file=sys.stderr)
        return None
    return _Document(document_id, parsed, cited)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[Path]] = defaultdict(list)
    for path in files_in(options.folder):
        files[path.suffix.lower()].append(path)
    with service_without_kv() as (client, ingest):
        return measure(files, options, client, ingest, Recogniser()) and 1


if __name__ == "__main__":
    sys.exit(main())
