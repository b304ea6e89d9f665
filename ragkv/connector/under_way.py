"""vLLM's worker: stitches in progress. Threads read KV during the engine's steps; the model's part is spread over
steps."""

import logging
import time
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import torch

from ragkv.connector.metadata import StitchRequest
from ragkv.connector.stitcher import Fetched, Stitcher, Stopwatch
from ragkv.engine.protocol import Report

READERS = 2
"""Prompts whose KV is read at the same time."""
PATIENCE_S = 0.005
"""How long an idle step waits for KV, before the engine looks for new requests."""
READING_S, READING_S_PER_TOKEN = 10.0, 2e-3
"""How long the KV of a prompt may take to be read: at 128 KiB a token, 64 MB/s. What takes longer is recomputed: a disk
that hangs holds up no prompt for good."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """A request whose region is filled, or will be by the time that a later step of the device looks at it.
    failed_blocks: those that could not be, which vLLM computes itself."""

    request_id: str
    report: Report
    watch: Stopwatch
    failed_blocks: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Job:
    """late_at: when its files should have been read, by `time.monotonic`."""

    fetched: Future[Fetched]
    late_at: float
    work: Generator[None, None, Done]

    @property
    def may_go_on(self) -> bool:
        return self.fetched.done() or time.monotonic() > self.late_at


class UnderWay:
    """The stitches of one worker that were begun and are not done, oldest first. Only their files are read elsewhere
    than in the worker's own thread, so what is dropped between two steps writes nothing any more.

    All ranks have the same ones, and in each step go on with the same one.
    """

    def __init__(self, stitcher: Stitcher) -> None:
        self._stitcher = stitcher
        self._readers = ThreadPoolExecutor(READERS, "KV reader")
        self._jobs: dict[str, _Job] = {}

    def begin(self, stitch: StitchRequest) -> None:
        """Begin to read what the request needs."""
        fetched = self._readers.submit(self._stitcher.fetch, stitch)
        late_at = time.monotonic() + READING_S + READING_S_PER_TOKEN * stitch.region.num_tokens
        self._jobs[stitch.request_id] = _Job(fetched, late_at, self._work(stitch, fetched))

    def drop(self, request_ids: Iterable[str]) -> set[str]:
        """Give up those of these requests that are under way. Returns them."""
        dropped = self._jobs.keys() & set(request_ids)
        for request_id in dropped:
            self._jobs.pop(request_id).fetched.cancel()
        return dropped

    @torch.inference_mode()
    def advance(self, tokens: int, *, is_idle: bool) -> Done | None:
        """Go on with the oldest request whose KV was read by every rank, or takes too long, within `tokens` of the
        model's work. Returned if it is done.

        One request a step: its answer begins before others are stitched, and running answers wait for one only.
        is_idle: the step serves nothing else, and may wait a little.
        """
        if is_idle and self._jobs:
            wait([job.fetched for job in self._jobs.values()], PATIENCE_S, FIRST_COMPLETED)
        read = self._stitcher.ranks.all_of([job.may_go_on for job in self._jobs.values()])
        job = next((job for job, is_read in zip(self._jobs.values(), read, strict=True) if is_read), None)
        if job is None:
            return None
        room = self._stitcher.room
        room.tokens, room.is_idle = tokens, is_idle
        try:
            next(job.work)
        except StopIteration as end:
            done: Done = end.value
            del self._jobs[done.request_id]
            return done
        return None

    def _work(self, stitch: StitchRequest, fetched: Future[Fetched]) -> Generator[None, None, Done]:
        """Carry out one request. Whatever fails stays with it: this runs in steps that serve others too. But for what
        one of several ranks fails at alone."""
        name, watch, report = stitch.request_id, self._stitcher.watch(), None
        if self._stitcher.ranks.all_of([fetched.done()])[0]:
            try:
                report = yield from self._stitcher.carry_out(stitch, fetched, watch)
            except Exception as error:
                if not self._stitcher.ranks.is_shared(error):
                    raise
                log.exception("request %s: stitching failed; its context is recomputed in full", name)
        else:
            fetched.cancel()  # if it still waits for others
            log.warning("request %s: its KV could not be read in time; its context is recomputed in full", name)
        if report is None and not stitch.lacks_context:
            try:
                report = yield from self._stitcher.recompute_whole(stitch, watch)
            except Exception as error:
                if not self._stitcher.ranks.is_shared(error):
                    raise
                log.exception("request %s: recomputing in place failed too; vLLM computes it", name)
        report = report or Report(fills=1, failed_keys=stitch.keys, recomputed_spans=())
        if report.stitched or report.recomputed:
            return Done(name, report, watch)
        # Behind a cached prefix vLLM goes on counting the region as found; where it begins again it counts anew.
        report.lost = stitch.region.num_tokens if stitch.region.start and not stitch.plan.narrow else 0
        blocks = stitch.region.blocks(self._stitcher.block_size)
        return Done(name, report, watch, frozenset(stitch.block_ids[blocks]))
