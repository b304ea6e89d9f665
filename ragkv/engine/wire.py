"""Wire format: the plan to the engine in `kv_transfer_params`, the report back.

Both ends may be hostile or of another version: what does not parse is no plan, and the prompt is computed in full.
Every number is bounded by the prompt's length before the engine acts on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import torch

from ragkv.engine.protocol import Generate, Prefill, QueryVectors, Report, Sampling
from ragkv.errors import OutOfSpace, RagKVError, Rejected, Unavailable
from ragkv.span import Span, merge
from ragkv.stitch.plan import MAX_NAME_CHARS, Name, StitchPlan
from ragkv.stitch.policies import POLICIES

PARAM = "ragkv"
ABORTED = "abort"
"""vLLM's reason for an answer that was ended from outside. Whoever still reads it has an engine that is being stopped:
told to by a signal, vLLM ends its answers so, as if they were whole."""
_PREFILL = "prefill"
_TOGETHER = "restart API, workers and engines together"
_Sent = TypeVar("_Sent")


class Planned(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Instructions of a request to the engine: its plan, and positions whose queries are wanted. `tag` names the
    request's report for a later `report_of`."""

    plan: StitchPlan
    capture: Span | None = None
    tag: Name | None = None


def plan_to_wire(request: Generate, tag: str | None = None) -> dict[str, Any] | None:
    """`kv_transfer_params` of a request, None if it has no plan."""
    if request.plan is None:
        return None
    return {PARAM: msgspec.to_builtins(Planned(request.plan, request.capture, tag))}


PREFILL_PROMPT = (0, 0)
"""The prompt of a request that carries a prefill: vLLM runs its last token, when the prefill is done."""


def prefill_to_wire(prefill: Prefill) -> dict[str, Any]:
    """`kv_transfer_params` of a prefill."""
    wire: dict[str, Any] = msgspec.to_builtins(prefill)
    del wire["cue_ids"]  # they are behind the chunks by now (`looked_ahead`)
    return {PARAM: {_PREFILL: wire}}


@dataclass(frozen=True, slots=True)
class PrefillLimits:
    """Limits of an engine on what it prefills: its window and vocabulary, in tokens, and the fingerprint of its weights
    and the dtype of its KV, empty if they are not known."""

    window: int
    vocabulary: int
    model: str = ""
    dtype: str = ""


def prefill_of(params: Mapping[str, Any] | None, limits: PrefillLimits) -> Prefill | None:
    """Prefill in the `kv_transfer_params` of a request, None if there is none. Raises Rejected if it is malformed, or
    beyond the engine's limits."""
    sent = (params or {}).get(PARAM)
    if not isinstance(sent, dict) or _PREFILL not in sent:
        return None
    prefill = _converted(sent[_PREFILL], Prefill, Rejected)
    _check_model(prefill.model, limits.model)
    if prefill.dtype and limits.dtype and prefill.dtype != limits.dtype:
        raise Rejected(
            f"KV is kept in {prefill.dtype}, and the engine's in {limits.dtype}: give both the same RAGKV_DTYPE"
        )
    rows = [prefill.prefix_ids, *((*chunk.token_ids, *chunk.behind) for chunk in prefill.chunks)]
    if len(prefill.prefix_ids) + max(map(len, rows[1:]), default=0) > limits.window:
        raise Rejected(f"a chunk behind the prefix has more than {limits.window} tokens, the model's window")
    if max(max(row, default=0) for row in rows) >= limits.vocabulary:
        raise Rejected("a token id is not in the model's vocabulary: its tokenizer is another")
    if any(chunk.decoded > len(chunk.behind) for chunk in prefill.chunks):
        raise Rejected("a chunk has fewer tokens behind it than were decoded")
    return prefill


def check_prefilled(params: Mapping[str, Any] | None) -> None:
    """Check the report in the output of a prefill's request. Raises as Engine.prefill does."""
    report = _converted((params or {}).get(PARAM), Report, Unavailable)
    if report.no_room:
        raise OutOfSpace(report.error)
    if report.error:
        raise Unavailable(f"no KV is computed: {report.error}")


def sampling_to_wire(sampling: Sampling) -> dict[str, Any]:
    """The choice of tokens in vLLM's names, which its server and its `SamplingParams` share."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
        "stop": list(sampling.stop),
    }


def followed_schema(sampling: Sampling) -> dict[str, Any] | None:
    """vLLM's `structured_outputs` for a schema."""
    return {"json": sampling.schema} if sampling.schema else None


def planned_of(params: Mapping[str, Any] | None, prompt_tokens: int, model: str = "") -> Planned | None:
    """Plan in the `kv_transfer_params` of a request with `prompt_tokens`, None if there is none.

    Raises Rejected if they are malformed, make no sense or reach beyond the prompt, or if the KV is of another model
    than that with this fingerprint, as far as both are known.
    """
    sent = (params or {}).get(PARAM)
    if sent is None or report_asked_for(params) or (isinstance(sent, dict) and _PREFILL in sent):
        return None
    planned = _converted(sent, Planned, Rejected)
    plan, capture = planned.plan, planned.capture
    _check_model(plan.model, model)
    if max(map(len, (plan.placed, plan.recompute, plan.missing))) > prompt_tokens:
        raise Rejected("the plan has more chunks than its prompt has tokens")
    if max(plan.end, capture.end if capture else 0) > prompt_tokens:
        raise Rejected("the plan is longer than its prompt")
    if plan.selection and not (plan.selection.policy in POLICIES and POLICIES[plan.selection.policy].in_engine):
        raise Rejected(f"the engine cannot select by {plan.selection.policy}")
    return planned


def _check_model(of_keys: str, served: str) -> None:
    if of_keys and served and of_keys != served:
        raise Rejected(f"the KV was computed with other weights than the engine's: {_TOGETHER}")


def _converted(sent: object, kind: type[_Sent], refusal: type[RagKVError]) -> _Sent:
    """Read what the other end sent, which may be of another version. Raises `refusal` if it is not of this kind."""
    try:
        return msgspec.convert(sent, kind)
    except msgspec.ValidationError as error:
        raise refusal(f"the engine and the service have different versions ({error}): {_TOGETHER}") from None


def served_name(model: str) -> str:
    """The name under which an engine serves the weights with this fingerprint: each event of its answers has it."""
    return f"{PARAM}-{model[:16]}" if model else PARAM


def check_served(name: str, model: str) -> None:
    """Check the name in an event. Raises Unavailable for that of other weights than those with this fingerprint."""
    if model and name.startswith(f"{PARAM}-") and name != served_name(model):
        raise Unavailable(f"the engine has other weights than the service: {_TOGETHER}")


def report_asked_for(params: Mapping[str, Any] | None) -> str | None:
    """The tag of an earlier request whose report this one fetches."""
    return _text(params, "report_of")


def tag_of(params: Mapping[str, Any] | None) -> str | None:
    """The name under which a request's report will be asked for, whatever else it says."""
    return _text(params, "tag")


def _text(params: Mapping[str, Any] | None, name: str) -> str | None:
    sent = (params or {}).get(PARAM)
    value = sent.get(name) if isinstance(sent, dict) else None
    return value if isinstance(value, str) and len(value) <= MAX_NAME_CHARS else None


def pack_queries(queries: torch.Tensor) -> QueryVectors:
    """Captured queries [layers, q_heads, head_dim] for a report."""
    array = queries.to(torch.float32).cpu().contiguous().numpy()
    return QueryVectors(array.shape, array.tobytes())


def unpack_queries(packed: QueryVectors) -> torch.Tensor:
    """The inverse of `pack_queries`."""
    return torch.frombuffer(bytearray(packed.content), dtype=torch.float32).view(packed.shape)


def report_of(params: Mapping[str, Any] | None, prompt_tokens: int, cached_tokens: int) -> Report:
    """The report in an output's `kv_transfer_params`; `cached_tokens` counts vLLM's own hits and ours together."""
    report = _converted((params or {}).get(PARAM) or {}, Report, Unavailable)
    report.cached = max(cached_tokens - report.stitched - report.recomputed - report.lost, 0)
    report.computed = prompt_tokens - cached_tokens + report.lost
    if report.recomputed_spans is not None:
        report.recomputed_spans = merge(report.recomputed_spans)
    return report
