"""The KV connector: vLLM's scheduler and worker each hold one, in its two roles.

The scheduler's half promises the whole stitched region of a prompt, the worker's half keeps the promise before the
step runs. Approximate KV never meets exact KV: the service salts prompts by variant (StitchPlan.cache_variant).
"""

import logging
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
)

from ragkv.connector.internals import ModelInternals
from ragkv.connector.metadata import Load, Loads, Reports
from ragkv.connector.stitcher import Stitcher
from ragkv.engine.wire import PARAM, Planned, WireReport, planned_of, report_asked_for
from ragkv.errors import Rejected
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
    """Stitches chunk KV into vLLM. `kv_connector_extra_config` holds `kv_dir`, the folder of KV files."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        end_with_parent()
        self._store = KVStore(Path(vllm_config.kv_transfer_config.kv_connector_extra_config["kv_dir"]))
        self._layout = _layout(vllm_config)
        self._max_work: int = vllm_config.scheduler_config.max_num_batched_tokens
        self._planned: dict[str, Planned] = {}
        self._promised: list[Load] = []
        self._promised_work = 0
        self._reports: dict[str, WireReport] = {}
        self._kept: OrderedDict[str, WireReport] = OrderedDict()
        self._stitcher: Stitcher | None = None
        self._done: dict[str, WireReport] = {}
        self._failed_blocks: set[int] = set()

    @property
    def requires_kv_delivery(self) -> bool:
        """Nothing is handed on: a request that is preempted keeps what it has said."""
        return False

    # The scheduler's half: promise.

    def on_new_request(self, request: "Request") -> None:
        """Read the request's plan, once."""
        planned = _planned(request)
        if planned is not None:
            self._planned[request.request_id] = planned

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int | None, bool]:
        """All of the stitched region that vLLM does not hold itself. Asked again after a preemption.

        None, "ask again in the next step", when this step's promises recompute as much as a step may: the scheduler
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
        if not num_external_tokens:
            return
        planned = self._planned[request.request_id]
        end = min(planned.plan.end, request.num_prompt_tokens - 1)
        load = Load(
            request_id=request.request_id,
            plan=planned.plan,
            start=end - num_external_tokens,
            end=end,
            block_ids=list(blocks.get_block_ids()[0]),
            token_ids=list(request.prompt_token_ids),
            capture=planned.capture,
        )
        self._promised.append(load)
        self._promised_work += planned.plan.work(load.region)
        self._reports.setdefault(request.request_id, _expected(load))

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        loads, self._promised, self._promised_work = self._promised, [], 0
        return Loads(loads)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        """Remember what the worker did, for requests that have not finished meanwhile."""
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, Reports):
            for request_id, report in meta.by_request.items():
                if request_id in self._reports:
                    self._reports[request_id] = _added(self._reports[request_id], report)

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Hand the report to the caller.

        vLLM asks before it passes on what the worker did in the very same step, so a request of one token gets what
        was planned, without times and queries: callers who want those ask for two tokens.
        """
        planned = self._planned.pop(request.request_id, None)
        report = self._reports.pop(request.request_id, None)
        if asked := report_asked_for(request.kv_transfer_params):
            report = self._kept.pop(asked, None)
        elif planned is not None and planned.tag is not None and report is not None:
            self._keep(planned.tag, report)
        return False, None if report is None else {PARAM: msgspec.to_builtins(report)}

    def _keep(self, tag: str, report: WireReport) -> None:
        self._kept[tag] = report
        while len(self._kept) > _KEPT_REPORTS:
            self._kept.popitem(last=False)

    # The worker's half: keep the promise.

    def attach(self, runner: Any) -> None:
        """Called by the worker once its model is loaded and its cache allocated."""
        self._stitcher = Stitcher(ModelInternals(runner), self._store, self._layout)

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        meta = self._get_connector_metadata()
        assert isinstance(meta, Loads)
        for load in meta.loads:
            assert self._stitcher is not None, "the worker was not attached: start vLLM with StitchWorker"
            self._done[load.request_id] = self._fill(self._stitcher, load)

    def _fill(self, stitcher: Stitcher, load: Load) -> WireReport:
        """Carry out one load. Whatever fails stays with its request: this runs in the step that serves all of them."""
        if self._failed_blocks.isdisjoint(load.block_ids):  # a request behind the same blocks fails with them
            try:
                return stitcher.carry_out(load)
            except Exception:
                log.exception("request %s: stitching failed; its context is recomputed in full", load.request_id)
            try:
                return stitcher.recompute_whole(load)
            except Exception:
                log.exception("request %s: recomputing in place failed too; vLLM computes it", load.request_id)
        self._failed_blocks |= load.blocks(stitcher.block_size)
        return _computed_by_vllm(load)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks of loads that failed twice: vLLM computes them itself (`kv_load_failure_policy`)."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        done, self._done = self._done, {}
        return Reports(done) if done else None

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for: all is in place when the step begins."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is saved from the engine: ingestion makes KV."""

    def wait_for_save(self) -> None:
        """Nothing is saved from the engine."""


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


def _expected(load: Load) -> WireReport:
    """What is promised: all that can be told of a late selection is that it will be made."""
    spans = merge(map(load.clip, load.plan.recompute))
    redo = total_tokens(spans)
    known = None if load.plan.late else [(span.start, span.end) for span in spans]
    return WireReport(loads=1, stitched=load.region.num_tokens - redo, recomputed=redo, recomputed_spans=known)


def _computed_by_vllm(load: Load) -> WireReport:
    """The report of a region that vLLM computes in its ordinary steps after its load failed."""
    region = [(load.start, load.end)]
    return WireReport(loads=1, recomputed=load.region.num_tokens, failed_keys=load.keys, recomputed_spans=region)


def _added(before: WireReport, now: WireReport) -> WireReport:
    """What was promised and then done. After a preemption tokens are those of the first time, as vLLM counts them."""
    if before.kv_load_ms == before.recompute_ms == 0:  # only promised so far
        return now
    return WireReport(
        loads=before.loads + now.loads,
        stitched=before.stitched,
        recomputed=before.recomputed,
        kv_load_ms=before.kv_load_ms + now.kv_load_ms,
        recompute_ms=before.recompute_ms + now.recompute_ms,
        failed_keys=sorted({*before.failed_keys, *now.failed_keys}),
        host_keys=before.host_keys,
        recomputed_spans=before.recomputed_spans,
        queries=now.queries or before.queries,
        queries_shape=now.queries_shape or before.queries_shape,
    )
