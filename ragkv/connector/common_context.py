"""vLLM's worker: FlashAttention over many short spans of one context, which it reads once for a group of them.

To the kernel each span is a sequence, which reads all of the context before it for a few tokens. Here one call has all
tokens of a group attend to the context before the group, another each span to what lies between, and the two are merged
by their log-sum-exp (FlashInfer, arXiv 2501.01005, section 2.2).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from typing import Any, TypeAlias

import torch
from vllm.v1.attention.backends import flash_attn
from vllm.v1.attention.ops.merge_attn_states import merge_attn_states

from ragkv.connector.rotation import replaced
from ragkv.span import Span, total_tokens

log = logging.getLogger(__name__)

Attention: TypeAlias = Callable[..., Any]
"""`flash_attn_varlen_func`: queries [tokens, q_heads, head_dim] of several sequences over a paged cache."""

GROUP_TOKENS = 512
"""Positions of a context among which spans are one group: what a span reads by itself is half of these."""
LEAST_SAVED = 2**15
"""Tokens that are to be read less, in a layer, for two calls and their merge: less is read while they are launched."""
TOLERANCE = 2**-5
"""Largest difference from a single call, relative to the largest value: several roundings of bfloat16."""
TRIED_VERSIONS = 2, 3
"""Of FlashAttention: vLLM 0.25 merged two calls of theirs. Version 4 asks for tables of other widths."""
UNUSUAL = "alibi_slopes", "s_aux", "mask_mod", "dynamic_causal"
"""Arguments with which results of two calls cannot be merged, or which depend on where a sequence begins."""


@dataclass(frozen=True, slots=True)
class Group:
    """Spans close to each other. start: where the context ends that all of them attend to, at a block's begin."""

    start: int
    spans: tuple[Span, ...]


def grouped(spans: Sequence[Span], block_size: int) -> list[Group]:
    """Ascending spans by the parts of the prompt that they begin in."""
    by_part = groupby(spans, key=lambda span: span.start // GROUP_TOKENS)
    parts = [tuple(part) for _, part in by_part]
    return [Group(part[0].start // block_size * block_size, part) for part in parts]


class CommonContext:
    """Attention of a model where many spans of one request run at once. Kernels differ between devices and versions: a
    first result is compared with a single call's, and if they differ, single calls are made from then on."""

    def __init__(self, block_size: int, device: torch.device) -> None:
        self.least_saved = LEAST_SAVED
        self._block_size = block_size
        self._device = device
        self._agrees: bool | None = None

    @contextmanager
    def read_once(self, spans: Sequence[Span]) -> Iterator[None]:
        """Have FlashAttention read a common context once, where that saves enough, while the block runs a forward over
        these spans, ascending and in sequences of their own on one block table."""
        attend: Attention | None = getattr(flash_attn, "flash_attn_varlen_func", None)
        groups = grouped(spans, self._block_size) if attend else []
        saved = sum(group.start * (len(group.spans) - 1) for group in groups)
        if attend is None or saved < max(self.least_saved, 1):
            yield
            return
        calls = TwoCalls(groups, self._device)
        with replaced(flash_attn, "flash_attn_varlen_func", partial(self._attend, attend, calls)):
            yield

    def _attend(self, attend: Attention, calls: "TwoCalls", *unnamed: Any, **arguments: Any) -> Any:
        """Stands for `attend`, which vLLM's versions so far give all arguments by name."""
        window, causal, version = (arguments.get(name) for name in ("window_size", "causal", "fa_version"))
        is_usual = causal is True and (window is None or max(window) < 0) and version in TRIED_VERSIONS and not unnamed
        if self._agrees is False or not is_usual or any(arguments.get(name) is not None for name in UNUSUAL):
            return attend(*unnamed, **arguments)
        if self._agrees is None:
            attend(**arguments)
            self._agrees = self._is_near(attend, calls, arguments)
        return calls.attend(attend, **arguments) if self._agrees else arguments["out"]

    def _is_near(self, attend: Attention, calls: "TwoCalls", arguments: dict[str, Any]) -> bool:
        expected: torch.Tensor = arguments["out"]
        try:
            merged = calls.attend(attend, **arguments | {"out": torch.empty_like(expected)})
        except Exception:
            log.exception("FlashAttention does not give what two calls need: spans read their contexts one by one")
            return False
        is_near = bool((merged - expected).abs().max() <= TOLERANCE * expected.abs().max())
        if not is_near:
            log.warning("two calls of FlashAttention differ from a single one: spans read their contexts one by one")
        return is_near


class TwoCalls:
    """The calls for some groups of spans: one for the contexts before the groups, one for the rest of each span's."""

    def __init__(self, groups: Sequence[Group], device: torch.device) -> None:
        """Arguments are made once for all layers. groups: ascending; only the first may begin where the prompt does."""
        self._device = device
        self._starts = [group.start for group in groups for _ in group.spans]
        rests = [span.end - group.start for group in groups for span in group.spans]
        contexts = [group.start for group in groups if group.start]
        tokens = [total_tokens(group.spans) for group in groups if group.start]
        rest_lengths, context_lengths, bounds = (
            torch.tensor(numbers, dtype=torch.int32).to(device, non_blocking=True)
            for numbers in (rests, contexts, [0, *accumulate(tokens)])
        )
        self._of_rests: dict[str, Any] = {"seqused_k": rest_lengths, "max_seqlen_k": max(rests)}
        self._of_contexts: dict[str, Any] = {
            "cu_seqlens_q": bounds, "max_seqlen_q": max(tokens), "seqused_k": context_lengths,
            "max_seqlen_k": max(contexts), "causal": False,
        }  # fmt: skip
        self._tokens_behind = sum(tokens)
        self._tables: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def attend(
        self, attend: Attention, *, q: torch.Tensor, out: torch.Tensor, block_table: torch.Tensor, **arguments: Any
    ) -> torch.Tensor:
        """Like a single call of `attend` over the spans, whose rows of `block_table` are the same."""
        rests, contexts = self.tables_of(block_table[0], page_size=arguments["k"].shape[1])
        # Plans and scales are for as many sequences as a single call has; the scales are those of an 8-bit cache.
        arguments |= {"scheduler_metadata": None, "num_splits": 0, "return_softmax_lse": True}
        arguments |= dict.fromkeys(("q_descale", "k_descale", "v_descale"))
        by_rests, rest_sums = attend(q=q, block_table=rests, **arguments | self._of_rests)
        alone = len(q) - self._tokens_behind
        by_contexts, context_sums = attend(q=q[alone:], block_table=contexts, **arguments | self._of_contexts)
        out[:alone] = by_rests[:alone]
        merge_attn_states(out[alone:], by_contexts, context_sums, by_rests[alone:], rest_sums[:, alone:].contiguous())
        return out

    def tables_of(self, table: torch.Tensor, page_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Block tables of the spans' rests and of the groups' contexts. table: the request's, [pages]."""
        if page_size not in self._tables:
            first_pages = torch.tensor(self._starts).to(self._device, non_blocking=True) // page_size
            pages = first_pages[:, None] + torch.arange(
                -(-self._of_rests["max_seqlen_k"] // page_size), device=self._device
            )
            of_contexts = self._of_contexts
            contexts = table[: of_contexts["max_seqlen_k"] // page_size].expand(len(of_contexts["seqused_k"]), -1)
            self._tables[page_size] = table[pages.clamp_(max=len(table) - 1)], contexts.contiguous()
        return self._tables[page_size]
