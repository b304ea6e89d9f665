"""vLLM's worker: buffers through which KV goes on its way to the paged cache."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod

import torch


class Buffer:
    """Memory for one tensor after the other, each in place of the last: fresh pages cost a processor more than what is
    copied into them."""

    def __init__(self, dtype: torch.dtype, device: torch.device, num_bytes: int) -> None:
        """num_bytes: to begin with."""
        self._memory = torch.empty(num_bytes // dtype.itemsize, dtype=dtype, device=device)

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

    def __init__(
        self,
        dtype: torch.dtype,
        device: torch.device,
        num_bytes: tuple[int, int] = (0, 0),
        copies: torch.cuda.Stream | None = None,
    ) -> None:
        """num_bytes: of a pair's keys and of its values, to begin with."""
        self._copies = copies
        self._pairs = [[Buffer(dtype, device, size) for size in num_bytes] for _ in range(2 if copies else 1)]
        self._was_read = [torch.cuda.Event() for _ in self._pairs if copies]  # type: ignore[no-untyped-call]
        self._turn = 0

    @contextmanager
    def pair(
        self, keys_shape: tuple[int, ...], values_shape: tuple[int, ...]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values for the block, which fills them within `copying` and then gives the device work on them."""
        keys, values = self._pairs[self._turn]
        if self._copies is not None and not (keys.holds(keys_shape) and values.holds(values_shape)):
            # Other memory: nothing may be on its way to the old, nor left to do on the new.
            torch.cuda.current_stream().synchronize()
            self._copies.synchronize()
        try:
            yield keys.view(keys_shape), values.view(values_shape)
        finally:
            if self._copies is not None:
                torch.cuda.current_stream().record_event(self._was_read[self._turn])
                self._turn = (self._turn + 1) % len(self._pairs)

    @contextmanager
    def copying(self, *, wait: bool) -> Iterator[None]:
        """Copy to the pair in the block: in a stream of its own, once the device has read what was there. wait: for
        that this thread waits too, so that it does not read files far ahead of the device."""
        if self._copies is None:
            yield
            return
        if wait:
            self._was_read[self._turn].synchronize()
        self._copies.wait_event(self._was_read[self._turn])
        with self.beside():
            yield
        torch.cuda.current_stream().wait_stream(self._copies)

    def beside(self) -> AbstractContextManager[object]:
        """Have another thread's copies go where those of the block are."""
        return nullcontext() if self._copies is None else torch.cuda.stream(self._copies)
