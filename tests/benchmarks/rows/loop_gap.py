from __future__ import annotations

import asyncio
from time import perf_counter as now

import aioascend
from aioascend.telemetry import percentile

from ..harness import Outcome, Row, Settings, on_uvloop
from ..worlds import device, head, staged, zeros

ROW = Row(
    "loop gap p99.9 while saturated, 64 callers, minus an idle ticker's", "ms", 10.0, 2.0, "lower", "2/8/1 ms", "3"
)

TICK_S = 1e-3


async def ticks(seconds: float) -> list[float]:
    """How much later than asked for a timer of a millisecond fired, again and again."""
    late = []
    limit = now() + seconds
    while (before := now()) < limit:
        await asyncio.sleep(TICK_S)
        late.append(now() - before - TICK_S)
    return late


def measure(settings: Settings) -> Outcome:
    """Half a second idle and half a second saturated, in turn."""
    outcome = Outcome(notes={"callers": 64})

    async def main() -> None:
        async with aioascend.Session(head(), devices="emulator:0", depth=3) as session:
            x = zeros(session)

            async def saturated() -> list[float]:
                stop = asyncio.Event()

                async def caller() -> None:
                    while not stop.is_set():
                        await session.infer(x)

                tasks = [asyncio.ensure_future(caller()) for _ in range(64)]
                await asyncio.sleep(0.1)
                late = await ticks(0.5)
                stop.set()
                await asyncio.gather(*tasks)
                return late

            for _ in settings.measured(outcome):
                idle: list[float] = []
                busy: list[float] = []
                for _ in range(settings.of(10, 1)):
                    idle += await ticks(0.5)
                    busy += await saturated()
                gaps = [percentile(sorted(late), 99.9) * 1e3 for late in (busy, idle)]
                outcome.values.append(gaps[0] - gaps[1])
                outcome.notes["saturated, ms"], outcome.notes["idle, ms"] = (round(gap, 3) for gap in gaps)

    with device(staged(2, 8, 1)):
        on_uvloop(main())
    return outcome
