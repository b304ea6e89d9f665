"""vLLM's scheduler and worker: the KV connector, of which each holds one, in its role.

The scheduler's half promises the whole stitched region of a prompt, the worker's half keeps the promise before the
step runs. Approximate KV never meets exact KV: the service salts prompts by variant (StitchPlan.cache_variant).
"""

import logging
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
)

from ragkv.connector.internals import ModelInternals
from ragkv.connector.metadata import StitchMetadata, StitchReports, StitchRequest
from ragkv.connector.stitcher import Stitcher
from ragkv.engine.wire import PARAM, Planned, WireReport, planned_of, report_asked_for
from ragkv.errors import Rejected
from ragkv.kv.host import HostTier
from ragkv.kv.layout import Layout, layout_of
from ragkv.kv.store import KVStore
from ragkv.orphan import end_with_parent
from ragkv.span import Span, merge, total_tokens

if TYPE_CHECKING:
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

log = logging.getLogger(__name__)

_KEPT_REPORTS = 1024  # reports of streamed requests, kept until they are asked for


class StitchConnector(KVConnectorBase_V1):
    """Stitches chunk KV into vLLM. `kv_connector_extra_config` holds `kv_dir`, the folder of KV files, and `host_kv_bytes`, the size
    of the host tier."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        end_with_parent()
        given = vllm_config.kv_transfer_config.kv_connector_extra_config
        store, pinned = KVStore(Path(given["kv_dir"])), torch.cuda.is_available()
        self._store = HostTier(store, given["host_kv_bytes"], pinned=pinned)
        self._layout = _layout(vllm_config)
        self._max_work: int = vllm_config.scheduler_config.max_num_batched_tokens
        self._planned: dict[str, Planned] = {}
        self._promised: list[StitchRequest] = []
        self._promised_work = 0
        self._reports: dict[str, WireReport] = {}
        self._kept: OrderedDict[str, WireReport] = OrderedDict()
        self._stitcher: Stitcher | None = None
        self._done: dict[str, WireReport] = {}
        self._failed_blocks: set[int] = set()

    @property
    def requires_kv_delivery(self) -> bool:
        """vLLM: does a preempted request need its KV delivered elsewhere? No: it keeps its output."""
        return False

    # The scheduler's half: promise.

    def on_new_request(self, request: "Request") -> None:
        """vLLM: a request has arrived. Its plan is read, once."""
        planned = _planned(request)
        if planned is not None:
            self._planned[request.request_id] = planned

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int | None, bool]:
        """vLLM: how many tokens behind its own hits does the connector bring, and does it bring them later?

        All of the stitched region, in the very step. Asked again after a preemption. None, "ask again in the next step", when this step's promises recompute as much as a step may: the scheduler
        does not count those tokens, and all streams wait for them.
        """
        planned = self._planned.get(request.request_id)
        if planned is None:
            return 0, False
        end = min(planned.plan.end, request.num_prompt_tokens - 1)
        if end <= num_computed_tokens:
            return 0, False
        work = planned.plan.work(Span(num_computed_tokens, end))
        if self._promised_work and self._promised_work + work > self._max_work:
            return None, False
        return end - num_computed_tokens, False

    def update_state_after_alloc(self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int) -> None:
        """vLLM: these blocks are allocated, so many tokens in them are the connector's. They go into the step's metadata."""
        if not num_external_tokens:
            return
        planned = self._planned[request.request_id]
        end = min(planned.plan.end, request.num_prompt_tokens - 1)
        stitch = StitchRequest(
            request_id=request.request_id,
            plan=planned.plan,
            start=end - num_external_tokens,
            end=end,
            block_ids=list(blocks.get_block_ids()[0]),
            token_ids=list(request.prompt_token_ids),
            capture=planned.capture,
            rank=planned.rank,
        )
        self._promised.append(stitch)
        self._promised_work += planned.plan.work(stitch.region)
        self._reports.setdefault(request.request_id, _expected(stitch))

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        """vLLM: the metadata of this step for the worker. All that was promised since the last one."""
        requests, self._promised, self._promised_work = self._promised, [], 0
        return StitchMetadata(requests)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        """vLLM: the worker's output of a step. Its reports are kept, for requests that have not finished meanwhile."""
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, StitchReports):
            for request_id, report in meta.by_request.items():
                if request_id in self._reports:
                    self._reports[request_id] = _added(self._reports[request_id], report)

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """vLLM: a request has finished: may its blocks be freed, and what goes into its output's `kv_transfer_params`? The report.

        vLLM asks before it passes on what the worker did in the very same step, so a request of one token gets what
        was planned, without times and queries: callers who want those ask for two tokens.
        """
        planned = self._planned.pop(request.request_id, None)
        report = self._reports.pop(request.request_id, None)
        if asked := report_asked_for(request.kv_transfer_params):
            report = self._kept.pop(asked, None)
        elif planned is not None and planned.tag is not None and report is not None:
            self._kept[planned.tag] = report
            while len(self._kept) > _KEPT_REPORTS:
                self._kept.popitem(last=False)
        return False, None if report is None else {PARAM: msgspec.to_builtins(report)}

    # The worker's half: keep the promise.

    def attach(self, runner: Any) -> None:
        """Take the model runner. Called by StitchWorker once its model is loaded and its cache allocated."""
        self._stitcher = Stitcher(ModelInternals(runner), self._store, self._layout)

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        """vLLM: the step is about to run. Every promised region is filled before this returns."""
        meta = self._get_connector_metadata()
        assert isinstance(meta, StitchMetadata)
        for stitch in meta.requests:
            assert self._stitcher is not None, "the worker was not attached: start vLLM with StitchWorker"
            self._done[stitch.request_id] = self._fill(self._stitcher, stitch)

    def _fill(self, stitcher: Stitcher, stitch: StitchRequest) -> WireReport:
        """Carry out one request. Whatever fails stays with its request: this runs in the step that serves all of them."""
        if self._failed_blocks.isdisjoint(stitch.block_ids):  # a request behind the same blocks fails with them
            try:
                return stitcher.carry_out(stitch)
            except Exception:
                log.exception("request %s: stitching failed; its context is recomputed in full", stitch.request_id)
            try:
                return stitcher.recompute_whole(stitch)
            except Exception:
                log.exception("request %s: recomputing in place failed too; vLLM computes it", stitch.request_id)
        self._failed_blocks |= stitch.blocks(stitcher.block_size)
        # The report of a region that vLLM computes in its ordinary steps after stitching failed.
        region = [(stitch.start, stitch.end)]
        return WireReport(
            fills=1, recomputed=stitch.region.num_tokens, failed_keys=stitch.keys, recomputed_spans=region
        )

    def get_block_ids_with_load_errors(self) -> set[int]:
        """vLLM: blocks whose KV could not be brought. Those of requests that failed twice: vLLM computes them itself (`kv_load_failure_policy`)."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """vLLM: the worker's metadata of this step for the scheduler. The reports."""
        done, self._done = self._done, {}
        return StitchReports(done) if done else None

    def wait_for_layer_load(self, layer_name: str) -> None:
        """vLLM: wait for a layer's KV. There is nothing to wait for: all is in place when the step begins."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """vLLM: a layer's new KV may be saved. Nothing is saved from the engine: ingestion makes KV."""

    def wait_for_save(self) -> None:
        """vLLM: wait until the step's KV is saved. Nothing is."""


def _layout(config: VllmConfig) -> Layout:
    return layout_of(config.model_config.hf_text_config, str(config.model_config.dtype).removeprefix("torch."))


def _planned(request: "Request") -> Planned | None:
    """The request's plan; a malformed one is logged and its prompt computed in full."""
    if request.prompt_token_ids is None:  # embeddings instead of tokens: nothing could be recomputed
        return None
    try:
        return planned_of(request.kv_transfer_params, request.num_prompt_tokens)
    except Rejected as error:
        log.warning("request %s: %s; its prompt is computed in full", request.request_id, error)
        return None


def _expected(stitch: StitchRequest) -> WireReport:
    """Report of a promise: of a selection in the engine no more is known than that it will be made."""
    spans = merge(map(stitch.clip, stitch.plan.recompute))
    redo = total_tokens(spans)
    known = None if stitch.plan.selection else [(span.start, span.end) for span in spans]
    return WireReport(fills=1, stitched=stitch.region.num_tokens - redo, recomputed=redo, recomputed_spans=known)


def _added(before: WireReport, now: WireReport) -> WireReport:
    """Report of a promise that was kept. After a preemption tokens are those of the first time, as vLLM counts them."""
    if before.kv_load_ms == before.recompute_ms == 0:  # only promised so far
        return now
    return WireReport(
        fills=before.fills + now.fills,
        stitched=before.stitched,
        recomputed=before.recomputed,
        kv_load_ms=before.kv_load_ms + now.kv_load_ms,
        recompute_ms=before.recompute_ms + now.recompute_ms,
        failed_keys=sorted({*before.failed_keys, *now.failed_keys}),
        host_keys=before.host_keys,
        recomputed_spans=before.recomputed_spans,
        queries=now.queries or before.queries,
        queries_shape=now.queries_shape or before.queries_shape,
        shares=now.shares or before.shares,
    )
