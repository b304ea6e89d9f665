"""Threads and slots for work that others wait for, shared out fairly between its owners; values that threads share;
a circuit breaker; and helper processes that end with their parent."""

import asyncio
import contextvars
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cache, partial
from multiprocessing.process import BaseProcess
from typing import Any, Generic, ParamSpec, TypeVar

from ragkv.errors import Unavailable

T = TypeVar("T")

P = ParamSpec("P")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


SMALLEST_S = 0.001
"""What an item counts for until it is known: those of one owner are not all taken at once."""
HEAVIEST = 8
"""Largest weight: no owner's share becomes so small that it seems none."""
MANY_OWNERS = 1000
"""Limit on owners that are remembered; beyond it, those without a waiting item are forgotten."""


class FairQueue(Generic[T]):
    """Start-time fair queueing over the owners of the items (Goyal, Vin and Cheng, 1996), in which the weight of an
    owner is one over the number of its items here, at most HEAVIEST: who asks for one thing after the other comes
    before who asks for many at once, and waits for what is being done, not for what others have brought. Not safe to
    share between threads without a lock."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._starts: dict[str, float] = {}
        self._now = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, owner: str, item: T) -> None:
        """An owner that had nothing waiting starts at the present time: unused time is not saved up."""
        if owner not in self._waiting:
            self._waiting[owner] = deque()
            self._starts[owner] = max(self._now, self._starts.get(owner, 0.0))
        self._waiting[owner].append(item)

    def any_but(self, owners: AbstractSet[str]) -> bool:
        """Whether an item of another owner than these waits."""
        return not self._waiting.keys() <= owners

    def take(self, passing_over: AbstractSet[str] = frozenset()) -> tuple[str, T]:
        """(owner, item) of who is next, other than the owners passed over; there must be one. Say with `charge` how
        long it took."""
        owner = min((name for name in self._waiting if name not in passing_over), key=self._starts.__getitem__)
        self._now = max(self._now, self._starts[owner])
        self.charge(owner, SMALLEST_S)
        items = self._waiting[owner]
        item = items.popleft()
        if not items:
            del self._waiting[owner]
        if len(self._starts) > MANY_OWNERS:
            self._starts = {name: at for name, at in self._starts.items() if name in self._waiting or at > self._now}
        return owner, item

    def charge(self, owner: str, seconds: float) -> None:
        """Charge the owner of a taken item with the seconds that it took."""
        waiting = len(self._waiting.get(owner, ()))
        self._starts[owner] = self._starts.get(owner, self._now) + seconds * min(1 + waiting, HEAVIEST)


class FairSlots:
    """`size` slots, shared out by time, fairly between owners. For one event loop alone."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting = FairQueue[asyncio.Future[None]]()

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncIterator[None]:
        """A slot of this owner's for as long as the block lasts, once it is the owner's turn."""
        await self.acquire(owner)
        began = time.monotonic()
        try:
            yield
        finally:
            self.release(owner, time.monotonic() - began)

    async def acquire(self, owner: str) -> None:
        """Wait for a slot, which the owner has to release."""
        started = asyncio.get_running_loop().create_future()
        self._waiting.put(owner, started)
        self._start_next()
        try:
            await started
        except asyncio.CancelledError:
            if not started.cancelled():  # the slot was taken just then
                self._free += 1
                self._start_next()
            raise

    def release(self, owner: str, seconds: float) -> None:
        """Return this owner's slot, which was held for `seconds`."""
        self._waiting.charge(owner, seconds)
        self._free += 1
        self._start_next()

    def _start_next(self) -> None:
        """Give away the slots that are free. An owner that no longer waits needs none."""
        while self._free and self._waiting:
            _, started = self._waiting.take()
            if not started.done():
                started.set_result(None)
                self._free -= 1


END_TURN: ContextVar[Callable[[], None]] = ContextVar("end_turn", default=lambda: None)
"""Callback before a wait for a resource with fair turns of its own: others may have the event loop's attention."""
OWNER: ContextVar[str] = ContextVar("owner", default="")
"""For whom work is done: a tenant's id."""


def share_cores() -> None:
    """One computation of torch takes a quarter of the cores, one at least: its threads wait for each other, spinning,
    and where others want the cores too, two take 20 times as long as one (docs/BENCHMARKS.md)."""
    import torch  # noqa: PLC0415 - seconds, and only for processes that compute

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 4))


class FairPool(ThreadPoolExecutor):
    """A pool whose threads are shared out by time, fairly between the owners of the work. `OWNER` says whose it is when
    it is submitted. `size_each`: threads that one owner may occupy at a time; all by default."""

    def __init__(self, name: str, size: int, size_each: int | None = None) -> None:
        super().__init__(size, thread_name_prefix=name)
        self._size_each = size_each or size
        self._occupied = Counter[str]()
        self._lock = threading.Lock()
        self._waiting = FairQueue[Callable[[], None]]()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        result: Future[T] = Future()
        with self._lock:
            self._waiting.put(OWNER.get(), partial(_fulfil, result, partial(fn, *args, **kwargs)))
        super().submit(self._do_next)
        return result

    def _do_next(self) -> None:
        """Do pieces until none may be begun: one that is passed over is begun by the thread that ends another of its
        owner's."""
        while True:
            with self._lock:
                full = {owner for owner, threads in self._occupied.items() if threads >= self._size_each}
                if not self._waiting.any_but(full):
                    return
                owner, piece = self._waiting.take(full)
                self._occupied[owner] += 1
            began = time.monotonic()
            try:
                piece()
            finally:
                del piece  # see _fulfil
                with self._lock:
                    self._waiting.charge(owner, time.monotonic() - began)
                    self._occupied -= Counter((owner,))  # drops zeros


class Threads:
    """A pool of threads of its own: its work waits for none of another kind, and takes no more than `size` threads."""

    def __init__(self, name: str, size: int, *, size_each: int | None = None, within_turn: bool = False) -> None:
        """`size_each`: threads that one owner may occupy at a time. `within_turn`: the work is so short that the event
        loop's attention is kept."""
        self._pool = FairPool(name, size, size_each)
        self._within_turn = within_turn

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, with the context variables of the caller."""
        if not self._within_turn:
            END_TURN.get()()
        call = partial(contextvars.copy_context().run, partial(work, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def _fulfil(result: "Future[T]", work: Callable[[], T]) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        done = work()
    except BaseException as error:  # whoever waits for it gets it, as in the library's own pool
        result.set_exception(error)
        del result  # the error has this frame: together they would keep the request and its body in memory
    else:
        result.set_result(done)


class RecentlyUsed(Generic[K, V]):
    """Values of the `size` keys used last. Safe to share between threads."""

    def __init__(self, make: Callable[[], V], size: int) -> None:
        self._make = make
        self._size = size
        self._lock = threading.Lock()
        self._values: dict[K, V] = {}

    def of(self, key: K) -> V:
        """The value of a key, made when it is first used."""
        with self._lock:
            value = self._values.pop(key) if key in self._values else self._make()
            self._values[key] = value
            while len(self._values) > self._size:
                del self._values[next(iter(self._values))]
        return value

    def peek(self, key: K) -> V | None:
        """The value of a key that is kept, without using it."""
        with self._lock:
            return self._values.get(key)

    def keys(self) -> list[K]:
        with self._lock:
            return list(self._values)

    def drop(self, key: K) -> None:
        with self._lock:
            self._values.pop(key, None)


class CircuitBreaker:
    """While a server hangs, calls to it are refused at once, not each after a time limit of its own.

    Opens when a call times out, and closes when one ends in another way. While it is open, one call in `every_s`
    goes on: the server's time limit, so that few callers wait at a time. Shared by threads.

    refusal: message of a refused call.
    """

    def __init__(self, every_s: float, refusal: str) -> None:
        self._every_s = every_s
        self._refusal = refusal
        self._lock = threading.Lock()
        self._next_try: float | None = None

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Guard one call. Raises Unavailable in its place while the server hangs. A call that its caller gives up says
        nothing about the server."""
        with self._lock:
            moment = time.monotonic()
            if self._next_try is not None:
                if moment < self._next_try:
                    raise Unavailable(self._refusal)
                self._next_try = moment + self._every_s
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self.note(error)
            raise
        self.note(None)

    def note(self, error: BaseException | None) -> None:
        """Note the end of a call, with its error: where a time limit was the cause, a library has its own for it."""
        while error is not None and not isinstance(error, TimeoutError):
            error = error.__cause__ or error.__context__
        with self._lock:
            if error is None:
                self._next_try = None
            elif self._next_try is None:
                self._next_try = time.monotonic()


_LOOK_EVERY_S = 0.5


@cache
def end_with_parent() -> None:
    """Kill this process once its parent is gone, for whatever reason: a killed service leaves no model in memory. Does
    nothing in a process that multiprocessing did not start.

    PR_SET_PDEATHSIG would not do: the kernel ties it to the thread that started the process, and vLLM loads in one of a
    pool.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent, os.getppid()), name="parent", daemon=True).start()


def _watch(parent: BaseProcess, forked_by: int) -> None:
    """Both are looked at: a fork server outlives its client, and a pipe whose end another process holds looks alive."""
    while parent.is_alive() and os.getppid() == forked_by:
        time.sleep(_LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
