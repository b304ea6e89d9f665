"""Parts of the measurement, one after the other. Code that uses the device besides an engine runs in a separate
process, so that its memory is free for the engine afterwards."""

import asyncio
import logging
import math
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from bench.gpu.corpus import Corpus, data_beside
from bench.gpu.engine import Measuring, measuring
from bench.gpu.ingestion import measure_bare
from bench.gpu.loading import measure_loading
from bench.gpu.oracle import check_oracle
from bench.gpu.report import ENGINE_START_S, EXPECTED_S, WITH_ENGINE, GpuReport, Part, save
from bench.gpu.scale import Scale
from bench.gpu.shapes import Shape

log = logging.getLogger(__name__)

T = TypeVar("T")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the command. folder: for models and KV; progress: called with what is under way; done: with what
    is finished or left out; ends_at: when it should have ended, on the monotonic clock."""

    scale: Scale
    folder: Path
    report: GpuReport
    file: Path
    eager: bool
    progress: Progress
    done: Progress
    ends_at: float = math.inf

    def measure(self, parts: Sequence[Part]) -> None:
        """Measure what the report lacks of the parts, those worth most first. A part that fails is noted, and the next
        one begins; one that would not end in time is left out."""
        for oracle, shape in zip_longest(self.scale.oracles, self.scale.shapes):
            if self._due(["oracle"], parts, oracle):
                with self._part("oracle", oracle):
                    self.report.oracle[oracle.name] = asyncio.run(self._oracle(oracle))
            if shape is None:
                continue
            is_first = shape is self.scale.shapes[0]
            if due := self._due(WITH_ENGINE if is_first else ("ttft", "ingest"), parts, shape, ENGINE_START_S):
                with self._part("engine", shape):
                    asyncio.run(self._with_engine(shape, due))
            if is_first and self._due(["load"], parts, shape):
                with self._part("load", shape):
                    if not Corpus.of(shape, self._model(shape), self.scale).is_written:
                        asyncio.run(self._with_engine(shape, ()))
                    self.progress(f"{shape.name}: loading")
                    self.report.load[shape.name] = _apart(measure_loading, shape, self._model(shape), self.scale)

    def _due(self, candidates: Iterable[Part], parts: Sequence[Part], shape: Shape, start_s: float = 0.0) -> list[Part]:
        """The candidates that are among the parts, were not measured yet, and should end in time, one after the other.
        start_s: of an engine that measures them all."""
        due: list[Part] = []
        left_s = self.ends_at - time.monotonic() - start_s
        for part in candidates:
            if part not in parts or self.report.has(part, shape.name):
                continue
            if EXPECTED_S[part] <= left_s:
                due.append(part)
                left_s -= EXPECTED_S[part]
            else:
                self.done(
                    f"{part}, {shape.name}: left out, it takes some {EXPECTED_S[part]:.0f} s, {max(left_s, 0):.0f} s are left"
                )
        return due

    def remove_models(self) -> None:
        """Remove models and KV, and their folder if nothing else is in it."""
        for shape in (*self.scale.oracles, *self.scale.shapes):
            model = self.folder / shape.name
            for folder in (model, data_beside(model)):
                shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.rmdir()

    async def _oracle(self, shape: Shape) -> list[Any]:
        folder = self.folder / shape.name
        if not shape.is_saved(folder):
            shape.save_with_weights(folder)
        self.progress(f"{shape.name}: the oracle")
        async with measuring(shape, folder, self.scale, eager=self.eager, dummy=False) as started:
            return await check_oracle(started.engine, started.corpus, self.scale.oracle_prompts)

    async def _with_engine(self, shape: Shape, parts: Iterable[Part]) -> None:
        folder, bare_s = self._model(shape), 0.0
        if "ingest" in parts:
            self.progress(f"{shape.name}: a bare forward")
            corpus = Corpus.of(shape, folder, self.scale)
            bare_s = await asyncio.to_thread(_apart, measure_bare, shape, corpus, self.scale)
        self.progress(f"{shape.name}: starting vLLM")
        async with measuring(shape, folder, self.scale, eager=self.eager, dummy=True, bare_s=bare_s) as started:
            for part in parts:
                with self._part(part, shape):
                    measure = getattr(Measuring, part)
                    getattr(self.report, part)[shape.name] = await measure(started, self.progress)

    def _model(self, shape: Shape) -> Path:
        folder = self.folder / shape.name
        return folder if shape.is_saved(folder) else shape.save(folder)

    @contextmanager
    def _part(self, part: str, shape: Shape) -> Any:
        """Save the report after the block, with the time that it took or the reason why it failed."""
        name, began = f"{part}, {shape.name}", time.perf_counter()
        self.report.failed.pop(name, None)
        try:
            yield
        except Exception as error:  # the other parts are worth having
            log.exception("%s failed", name)
            self.report.failed[name] = f"{type(error).__name__}: {error}"
        self.report.seconds[name] = time.perf_counter() - began
        save(self.report, self.file)
        self.done(f"{name}: {self.report.failed.get(name, 'measured')} ({self.report.seconds[name]:.0f} s)")


def _apart(work: Callable[..., T], *arguments: Any) -> T:
    """Do the work in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()
