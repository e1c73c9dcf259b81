from __future__ import annotations

import asyncio
import statistics
import threading

from ..harness import Outcome, Row, Settings, latencies, on_uvloop
from ..worlds import null_session, zeros
from .own_cost_64_callers import nothing

ROW = Row(
    "the same with a CPU-bound Python thread in the process: p50 against to_thread", "x", 0.7, 0.5, "lower",
    "null_acl", "3",
)  # fmt: skip


def measure(settings: Settings) -> Outcome:
    """Blocks of 0.15 s in turn, because each call takes 5 to 20 ms: the p50 of all of a round counts."""
    outcome = Outcome(notes={"callers": 1})
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    async def main() -> None:
        with null_session(depth=3) as session:
            async with session:
                x = zeros(session)
                await latencies(lambda: session.infer(x), 0.2)
                for _ in settings.measured(outcome):
                    mine: list[float] = []
                    other: list[float] = []
                    for _ in range(settings.of(20, 2)):
                        mine += await latencies(lambda: session.infer(x), 0.15)
                        other += await latencies(lambda: asyncio.to_thread(nothing), 0.15)
                    outcome.values.append(statistics.median(mine) / statistics.median(other))
                    outcome.notes["infer, ms"] = round(statistics.median(mine) * 1e3, 2)
                    outcome.notes["to_thread, ms"] = round(statistics.median(other) * 1e3, 2)
                    # On a machine where the busy thread itself waits for a CPU, half of the calls meet it or none do.
                    outcome.notes["mean of both, ms"] = [
                        round(statistics.fmean(each) * 1e3, 2) for each in (mine, other)
                    ]

    busy = threading.Thread(target=spin, daemon=True)
    busy.start()
    try:
        on_uvloop(main())
    finally:
        stop.set()
        busy.join()
    return outcome
