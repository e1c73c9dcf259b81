"""Load on something awaitable: callers that follow one another, or a rate that does not wait for anybody.

In a *closed loop* each of some callers sends its next request when its last is answered: a slow answer delays the ones
after it, so that its latencies say nothing about clients who do not wait. In an *open loop* requests are due at times
that were fixed before; latency counts from the time a request was due, so that one which was sent late because the
system stood still is as late as its client saw it (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter as now
from typing import Literal

from ..errors import Overloaded

__all__ = ["Distribution", "Load", "Loaded", "closed_loop", "open_loop", "schedule"]

Call = Callable[[], Awaitable[object]]
Distribution = Literal["constant", "poisson"]
_GIVEN_UP_AFTER_S = 30.0


@dataclass(frozen=True)
class Load:
    """How long to load: the measured part lasts `duration` seconds, or `iterations` requests where that is given.

    Before it the load runs for `warmup` seconds and `warmup_count` requests, whichever is later.
    """

    duration: float = 3.0
    iterations: int | None = None
    warmup: float = 0.2
    warmup_count: int = 1


@dataclass
class Loaded:
    """What was measured, in seconds.

    `wall` is the length of the measured part, `answers` counts what was answered in it. `latencies` are those of
    requests that belong to it: in an open loop some answers are to requests that were due before. `refused` requests
    met a full queue and are in no other number. `send_delays` (open loop) says how late requests were sent, which is
    part of their latency.
    """

    wall: float = 0.0
    answers: int = 0
    refused: int = 0
    latencies: list[float] = field(default_factory=list)
    send_delays: list[float] = field(default_factory=list)
    share: float = 0.0  # of the measured part that is over, for who shows progress

    @property
    def count(self) -> int:
        """Requests measured."""
        return len(self.latencies)

    @property
    def throughput(self) -> float:
        """Requests answered a second."""
        return self.answers / self.wall if self.wall > 0 else 0.0


async def closed_loop(call: Call, callers: int, load: Load, loaded: Loaded) -> None:
    """Load `call` with `callers` that send one request after the other, and fill in `loaded`.

    The first error ends it, and is raised.
    """
    started = now()
    answered = 0
    since = 0.0  # when the measured part began
    stopped = asyncio.Event()
    latencies = loaded.latencies

    async def caller() -> None:
        nonlocal answered, since
        while not stopped.is_set():
            sent = now()
            await call()
            at = now()
            answered += 1
            if stopped.is_set():
                return
            if not since:
                # The answer that ends the warm-up is not measured: it is the clock's zero.
                if answered >= load.warmup_count and at - started >= load.warmup:
                    since = at
                continue
            latencies.append(at - sent)
            loaded.answers += 1
            loaded.wall = at - since
            if load.iterations is None:
                loaded.share = loaded.wall / load.duration
            else:
                loaded.share = len(latencies) / load.iterations
            if loaded.share >= 1:
                stopped.set()

    tasks = [asyncio.ensure_future(caller()) for _ in range(callers)]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def open_loop(
    call: Call, rate: float, load: Load, loaded: Loaded, *, distribution: Distribution = "constant", seed: int = 0
) -> None:
    """Send `rate` requests a second, whatever becomes of them, and fill in `loaded`.

    Requests that are refused (`Overloaded`) are counted; any other error ends it, and is raised. After the last
    request was sent it waits for the answers.
    """
    loop = asyncio.get_running_loop()
    warm = max(load.warmup, load.warmup_count / rate)
    pending: set[asyncio.Task[None]] = set()
    failed: asyncio.Future[None] = loop.create_future()
    sent_all = asyncio.Event()
    start = now() + 0.01
    since = start + warm
    last = since

    async def one(due: float) -> None:
        nonlocal last
        measured = due >= since
        if measured:
            loaded.send_delays.append(now() - due)
        try:
            await call()
        except Overloaded:
            loaded.refused += measured
            return
        at = now()
        if at >= since:
            last = at
            loaded.answers += 1
        if measured:
            loaded.latencies.append(at - due)

    def ended(task: asyncio.Task[None]) -> None:
        pending.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not failed.done():
            failed.set_exception(error)

    def send(batch: list[float], share: float, final: bool) -> None:
        loaded.share = share
        for due in batch:
            task = loop.create_task(one(due))
            pending.add(task)
            task.add_done_callback(ended)
        if final:
            sent_all.set()

    end = since + (load.iterations / rate if load.iterations is not None else load.duration)
    pacer = _Pacer(schedule(rate, distribution, seed), start, since, load, loop, send)
    pacer.start()
    waiting = asyncio.ensure_future(_all_answered(sent_all, pending))
    try:
        await asyncio.wait({waiting, failed}, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        await waiting
    finally:
        pacer.stop()
        failed.cancel()
        await _end([waiting, *pending])
    loaded.wall = max(last, end) - since


def schedule(rate: float, distribution: Distribution, seed: int = 0) -> Iterator[float]:
    """When requests are due, in seconds from the first: at equal distances, or at those of a Poisson process."""
    if distribution == "constant":
        index = 0
        while True:
            yield index / rate  # not a sum, whose error would grow
            index += 1
    dice = random.Random(seed)
    at = 0.0
    while True:
        yield at
        at += dice.expovariate(rate)


class _Pacer:
    """Wakes a loop when requests are due: a thread, because the timers of event loops are a millisecond coarse."""

    def __init__(
        self,
        times: Iterator[float],
        start: float,
        since: float,
        load: Load,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[list[float], float, bool], None],
    ) -> None:
        self._times = times
        self._start = start
        self._since = since
        self._load = load
        self._loop = loop
        self._send = send
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aioascend-bench-pacer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_GIVEN_UP_AFTER_S)

    def _run(self) -> None:
        load = self._load
        measured = 0
        batch: list[float] = []
        share = 0.0
        for offset in self._times:
            due = self._start + offset
            wait = due - now()
            if wait > 0:
                if batch:
                    self._hand_over(batch, share, False)
                    batch = []
                if self._stopping.wait(due - now()):
                    return
            if due >= self._since:
                if load.iterations is None:
                    share = (due - self._since) / load.duration
                    if share >= 1:
                        break
                else:
                    if measured >= load.iterations:
                        break
                    share = measured / load.iterations
                measured += 1
            batch.append(due)
        self._hand_over(batch, 1.0, True)

    def _hand_over(self, batch: list[float], share: float, final: bool) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits for this any more
            self._loop.call_soon_threadsafe(self._send, batch, share, final)


async def _all_answered(sent_all: asyncio.Event, pending: set[asyncio.Task[None]]) -> None:
    await sent_all.wait()
    while pending:
        await asyncio.wait(pending)


async def _end(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
