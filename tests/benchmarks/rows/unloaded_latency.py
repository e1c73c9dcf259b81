from __future__ import annotations

import statistics

import aioascend

from ..harness import Outcome, Row, Settings, latencies, on_uvloop
from ..profiles import latency_split
from ..worlds import device, head, staged, zeros

ROW = Row("unloaded latency minus the stages' own 11 ms, p50", "ms", 0.5, 0.2, "lower", "2/8/1 ms", "3")


def measure(settings: Settings) -> Outcome:
    """One caller, one request at a time."""
    seconds = settings.of(3, 1)
    outcome = Outcome(notes={"callers": 1})

    async def main() -> None:
        async with aioascend.Session(head(), devices="emulator:0", depth=3) as session:
            x = zeros(session)
            await latencies(lambda: session.infer(x), 0.2)
            for _ in settings.measured(outcome):
                took = await latencies(lambda: session.infer(x), seconds)
                outcome.values.append((statistics.median(took) - 11e-3) * 1e3)
            split = await latency_split(session, lambda: session.infer(x), settings.of(200, 20))
            outcome.notes["with events that time the stages, ms"] = split

    with device(staged(2, 8, 1)):
        on_uvloop(main())
    return outcome
