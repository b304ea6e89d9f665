"""A run of `ragkv eval stitching`: every question that has no record yet, and the report."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import msgspec
import torch

from bench.measured_code import code_digest, package_versions
from bench.measuring import write_report
from bench.records import Records, digest_of, records_beside
from bench.stitching.measure import QuestionReader, StitchedQuestion, StitchingRow, rows_of
from bench.ttft import machine
from ingest.prefixed import load_model
from ingest.writer.reading import NoWriter, Reader
from ingest.writer.trainable import TrainableAdapter
from ragkv.errors import Rejected
from ragkv.known_questions import read_questions
from ragkv.parts import Parts
from ragkv.writer import read_whole


@dataclass(frozen=True, slots=True)
class StitchingOptions:
    """Options of a run. `writer`: folder of an adapter to measure as well. `float32`: compute in it, whatever the
    model's dtype. `json_file`: the report's path, with its records beside it."""

    data: Path
    limit: int | None
    writer: Path | None
    float32: bool
    seed: int
    json_file: Path | None


class StitchingReport(msgspec.Struct, frozen=True):
    """The report of `ragkv eval stitching --json`: figures of the file `data`, of the first `n` questions, and each
    question's. writer: its folder's name. computed_in: a dtype. nll_none, nll_full: means of the known answers, in nats
    a token, without passages and after full prefill."""

    model: str
    data: str
    n: int
    writer: str | None
    computed_in: str
    machine: str
    seed: int
    nll_none: float
    nll_full: float
    rows: list[StitchingRow]
    questions: list[StitchedQuestion]


def run(options: StitchingOptions, parts: Parts, progress: Callable[[int, int], None]) -> StitchingReport:
    """Read the questions that an earlier run with the same `json_file` did not reach. `progress` is told questions done
    and in all. Raises Rejected for data and a writer that cannot be read, or a writer of another model."""
    questions = read_questions(options.data)[: options.limit]
    if options.writer and read_whole(options.writer).model_fingerprint != parts.model_fingerprint:
        raise Rejected(f"--writer {options.writer}: it is for another model")
    model = load_model(parts.model_folder, torch.float32 if options.float32 else parts.layout.dtype)
    model.requires_grad_(False)
    adapter = TrainableAdapter.load(model, options.writer) if options.writer else None
    reader = QuestionReader(
        Reader(model, adapter or NoWriter(), parts.prompts.prefix_ids), adapter, parts.prompts, parts.tokenizer
    )
    records = Records(records_beside(options.json_file), _digest(options, parts, model.dtype), StitchedQuestion)
    for done, question in enumerate(questions):
        progress(done, len(questions))
        if question.line not in records:
            records.add(reader.read(question))
    progress(len(questions), len(questions))
    read = [records[question.line] for question in questions]
    report = StitchingReport(
        model=Path(parts.model_folder).name,
        data=options.data.name,
        n=len(read),
        writer=options.writer.name if options.writer else None,
        computed_in=str(model.dtype).removeprefix("torch."),
        machine=machine(),
        seed=options.seed,
        nll_none=fmean(one.nll_none for one in read),
        nll_full=fmean(one.nll_full for one in read),
        rows=rows_of(read, options.seed),
        questions=read,
    )
    if options.json_file is not None:
        write_report(report, options.json_file)
    records.remove()
    return report


def _digest(options: StitchingOptions, parts: Parts, dtype: torch.dtype) -> str:
    settings = parts.settings
    return digest_of(
        {
            "code": code_digest(__name__),
            "packages": package_versions(),
            "model": parts.model_fingerprint,
            "tokenizer": parts.fingerprints.tokenizer(parts.model_folder),
            "words": [settings.instructions, settings.question_format, settings.answer_start],
            "data": hashlib.sha256(options.data.read_bytes()).hexdigest(),
            "writer": options.writer and parts.fingerprints.adapter(options.writer),
            "dtype": dtype,
        }
    )
