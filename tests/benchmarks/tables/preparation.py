from __future__ import annotations

import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter as now

import aioascend

from ..harness import Line, Settings, on_uvloop
from ..worlds import device, head, staged, zeros

TITLE = "preparing an input on the host takes as long as computing (8 ms): one after the other, and double-buffered"
PROFILE = "0.5/8/0.5 ms, and 8 ms of preparation (a thread that sleeps)"

PREPARE_S = 8e-3


def measure(settings: Settings) -> list[Line]:
    """`await infer` after each preparation, and two pinned requests of which one is written while the other runs."""
    count = settings.of(200, 20)
    serial, double = [], []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as host:
            async with aioascend.Session(head(), devices="emulator:0", depth=2) as session:
                x = zeros(session)

                async def prepare() -> None:
                    await loop.run_in_executor(host, time.sleep, PREPARE_S)

                async def producer(left: object) -> None:
                    async with session.request() as request:
                        for _ in left:  # type: ignore[attr-defined]
                            await prepare()
                            request.inputs["x"][:] = x
                            await request.run()

                for _ in range(settings.rounds):
                    start = now()
                    for _ in range(count):
                        await prepare()
                        await session.infer(x)
                    serial.append(now() - start)
                    left = iter(range(count))
                    start = now()
                    await asyncio.gather(producer(left), producer(left))
                    double.append(now() - start)

    with device(staged(0.5, 8, 0.5)):
        on_uvloop(main())
    one, two = (statistics.median(each) / count * 1e3 for each in (serial, double))
    return [
        Line("one after the other, a frame", "prepare + run", f"{one:.2f} ms", "17 ms"),
        Line("double-buffered, a frame", "the longer of both", f"{two:.2f} ms", "8.5 ms (two requests, 17 ms each)"),
        Line("throughput", "nearly 2x", f"{one / two:.2f}x", "2x"),
    ]
