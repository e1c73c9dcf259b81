from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter as now

import numpy as np

import aioascend

from ..harness import Outcome, Row, Settings, on_uvloop
from ..profiles import stream_idle
from ..worlds import device, head, staged

ROW = Row(
    "the same with 19 MB inputs, written into pinned memory", "of the limit", 0.95, 0.99, "higher", "2/8/1 ms", "3"
)

FLOATS = 19_000_000 // 4
PRODUCERS = 3  # as many as there are pinned requests


def measure(settings: Settings) -> Outcome:
    """Throughput over 125 a second; a thread writes each frame, as a decoder does, while earlier ones run."""
    count = settings.of(1000, 30)
    outcome = Outcome(notes={"requests": count, "producers": PRODUCERS, "limit": "125/s"})

    async def main() -> None:
        frame = np.ones(FLOATS, np.float32)
        other = np.empty_like(frame)
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as decoder:
            async with aioascend.Session(head(FLOATS), devices="emulator:0", depth=3) as session:

                async def produce(left: object) -> None:
                    async with session.request() as request:
                        x = request.inputs["x"]
                        for _ in left:  # type: ignore[attr-defined]
                            await loop.run_in_executor(decoder, np.copyto, x, frame)
                            await request.run()
                        del x

                async def all_of(number: int) -> float:
                    left = iter(range(number))
                    start = now()
                    await asyncio.gather(*(produce(left) for _ in range(PRODUCERS)))
                    return now() - start

                await all_of(10)
                for _ in settings.measured(outcome):
                    outcome.values.append(count / await all_of(count) / 125)
                outcome.notes |= await stream_idle(session, lambda: all_of(count // 2))
                start = now()
                for _ in range(20):
                    np.copyto(other, frame)
                outcome.notes["writing a frame on this machine, ms"] = round((now() - start) / 20 * 1e3, 2)

    with device(staged(2, 8, 1, inputs=FLOATS)):
        on_uvloop(main())
    return outcome
