"""vLLM's worker: buffers through which KV goes on its way to the paged cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import torch


class Buffer:
    """Memory for one tensor after the other, each in place of the last: fresh pages cost a processor more than what is
    copied into them."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._memory = torch.empty(0, dtype=dtype, device=device)

    def holds(self, shape: tuple[int, ...]) -> bool:
        """Whether it has memory enough for this shape."""
        return prod(shape) <= len(self._memory)

    def view(self, shape: tuple[int, ...]) -> torch.Tensor:
        """A contiguous tensor of this shape and any content. It ends what was viewed before."""
        if not self.holds(shape):
            self._memory = self._memory.new_empty(prod(shape))
        return self._memory[: prod(shape)].view(shape)


class Staging:
    """Keys and values of some layers, filled by copies from the host, then read by the device.

    With a stream for copies, of a GPU, two pairs of buffers take turns: one is filled while the other is read.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, copies: torch.cuda.Stream | None = None) -> None:
        self._copies = copies
        self._pairs = [(Buffer(dtype, device), Buffer(dtype, device)) for _ in range(2 if copies else 1)]
        self._was_read = [torch.cuda.Event() for _ in self._pairs if copies]  # type: ignore[no-untyped-call]
        self._turn = 0

    @contextmanager
    def filled(
        self, keys_shape: tuple[int, ...], values_shape: tuple[int, ...]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values, which the block fills. Behind the block the device may be given work on them, until the next
        call."""
        if self._copies is None:
            [(keys, values)] = self._pairs
            yield keys.view(keys_shape), values.view(values_shape)
            return
        of_model = torch.cuda.current_stream()
        of_model.record_event(self._was_read[self._turn])  # all work on the last call's pair was given by now
        self._turn = 1 - self._turn
        keys, values = self._pairs[self._turn]
        if not (keys.holds(keys_shape) and values.holds(values_shape)):
            # Other memory: nothing may be on its way to the old, nor left to do on the new.
            of_model.synchronize()
            self._copies.synchronize()
        pair = keys.view(keys_shape), values.view(values_shape)
        self._copies.wait_event(self._was_read[self._turn])
        with torch.cuda.stream(self._copies):
            yield pair
        of_model.wait_stream(self._copies)
