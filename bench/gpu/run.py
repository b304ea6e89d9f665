"""Parts of the measurement, one after the other. Code that uses the device besides an engine runs in a separate
process, so that its memory is free for the engine afterwards."""

import asyncio
import logging
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.gpu.corpus import Corpus, data_beside
from bench.gpu.engine import Measuring, measuring
from bench.gpu.ingestion import measure_bare
from bench.gpu.loading import measure_loading
from bench.gpu.oracle import check_oracle
from bench.gpu.report import WITH_ENGINE, GpuReport, Part, save
from bench.gpu.scale import Scale
from bench.gpu.shapes import Shape

log = logging.getLogger(__name__)

T = TypeVar("T")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the command. folder: for models and KV; progress: called with what is under way; done: with what
    is finished."""

    scale: Scale
    folder: Path
    report: GpuReport
    file: Path
    eager: bool
    progress: Progress
    done: Progress

    def measure(self, parts: Sequence[Part]) -> None:
        """Measure what the report lacks of the parts. A part that fails is noted, and the next one begins."""
        if "oracle" in parts:
            for shape in self._without("oracle", self.scale.oracles):
                with self._part("oracle", shape):
                    self.report.oracle[shape.name] = asyncio.run(self._oracle(shape))
        smallest = self.scale.shapes[0]
        for shape in self.scale.shapes:
            of_all = WITH_ENGINE if shape is smallest else ("ingest", "ttft")
            with_engine = [part for part in of_all if part in parts]
            if missing := [part for part in with_engine if not self.report.has(part, shape.name)]:
                with self._part("engine", shape):
                    asyncio.run(self._with_engine(shape, missing))
        if "load" in parts and not self.report.has("load", smallest.name):
            with self._part("load", smallest):
                if not Corpus.of(smallest, self._model(smallest), self.scale).is_written:
                    asyncio.run(self._with_engine(smallest, ()))
                self.progress(f"{smallest.name}: loading")
                self.report.load[smallest.name] = _apart(measure_loading, smallest, self._model(smallest), self.scale)

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

    def _without(self, part: Part, shapes: Iterable[Shape]) -> list[Shape]:
        return [shape for shape in shapes if not self.report.has(part, shape.name)]

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
