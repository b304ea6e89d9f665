"""Spans that read their common context once attend as they would one by one, and read less."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from vllm.v1.attention.backends import flash_attn

from ragkv.connector.common_context import CommonContext, grouped
from ragkv.span import Span, total_tokens
from tests.engine.as_on_gpus.flash_attention import Reads, flash_attn_varlen_func

PAGE, HEADS, KV_HEADS, HEAD_DIM = 16, 6, 2, 8
BLOCK = 2 * PAGE
SCATTERED = tuple(Span(start, start + 4) for start in range(20, 3000, 40))


class Forward:
    """Attention of one layer of a request whose KV fills a paged cache out of order."""

    def __init__(self, tokens: int = 3100) -> None:
        generator = torch.Generator().manual_seed(5)
        pages = math.ceil(tokens / PAGE)
        self._table = torch.randperm(pages + 7, generator=generator)[:pages].to(torch.int32)
        self._cache = torch.randn(2, pages + 7, PAGE, KV_HEADS, HEAD_DIM, generator=generator)
        self._generator = generator

    def attend(self, spans: Sequence[Span], **others: Any) -> torch.Tensor:
        """As vLLM calls it, spans in sequences of their own: [tokens, heads, head_dim]."""
        lengths = torch.tensor([0, *(span.num_tokens for span in spans)], dtype=torch.int32)
        queries = torch.randn(total_tokens(spans), HEADS, HEAD_DIM, generator=self._generator.manual_seed(7))
        arguments = {
            "q": queries, "k": self._cache[0], "v": self._cache[1], "out": torch.empty_like(queries),
            "cu_seqlens_q": lengths.cumsum(0, dtype=torch.int32), "max_seqlen_q": int(lengths.max()),
            "seqused_k": torch.tensor([span.end for span in spans], dtype=torch.int32),
            "max_seqlen_k": spans[-1].end, "softmax_scale": HEAD_DIM**-0.5, "causal": True, "window_size": [-1, -1],
            "block_table": self._table.expand(len(spans), -1), "fa_version": 3, "s_aux": None,
            "scheduler_metadata": torch.zeros(1), "k_descale": torch.ones(len(spans), KV_HEADS),
        }  # fmt: skip
        flash_attn.flash_attn_varlen_func(**arguments | others)
        return arguments["out"]


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> CommonContext:
    monkeypatch.setattr(flash_attn, "flash_attn_varlen_func", flash_attn_varlen_func, raising=False)
    return CommonContext(BLOCK, torch.device("cpu"))


def both(context: CommonContext, spans: Sequence[Span], **others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """One by one, and with the common context read once, by a second layer: the first compares them."""
    forward = Forward()
    alone = forward.attend(spans, **others)
    with context.read_once(spans):
        forward.attend(spans, **others)
        Reads.tokens = 0
        return alone, forward.attend(spans, **others)


@pytest.mark.parametrize(
    "spans",
    [
        SCATTERED,
        SCATTERED[13:],
        (Span(0, 3), *SCATTERED[1:]),
        (*SCATTERED[:30], Span(1220, 1900), *SCATTERED[50:]),
        tuple(Span(start, start + 1) for start in range(1024, 2048, 2)),
        (*SCATTERED, Span(3090, 3100)),
    ],
)
def test_spans_attend_as_they_would_one_by_one(context: CommonContext, spans: tuple[Span, ...]) -> None:
    alone, once = both(context, spans)
    torch.testing.assert_close(once, alone, atol=1e-5, rtol=1e-4)
    assert Reads.tokens < 0.5 * sum(span.end for span in spans)


def test_what_is_read_is_a_context_for_each_group_and_its_positions(context: CommonContext) -> None:
    both(context, SCATTERED)
    groups = grouped(SCATTERED, BLOCK)
    assert [group.start for group in groups] == [0, 512, 1056, 1536, 2048, 2560], "where the first span's block begins"
    rests = sum(span.end - group.start for group in groups for span in group.spans)
    assert Reads.tokens == rests + sum(group.start for group in groups)


@pytest.mark.parametrize(
    ("spans", "others"),
    [
        (SCATTERED[:20], {}),
        ([Span(0, 1500), Span(1500, 3000)], {}),
        (SCATTERED, {"window_size": [511, 0]}),
        (SCATTERED, {"fa_version": 4}),
        (SCATTERED, {"s_aux": torch.ones(HEADS)}),
    ],
)
def test_spans_are_read_one_by_one_where_it_saves_little_or_cannot_be_merged(
    context: CommonContext, spans: Sequence[Span], others: dict[str, Any]
) -> None:
    alone, once = both(context, spans, **others)
    assert torch.equal(once, alone)
    assert Reads.tokens == sum(span.end for span in spans)


def half_of_sums(**arguments: Any) -> Any:
    """A kernel whose log-sum-exps are to another base."""
    result = flash_attn_varlen_func(**arguments)
    return (result[0], result[1] / 2) if arguments.get("return_softmax_lse") else result


def no_sums(**arguments: Any) -> Any:
    """A kernel that gives none."""
    if arguments.get("return_softmax_lse"):
        raise NotImplementedError("no log-sum-exp")
    return flash_attn_varlen_func(**arguments)


@pytest.mark.parametrize("kernel", [half_of_sums, no_sums])
def test_a_kernel_that_gives_something_else_is_called_once_for_all_spans(
    context: CommonContext,
    kernel: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(flash_attn, "flash_attn_varlen_func", kernel)
    alone, once = both(context, SCATTERED)
    assert torch.equal(once, alone)
    assert Reads.tokens == sum(span.end for span in SCATTERED)
    [record] = caplog.records
    assert "one by one" in record.message
