"""What the time of a measure is spent on: beside its figures, in its notes."""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import pairwise

import aioascend
from aioascend.telemetry import record

from .worlds import run_all

__all__ = ["cpu_by_thread", "idle_between", "latency_split", "role", "stream_idle"]

Call = Callable[[], Awaitable[object]]


def role(thread: threading.Thread) -> str:
    """What a thread is there for: ours are named after it and their device."""
    if thread is threading.main_thread():
        return "caller"
    return re.sub(r"-?(npu|emulator):?-?\d+", "", thread.name.removeprefix("aioascend-")).strip("-")


def _cpu_of_threads() -> dict[str, float]:
    """Seconds of CPU that each living Python thread has used, by what it is there for."""
    used: dict[str, float] = {}
    for thread in threading.enumerate():
        assert thread.ident is not None
        try:
            seconds = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        except OSError:  # it has just ended
            continue
        name = role(thread)
        used[name] = used.get(name, 0.0) + seconds
    return used


async def cpu_by_thread(call: Call, callers: int, count: int = 5_000) -> dict[str, float]:
    """Microseconds of CPU that a call costs in each kind of thread; what has no Python thread is "elsewhere"."""
    await run_all(call, count // 10, callers)
    before, total = _cpu_of_threads(), time.process_time()
    await run_all(call, count, callers)
    used = {name: seconds - before.get(name, 0.0) for name, seconds in _cpu_of_threads().items()}
    used["elsewhere"] = time.process_time() - total - sum(used.values())
    found = {name: round(seconds / count * 1e6, 1) for name, seconds in sorted(used.items(), key=lambda one: -one[1])}
    return {name: us for name, us in found.items() if us >= 0.1}


def idle_between(spans: Iterable[tuple[float, float]]) -> list[float]:
    """Seconds from each end to the next beginning, of spans that do not overlap."""
    ordered = sorted(spans)
    return [max(0.0, after[0] - before[1]) for before, after in pairwise(ordered)]


async def stream_idle(session: aioascend.Session, load: Callable[[], Awaitable[object]]) -> dict[str, object]:
    """How long the busiest stream had nothing to do between two requests of a load, by its own events."""
    async with record(session) as recording:
        await load()
    completed = recording.timeline().completed()
    spans = {
        name: [(span.start, span.end) for one in completed if (span := getattr(one, field)) is not None]
        for name, field in (("h2d", "h2d"), ("compute", "execute"), ("d2h", "d2h"))
    }
    name = max(spans, key=lambda one: sum(end - start for start, end in spans[one]))
    gaps = [gap * 1e6 for gap in idle_between(spans[name])]
    figures = {"mean": statistics.fmean(gaps), "median": statistics.median(gaps), "longest": max(gaps)}
    return {f"idle of the {name} stream between requests, us": {what: round(us, 1) for what, us in figures.items()}}


async def latency_split(session: aioascend.Session, call: Call, count: int) -> dict[str, float]:
    """Median milliseconds in each stage of one request at a time."""
    async with record(session) as recording:
        await run_all(call, count, 1)
    return {name: round(summary.median * 1e3, 3) for name, summary in recording.timeline().split().items()}
