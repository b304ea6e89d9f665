"""The KV connector: vLLM's scheduler and worker each hold one, in its two roles.

The scheduler's half promises the whole stitched region of a prompt, the worker's half keeps the promise before the
step runs. Approximate KV never meets exact KV: the service salts prompts by recipe (StitchPlan.recipe).
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

from ragkv.engine.internals import ModelInternals
from ragkv.engine.load import Load, Loads, Reports
from ragkv.engine.stitcher import Stitcher
from ragkv.engine.wire import PARAM, WireReport, capture_of, plan_of, wire_of
from ragkv.errors import Rejected
from ragkv.kv.layout import Layout, layout_of
from ragkv.kv.store import KVStore
from ragkv.span import Span
from ragkv.stitch.plan import StitchPlan

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
        self._store = KVStore(Path(vllm_config.kv_transfer_config.kv_connector_extra_config["kv_dir"]))
        self._layout = _layout(vllm_config)
        self._promised: list[Load] = []
        self._reports: dict[str, WireReport] = {}
        self._kept: OrderedDict[str, WireReport] = OrderedDict()
        self._stitcher: Stitcher | None = None
        self._done: dict[str, WireReport] = {}

    # The scheduler's half: promise.

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int, bool]:
        """All of the stitched region that vLLM does not hold itself. Asked again after a preemption."""
        found = self._plan_of(request)
        if found is None:
            return 0, False
        end = min(found[0].end, request.num_prompt_tokens - 1)
        return max(end - num_computed_tokens, 0), False

    def update_state_after_alloc(self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int) -> None:
        if not num_external_tokens:
            return
        found = self._plan_of(request)
        assert found is not None, "tokens were promised for a request without a plan"
        plan, capture = found
        end = min(plan.end, request.num_prompt_tokens - 1)
        self._promised.append(
            Load(
                request_id=request.request_id,
                plan=plan,
                start=end - num_external_tokens,
                end=end,
                block_ids=list(blocks.get_block_ids()[0]),
                token_ids=list(request.prompt_token_ids),
                capture=capture,
            )
        )

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        loads, self._promised = self._promised, []
        return Loads(loads)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        """Remember what the worker did; a request that was preempted and loaded again adds up."""
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, Reports):
            for request_id, report in meta.by_request.items():
                self._reports[request_id] = _added(self._reports.get(request_id), report)

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Hand the report to the caller.

        vLLM asks before it passes on what the worker did in the very same step, so a request of one token has no
        report yet: callers who want one ask for two tokens.
        """
        report = self._reports.pop(request.request_id, None)
        params = (request.kv_transfer_params or {}).get(PARAM)
        if isinstance(params, dict):
            if isinstance(asked := params.get("report_of"), str):
                report = self._kept.pop(asked, None)
            elif report is not None and isinstance(tag := params.get("tag"), str):
                self._keep(tag, report)
        return False, None if report is None else {PARAM: msgspec.to_builtins(report)}

    def _keep(self, tag: str, report: WireReport) -> None:
        self._kept[tag] = report
        while len(self._kept) > _KEPT_REPORTS:
            self._kept.popitem(last=False)

    def _plan_of(self, request: "Request") -> tuple[StitchPlan, Span | None] | None:
        """The request's plan and what to capture; a malformed one is logged and its prompt computed in full."""
        try:
            wire = wire_of(request.kv_transfer_params)
            if wire is None:
                return None
            plan, capture = plan_of(wire), capture_of(wire)
        except Rejected as error:
            log.warning("request %s: %s; its prompt is computed in full", request.request_id, error)
            return None
        if not 0 < plan.end <= request.num_prompt_tokens:
            log.warning("request %s: the plan does not fit its prompt, which is computed in full", request.request_id)
            return None
        return plan, capture

    # The worker's half: keep the promise.

    def attach(self, runner: Any) -> None:
        """Called by the worker once its model is loaded and its cache allocated."""
        self._stitcher = Stitcher(ModelInternals(runner), self._store, self._layout)

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        meta = self._get_connector_metadata()
        assert isinstance(meta, Loads)
        for load in meta.loads:
            assert self._stitcher is not None, "the worker was not attached: start vLLM with StitchWorker"
            self._done[load.request_id] = self._stitcher.carry_out(load)

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


def _added(before: WireReport | None, now: WireReport) -> WireReport:
    if before is None:
        return now
    return WireReport(
        loads=before.loads + now.loads,
        stitched=now.stitched,
        recomputed=now.recomputed,
        kv_load_ms=before.kv_load_ms + now.kv_load_ms,
        recompute_ms=before.recompute_ms + now.recompute_ms,
        failed_keys=sorted({*before.failed_keys, *now.failed_keys}),
        queries=now.queries or before.queries,
        queries_shape=now.queries_shape or before.queries_shape,
    )
