"""Set-up of `ragkv eval fidelity`: parts over a separate data folder, and KV computed when needed."""

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console

from bench.fidelity.kit import Kit
from bench.fidelity.measure import ENGINE_ARGUMENTS, Measure, Record
from bench.fidelity.methods import INFOFLOW_CONNECTOR, NAMES, WRITER, Method, methods_of
from bench.fidelity.report import FidelityReport, Table
from bench.fidelity.run import Ranker, Run, TokenizedQuestion, padded
from bench.known_questions import read_questions
from bench.measuring import write_report
from bench.records import Records, code_digest, digest_of, package_versions
from bench.ttft import machine
from ingest.parts import IngestParts
from ragkv.answer.recompute import Recomputing
from ragkv.chunk import Chunk
from ragkv.cli.opened import running_engine
from ragkv.cli.progress import progress_bars
from ragkv.engine.launch import CPU_CACHE_GIB, cache_gib_of
from ragkv.engine.local import LocalEngine
from ragkv.engine.loop import run_on
from ragkv.errors import Rejected
from ragkv.kv.format import KVFormat
from ragkv.kv.layout import layout_of, read_config
from ragkv.kv.rule import Compression
from ragkv.models import ADAPTER, model_folder
from ragkv.prefill.precompute import precompute
from ragkv.prefill.writer import read_card, suffices
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from ragkv.stitch.policies import Choice


@dataclass(frozen=True, slots=True)
class FidelityOptions:
    """Options of a run. `methods`: None means all. `json_file`: the report's path, with its records beside it.
    `writer`: folder of an adapter, `formats`: of KV, `compressions`: of chunks, and `choices`: of layers, to measure as
    well.
    """

    data: Path
    limit: int | None
    methods: tuple[str, ...] | None
    ratios: tuple[float, ...]
    passages: int | None
    seed: int
    json_file: Path | None
    writer: Path | None = None
    formats: tuple[str, ...] = ()
    compressions: tuple[Compression, ...] = ()
    choices: tuple[Choice, ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the ways in which KV is made or kept whole that are measured beside the plain one."""
        return (*self.formats, *([WRITER] if self.writer else ()))


def evaluate(options: FidelityOptions, settings: Settings, console: Console) -> FidelityReport:
    """Measure every question, or those that an earlier run with the same `json_file` did not reach, and write the
    report there, if there is one.

    The records beside `json_file` are deleted once it is written. Raises Rejected, before anything takes long, for what
    cannot be measured.
    """
    if settings.engine_url is not None:
        raise Rejected("fidelity is measured with an engine in this process: unset RAGKV_ENGINE_URL")
    if options.writer is not None and not (options.writer / ADAPTER).is_file():
        raise Rejected(f"--writer {options.writer}: there is no {ADAPTER} in it, so there is no writer to measure")
    shorter = [compression.name for compression in options.compressions]
    methods = methods_of(options.methods or NAMES, options.ratios, settings, options.variants, shorter, options.choices)
    questions = read_questions(options.data)
    # The service's choice of layers: a calibrated one lies in its own data folder.
    choice = Parts(settings).choice
    settings = msgspec.structs.replace(settings, choosing_layers=choice.text)
    with _workplace(settings) as parts:
        for other in options.choices:
            other.layers_of(parts.layout.layers)
        tokenized = [
            TokenizedQuestion.of(
                padded(question, questions, options.passages or 0, options.seed), parts.tokenizer, parts.prompts
            )
            for question in questions[: options.limit]
        ]
        ingest = IngestParts(parts)
        run = run_of(ingest, methods, options.writer, options.formats, options.compressions)
        run.check(tokenized)
        beside = options.json_file and options.json_file.with_name(f"{options.json_file.name}.partial.jsonl")
        records = Records(beside, _digest(options, settings, methods, parts), Record)
        asyncio.run(_carry_out(run, tokenized, records, ingest, console))
    outcomes = [records[question.line] for question in questions[: options.limit]]
    rows = Table(outcomes, methods, settings.recompute_policy, options.seed).rows()
    report = FidelityReport(
        Path(parts.model_folder).name, options.data.name, len(outcomes), rows, machine(), options.seed, options.passages
    )
    write_report(report, options.json_file)
    records.remove()
    return report


def run_of(
    ingest: IngestParts,
    methods: Sequence[Method],
    writer: Path | None = None,
    formats: Sequence[str] = (),
    compressions: Sequence[Compression] = (),
) -> Run:
    """A run over prepared parts, whose engine was made with ENGINE_ARGUMENTS. Raises Rejected for a folder without
    writer."""
    parts = ingest.parts
    keys = replace(parts.keys_of(parts.default_collection.tenant_id), writer="")
    variants = {kv_format: replace(keys, kv_format=KVFormat(kv_format)) for kv_format in formats}
    if writer is not None:
        if read_card(writer).model_fingerprint != parts.model_fingerprint:
            raise Rejected(f"--writer {writer}: it is for another model")
        shutil.copytree(writer, parts.settings.writer_dir, dirs_exist_ok=True)
        variants[WRITER] = replace(keys, writer=parts.fingerprints.adapter(parts.settings.writer_dir))
    variants |= {
        compression.name: replace(variants.get(WRITER, keys), compression=compression) for compression in compressions
    }
    alone = replace(keys, prefix_ids=())
    kinds = [keys, *variants.values(), *([alone] if any(method.needs_alone for method in methods) else ())]
    recomputing = Recomputing(parts.settings, writer is not None and suffices(writer))
    kit = Kit(recomputing, parts.prompts, parts.planner, parts.kv_store, keys, alone, variants, parts.layout.layers)
    cache_tokens = int((cache_gib_of(parts.settings) or CPU_CACHE_GIB) * 2**30) // parts.layout.bytes_per_token
    ranker = Ranker(parts.encoder, parts.settings.hops, parts.reranker)

    def prefill(chunks: Sequence[Chunk]) -> None:
        for kind in kinds:
            precompute(chunks, kind, lambda: ingest.prefiller, kit.store)

    return Run(kit, Measure(parts.engine, kit, cache_tokens), methods, ranker, prefill)


@contextmanager
def _workplace(settings: Settings) -> Iterator[Parts]:
    """Prepared parts over a folder of this run's own: two runs at once do not see each other, and nothing is left."""
    folder = model_folder(settings)
    layout = layout_of(read_config(folder), settings.dtype)
    home = settings.data_dir / "eval"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="fidelity-", dir=home) as place:
        own = msgspec.structs.replace(
            settings, data_dir=Path(place), model=str(folder), database_url=None, redis_url=None, qdrant_url=None
        )
        parts = Parts(own, LocalEngine(own, folder, layout, ENGINE_ARGUMENTS, INFOFLOW_CONNECTOR))
        parts.prepare()
        try:
            yield parts
        finally:
            parts.close()


async def _carry_out(
    run: Run, tokenized: Sequence[TokenizedQuestion], records: Records[Record], ingest: IngestParts, console: Console
) -> None:
    todo = [question for question in tokenized if question.question.line not in records]
    if not todo:
        return
    ingest.run = run_on(asyncio.get_running_loop())
    async with running_engine(ingest.parts, console):
        with progress_bars(console) as progress:
            task = progress.add_task("measuring", total=len(tokenized), completed=len(tokenized) - len(todo))
            share = 1 / len(run.methods)
            await run.carry_out(
                todo, records, lambda line: progress.update(task, advance=share, description=f"measuring {line}")
            )


def _digest(options: FidelityOptions, settings: Settings, methods: Sequence[Method], parts: Parts) -> str:
    return digest_of(
        {
            "code": code_digest(__name__, INFOFLOW_CONNECTOR),
            "packages": package_versions(),
            "model": parts.model_fingerprint,
            "tokenizer": parts.fingerprints.tokenizer(parts.model_folder),
            "data": hashlib.sha256(options.data.read_bytes()).hexdigest(),
            "settings": msgspec.to_builtins(msgspec.structs.replace(settings, data_dir=Path()), enc_hook=str),
            "methods": [method.key for method in methods],
            "passages": options.passages,
            "seed": options.seed,
            "writer": options.writer and (parts.fingerprints.adapter(options.writer), suffices(options.writer)),
        }
    )
