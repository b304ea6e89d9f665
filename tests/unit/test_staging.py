"""Buffers between the host and the paged cache: what is read is neither overwritten nor still being filled."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from ragkv.connector.staging import Staging

SHAPE = 2, 3, 1, 4


class Event:
    """What must have ended before whoever waits for it."""

    def __init__(self) -> None:
        self.ended: set[str] = set()
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1


class Stream:
    """Work of a GPU in its order: what has ended for certain when its next work begins. Streams know of each other's
    work only by waiting for it."""

    def __init__(self) -> None:
        self.ended: set[str] = set()

    def record_event(self, event: Event) -> None:
        event.ended = set(self.ended)

    def wait_event(self, event: Event) -> None:
        self.ended |= event.ended

    def wait_stream(self, other: "Stream") -> None:
        self.ended |= other.ended

    def synchronize(self) -> None:
        pass


class Streams:
    """Stands for torch.cuda on a machine without a GPU."""

    def __init__(self) -> None:
        self.of_model = self.current = Stream()
        self.events: list[Event] = []

    def Event(self) -> Event:  # noqa: N802 - torch.cuda's name
        self.events.append(Event())
        return self.events[-1]

    def current_stream(self) -> Stream:
        return self.current

    @contextmanager
    def stream(self, other: Stream) -> Iterator[None]:
        self.current = other
        try:
            yield
        finally:
            self.current = self.of_model


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    streams = Streams()
    for name in ("Event", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(streams, name))
    return streams


def staging_of(streams: Streams) -> tuple[Staging, Stream]:
    copies: Any = Stream()
    return Staging(torch.float32, torch.device("cpu"), (0, 0), copies), copies


def test_one_pair_is_filled_while_the_other_is_read(streams: Streams):
    staging, copies = staging_of(streams)
    places: dict[int, int] = {}
    for number in range(8):
        if number == 5:  # another step of the engine
            streams.of_model.ended.add("step")
        with staging.pair(SHAPE, SHAPE) as (keys, _):
            with staging.copying(wait=False):
                assert streams.current is copies
                earlier = [f"read {other}" for other, place in places.items() if place == keys.data_ptr()]
                assert copies.ended.issuperset(earlier), "it is overwritten while it is read"
                assert f"read {number - 1}" not in copies.ended, "it waits for the other's reading"
                assert number != 5 or "step" not in copies.ended, "it waits for what came behind the reading"
                places[number] = keys.data_ptr()
                copies.ended.add(f"fill {number}")
            assert f"fill {number}" in streams.of_model.ended, "it is read while it is filled"
            streams.of_model.ended.add(f"read {number}")
    assert len(set(places.values())) == 2
    assert not any(event.waits for event in streams.events)


def test_a_thread_that_reads_files_is_two_pairs_ahead_at_most(streams: Streams):
    staging, _ = staging_of(streams)
    for _ in range(4):
        with staging.pair(SHAPE, SHAPE), staging.copying(wait=True):
            pass
    assert [event.waits for event in streams.events] == [2, 2]


def test_a_fill_that_fails_leaves_both_pairs_usable(streams: Streams):
    staging, copies = staging_of(streams)
    streams.of_model.ended.add("begun")
    with pytest.raises(OSError, match="gone"), staging.pair(SHAPE, SHAPE), staging.copying(wait=False):
        raise OSError("gone")
    for _ in range(2):
        with staging.pair(SHAPE, SHAPE) as (keys, values):
            with staging.copying(wait=False):
                keys.fill_(1), values.fill_(2)
            assert (keys.sum(), values.sum()) == (24, 48)
    assert "begun" in copies.ended


def test_memory_is_kept_from_one_tensor_to_the_next():
    staging = Staging(torch.bfloat16, torch.device("cpu"))
    with staging.pair((4, 3, 1, 8), (4, 3, 1, 0)) as (keys, values), staging.copying(wait=True):
        whole = keys
    assert values.shape == (4, 3, 1, 0)

    with staging.pair((2, 5, 1, 8), (2, 5, 1, 4)) as (keys, values):
        pass

    assert keys.shape == (2, 5, 1, 8) and keys.is_contiguous() and values.shape == (2, 5, 1, 4)
    assert keys.data_ptr() == whole.data_ptr()
