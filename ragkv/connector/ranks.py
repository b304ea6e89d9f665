"""vLLM's worker: the ranks of one tensor-parallel engine, and how they decide together.

vLLM gives every rank the same steps with the same metadata. The model's forward is full of all-reduces, so ranks must
enter the same forwards in the same order: one that entered alone would wait for ever. That cannot happen, because

- what a rank does in a step follows from the step's metadata and from what was agreed on here, never from a rank's own
  files, clock or threads;
- work that may fail on one rank alone stands in `together`: it fails on all of them, or on none;
- whatever else fails ends the rank's process (`never_alone`). vLLM then ends the others, and the service starts the
  engine again.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.distributed import ReduceOp, all_gather, all_reduce, broadcast, new_group, reduce
from vllm.distributed import get_tp_group

log = logging.getLogger(__name__)


class FailedTogether(Exception):
    """Raised on every rank for work that failed on one or more. Its cause is this rank's own failure, if it was one of
    those."""


class Ranks:
    """One of `size` ranks, numbered from 0, which are all there are. Made on each of them at the same time. Alone, it
    asks no one.

    Its messages are small and go between CPUs, beside the model's.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self._group = new_group(backend="gloo") if size > 1 else None

    def all_of(self, flags: Sequence[bool]) -> list[bool]:
        """For each of these flags, the same number on each rank, whether it holds on all ranks."""
        if self._group is None or not flags:
            return list(flags)
        held = torch.tensor(flags, dtype=torch.int32)
        all_reduce(held, ReduceOp.MIN, self._group)
        return [bool(flag) for flag in held.tolist()]

    def sum(self, own: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' tensors of one shape, on the device of `own`: the same bits everywhere, as decisions
        follow from it."""
        if self._group is None:
            return own
        total = own.to("cpu", copy=True).contiguous()
        reduce(total, 0, ReduceOp.SUM, self._group)
        broadcast(total, 0, self._group)
        return total.to(own.device)

    def mean(self, own: torch.Tensor) -> torch.Tensor:
        """Like `sum`, the mean."""
        return self.sum(own) / self.size

    def concatenated(self, own: torch.Tensor, axis: int) -> torch.Tensor:
        """All ranks' tensors of one shape, joined at `axis` in the order of ranks: on a GPU, if they lie there."""
        if self._group is None:
            return own
        if own.is_cuda:  # by the model's own messages: KV is much for those between CPUs
            return get_tp_group().all_gather(own.contiguous(), axis)
        own = own.cpu().contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        all_gather(parts, own, self._group)
        return torch.cat(parts, axis)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run work of this rank alone, which runs no forward. Raises FailedTogether on all ranks if it raised on
        one."""
        if self._group is None:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        if not self.all_of([error is None])[0]:
            raise FailedTogether("on this rank" if error else "on another rank") from error

    def is_shared(self, error: Exception) -> bool:
        """Whether all ranks know of the error, and may go on with what comes after it."""
        return self._group is None or isinstance(error, FailedTogether)

    @contextmanager
    def never_alone(self) -> Iterator[None]:
        """Run a part of a step. Whatever leaves it ends this process, if others would wait for it."""
        try:
            yield
        except Exception:
            if self._group is None:
                raise
            log.critical(
                "rank %d ends, so that the others do not wait for it: the engine is started again",
                self.rank,
                exc_info=True,
            )
            os._exit(1)
