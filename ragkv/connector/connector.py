"""vLLM's scheduler and worker: the KV connector; each holds one instance, in its own role.

The scheduler's half promises the whole stitched region of a prompt, the worker's half keeps the promise beside the
steps that serve others. Approximate KV never meets exact KV: the service salts prompts by variant
(StitchPlan.cache_variant).
"""

import logging
import time
from collections import OrderedDict
from functools import partial
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

from ragkv.connector.adapter import Adapter
from ragkv.connector.internals import ModelInternals
from ragkv.connector.metadata import PrefillRequest, StitchMetadata, StitchReports, StitchRequest
from ragkv.connector.prefill import Prefills
from ragkv.connector.prefill_share import PrefillShare
from ragkv.connector.ranks import Ranks
from ragkv.connector.selections import Selections
from ragkv.connector.stitcher import Stitcher, Stopwatch
from ragkv.connector.under_way import Done, UnderWay
from ragkv.engine.protocol import Prefill, Report
from ragkv.engine.wire import (
    PARAM,
    Planned,
    PrefillLimits,
    planned_of,
    prefill_of,
    report_asked_for,
    tag_of,
)
from ragkv.errors import Rejected
from ragkv.kv.host import HostCache
from ragkv.kv.layout import Shard, layout_of
from ragkv.kv.store import KVStore
from ragkv.models import Fingerprints
from ragkv.span import Span, merge, total_tokens
from ragkv.threads import end_with_parent

if TYPE_CHECKING:
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

log = logging.getLogger(__name__)

LEAST_SHARE = 8
"""Divisor of a step's tokens: the part of them that stitches may always recompute."""
_KEPT_REPORTS = 1024  # reports of streamed requests, kept until they are asked for


class StitchConnector(KVConnectorBase_V1):
    """Stitches chunk KV into vLLM. `kv_connector_extra_config` holds `kv_dir`, the folder of KV files, `host_kv_bytes`,
    the size of the host tiers of all ranks together, `kv_dtype`, that of the files (the model's, if it is left out),
    `model`, the fingerprint of its weights, and `writer_dir`, the folder of the writer in use."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        end_with_parent()
        extra_config = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._store = KVStore(Path(extra_config["kv_dir"]))
        self._host_bytes: int = extra_config["host_kv_bytes"]
        self._model: str = extra_config.get("model", "")
        model_config = vllm_config.model_config
        # Of KV files, whatever the engine computes in.
        kv_dtype = extra_config.get("kv_dtype") or str(model_config.dtype).removeprefix("torch.")
        self._layout = layout_of(model_config.hf_text_config, kv_dtype, model_config.max_model_len)
        self._max_work: int = vllm_config.scheduler_config.max_num_batched_tokens
        self._planned: dict[str, Planned] = {}
        self._promised: list[StitchRequest] = []
        self._reports: dict[str, Report] = {}
        self._kept: OrderedDict[str, Report] = OrderedDict()
        self._filling: dict[int, StitchRequest] = {}
        self._selections = Selections(kv_cache_config.num_blocks)
        self._given_up: set[str] = set()
        self._narrow: dict[str, Request] = {}
        self._ranks = Ranks()
        self._under_way: UnderWay | None = None
        self._done: dict[str, Done] = {}
        self._watches: dict[str, Stopwatch] = {}
        self._prefills: Prefills | None = None
        self._prefilled: dict[str, Report] = {}
        self._prefills_s = 0.0
        self._prefill_limits = PrefillLimits(
            model_config.max_model_len, model_config.get_vocab_size(), self._model, str(self._layout.dtype)
        )
        self._to_prefill: dict[str, Prefill] = {}
        self._begun_prefills: list[PrefillRequest] = []
        self._prefilling: dict[str, Prefill | None] = {}  # None once it is done, but for its last token
        self._prefill_share = PrefillShare()

    @property
    def requires_kv_delivery(self) -> bool:
        """vLLM: does a preempted request need its KV delivered elsewhere? No: it keeps its output."""
        return False

    # The scheduler's half: promise.

    def on_new_request(self, request: "Request") -> None:
        """vLLM: a request has arrived. Its plan is read, once, or the prefill that it carries. A plan that is
        malformed, or of KV of another model than this, is logged and its prompt computed in full."""
        try:
            if (prefill := prefill_of(request.kv_transfer_params, self._prefill_limits)) is not None:
                self._to_prefill[request.request_id] = prefill
                return
        except Rejected as error:
            self._reports[request.request_id] = Report(error=str(error))
            return
        if request.prompt_token_ids is None:  # embeddings instead of tokens: nothing could be recomputed
            return
        try:
            planned = planned_of(request.kv_transfer_params, request.num_prompt_tokens, self._model)
        except Rejected as error:
            log.warning("request %s: %s; its prompt is computed in full", request.request_id, error)
            return
        if planned is not None:
            self._planned[request.request_id] = planned
            if planned.plan.narrow:
                self._narrow[request.request_id] = request

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int | None, bool]:
        """vLLM: how many tokens behind its own hits does the connector bring, and does it bring them later?

        All of the stitched region, and later: the request waits until the worker has filled it, and others are served
        meanwhile. Asked again after a preemption. None, "ask again in the next step", while the same tokens are being
        filled for another request, whose blocks then serve this one too.
        """
        if request.request_id in self._to_prefill:
            return request.num_prompt_tokens - 1, True
        planned = self._planned.get(request.request_id)
        if planned is None or request.request_id in self._given_up:
            return 0, False
        end = min(planned.plan.end, request.num_prompt_tokens - 1)
        if end <= num_computed_tokens:
            return 0, False
        filling = self._filling.get(_region_of(request, end))
        if filling is not None and filling.request_id != request.request_id:
            return None, False
        return end - num_computed_tokens, True

    def update_state_after_alloc(self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int) -> None:
        """vLLM: these blocks are allocated, `num_external_tokens` tokens in them are the connector's. They go into the
        step's metadata."""
        if not num_external_tokens:
            return
        if (prefill := self._to_prefill.pop(request.request_id, None)) is not None:
            self._begun_prefills.append(PrefillRequest(request.request_id, prefill))
            return
        planned = self._planned[request.request_id]
        end = min(planned.plan.end, request.num_prompt_tokens - 1)
        region = Span(end - num_external_tokens, end)
        prompt = _region_of(request, end)
        stitch = StitchRequest(
            request_id=request.request_id,
            plan=self._selections.settled(planned.plan, prompt, region),
            region=region,
            block_ids=list(blocks.get_block_ids()[0]),
            token_ids=list(request.prompt_token_ids),
            capture=planned.capture,
        )
        self._promised.append(stitch)
        self._filling[prompt] = stitch
        spans = merge(map(stitch.clip, stitch.plan.recompute))
        redo = total_tokens(spans)
        expected = Report(
            fills=1,
            stitched=region.num_tokens - redo,
            recomputed=redo,
            recomputed_spans=None if stitch.plan.selection else spans,  # of a selection no more is known
        )
        self._reports.setdefault(request.request_id, expected)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        """vLLM: the metadata of this step for the worker. All that was promised since the last one, and how much of the
        model's work there is room for: what the step leaves of its tokens, but always some, or a stream of full prompts
        would keep it away."""
        requests, self._promised = self._promised, []
        scheduled = scheduler_output.total_num_scheduled_tokens
        room = max(self._max_work - scheduled, self._max_work // LEAST_SHARE)
        prefills, self._begun_prefills = self._begun_prefills, []
        self._prefilling |= {begun.request_id: begun.prefill for begun in prefills}
        prefill_room = self._prefill_share.of_step(
            is_idle=scheduler_output.num_scheduled_tokens.keys() <= self._prefilling.keys() and not self._filling,
            is_asked=any(self._prefilling.values()),
            is_urgent=any(prefill is not None and prefill.is_urgent for prefill in self._prefilling.values()),
        )
        return StitchMetadata(requests, room, not scheduled, prefills, prefill_room)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        """vLLM: the worker's output of a step. Its reports are kept, for requests that have not finished meanwhile."""
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, StitchReports):
            self._prefill_share.note(meta.prefills_s)
            self._reports |= meta.prefilled
            self._prefilling |= dict.fromkeys(self._prefilling.keys() & meta.prefilled)
            for request_id in meta.failed & self._narrow.keys():
                # vLLM's hits may lack KV of a narrow plan that the rest would see: it computes all of the prompt, in
                # blocks that no other request reads.
                request = self._narrow[request_id]
                request.num_computed_tokens, request.skip_reading_prefix_cache = 0, True
            for request_id, report in meta.by_request.items():
                for prompt, stitch in self._filling.items():
                    selected = stitch.request_id == request_id and stitch.plan.selection and not report.failed_keys
                    if selected and report.recomputed_spans is not None:
                        self._selections.keep(prompt, report.recomputed_spans)
                self._forget_filling(request_id)
                if request_id in self._reports:
                    self._reports[request_id] = _added(self._reports[request_id], report)
            for request_id in meta.times.keys() & self._reports.keys():
                report = self._reports[request_id]
                for name, milliseconds in meta.times[request_id].items():
                    setattr(report, name, getattr(report, name) + milliseconds)
            self._given_up |= meta.failed & self._planned.keys()

    def _forget_filling(self, request_id: str) -> None:
        self._filling = {region: stitch for region, stitch in self._filling.items() if stitch.request_id != request_id}

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """vLLM: a request has finished: may its blocks be freed, and what goes into its output's `kv_transfer_params`?
        The report."""
        self._forget_filling(request.request_id)
        self._given_up.discard(request.request_id)
        self._planned.pop(request.request_id, None)
        self._narrow.pop(request.request_id, None)
        self._to_prefill.pop(request.request_id, None)
        self._prefilling.pop(request.request_id, None)
        report = self._reports.pop(request.request_id, None)
        if report_tag := report_asked_for(request.kv_transfer_params):
            report = self._kept.pop(report_tag, None)
        elif tag := tag_of(request.kv_transfer_params):
            self._kept[tag] = report or Report()  # nothing was stitched: all was cached, or the plan refused
            while len(self._kept) > _KEPT_REPORTS:
                self._kept.popitem(last=False)
        return False, None if report is None else {PARAM: msgspec.to_builtins(report)}

    # The worker's half: keep the promise.

    def attach(self, runner: Any) -> None:
        """Take the model runner. Called by StitchWorker once its model is loaded and its cache allocated."""
        model = ModelInternals(runner)
        shard = Shard(self._layout, model.ranks.rank, model.ranks.size)
        host = HostCache(
            self._store, self._host_bytes // shard.size, heads=shard.kv_heads, pinned=torch.cuda.is_available()
        )
        self._ranks, self._under_way = model.ranks, UnderWay(Stitcher(model, host, shard))
        self._prefills = Prefills(model, self._store, shard, partial(self._load_writer, runner.model))

    def _load_writer(self, model: torch.nn.Module, fingerprint: str) -> Adapter:
        """The writer in use. Raises Rejected if it is another."""
        folder: str | None = self._vllm_config.kv_transfer_config.kv_connector_extra_config.get("writer_dir")
        if folder is None or Fingerprints().adapter(Path(folder)) != fingerprint:
            raise Rejected("another writer is in use where the engine runs: restart the workers, so that they use it")
        return Adapter(model, Path(folder))

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        """vLLM: the step runs, or has been launched. Stitches go on, as far as it has room for them, then prefills."""
        meta = self._get_connector_metadata()
        assert isinstance(meta, StitchMetadata)
        assert self._under_way is not None, "the worker was not attached: start vLLM with StitchWorker"
        assert self._prefills is not None
        with self._ranks.never_alone():
            for stitch in meta.requests:
                self._under_way.begin(stitch)
            if done := self._under_way.advance(meta.room, is_idle=meta.is_idle):
                self._done[done.request_id] = done
            for prefill in meta.prefills:
                self._prefills.begin(prefill)
            began_s = time.monotonic()
            self._prefilled |= self._prefills.advance(meta.prefill_room, is_idle=meta.is_idle)
            if meta.prefill_room:
                self._prefills_s += time.monotonic() - began_s

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """vLLM: which requests' KV was sent, and which was received? Those that are done, and those that were ended
        meanwhile and whose blocks may now be freed."""
        assert self._under_way is not None
        assert self._prefills is not None
        dropped = self._under_way.drop(finished_req_ids) | self._prefills.drop(finished_req_ids)
        return None, self._done.keys() | self._prefilled.keys() | dropped

    def get_block_ids_with_load_errors(self) -> set[int]:
        """vLLM: blocks whose KV could not be brought. Those of requests that failed twice: vLLM computes them itself
        (`kv_load_failure_policy`)."""
        return {block for done in self._done.values() for block in done.failed_blocks}

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """vLLM: the worker's metadata of this step for the scheduler. The reports, and times.

        An accelerator's are waited for in a later step, whose own work is launched by then: waiting at once would keep
        that from being launched while KV is written.
        """
        meta = self._get_connector_metadata()
        assert isinstance(meta, StitchMetadata)
        done, self._done = self._done, {}
        self._watches |= {request_id: stitched.watch for request_id, stitched in done.items()}
        ready = [
            request_id
            for request_id, watch in self._watches.items()
            if not watch.may_run or (request_id not in done and not meta.is_idle)
        ]
        times = {request_id: self._watches.pop(request_id).times() for request_id in ready}
        prefilled, self._prefilled = self._prefilled, {}
        prefills_s, self._prefills_s = self._prefills_s, 0.0
        if not done and not times and not prefilled and not prefills_s:
            return None
        reports = {request_id: stitched.report for request_id, stitched in done.items()}
        failed = {request_id for request_id, stitched in done.items() if stitched.failed_blocks}
        return StitchReports(reports, times, failed, prefilled, prefills_s)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """vLLM: wait for a layer's KV. There is nothing to wait for: a request runs once all of its KV is in place."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """vLLM: a layer's new KV may be saved. Nothing is saved from the engine: ingestion makes KV."""

    def wait_for_save(self) -> None:
        """vLLM: wait until the step's KV is saved. Nothing is."""


def _region_of(request: "Request", end: int) -> int:
    """Equal for requests that may share the blocks of their first `end` tokens."""
    assert request.prompt_token_ids is not None
    return hash((request.cache_salt, tuple(request.prompt_token_ids[:end])))


def _added(earlier: Report, latest: Report) -> Report:
    """Report of a promise that was kept. After a preemption tokens are those of the first time, as vLLM counts them. So
    is what was captured: the tokens that vLLM still had in its cache do not run again."""
    if earlier.kv_load_ms == earlier.recompute_ms == 0:  # only promised so far
        return latest
    return msgspec.structs.replace(
        earlier,
        fills=earlier.fills + latest.fills,
        kv_load_ms=earlier.kv_load_ms + latest.kv_load_ms,
        recompute_ms=earlier.recompute_ms + latest.recompute_ms,
        failed_keys=tuple(sorted({*earlier.failed_keys, *latest.failed_keys})),
        queries=earlier.queries or latest.queries,
    )
