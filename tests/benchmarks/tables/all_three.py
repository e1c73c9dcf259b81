from __future__ import annotations

import asyncio
import statistics
import threading
from time import perf_counter as now

import aioascend
from aioascend.emulator import Profile
from aioascend.telemetry import percentile

from ..harness import Line, Settings, on_uvloop
from ..raw import RawModel
from ..worlds import device, head, zeros

TITLE = "pipeline, reuse and pinned memory together, one device, 3 clients that wait for their answers"
PROFILE = (
    "compute 7 ms; pageable 2.4 + 1.45 ms, pinned 0.4 + 0.24 ms, malloc 125 us: those of the parts, and a compute time "
    "that makes the sum before them the published 11.1 ms"
)

GIVEN, TAKEN = 1_000_000, 604_000
CLIENTS = 3


def measure(settings: Settings) -> list[Line]:
    """Raw calls under a lock by three threads, and a session (depth 3) with three callers."""
    count = settings.of(600, 30)
    rates: dict[str, list[float]] = {"raw": [], "ours": []}
    tails: dict[str, list[float]] = {"raw": [], "ours": []}

    def note(who: str, seconds: float, took: list[float]) -> None:
        rates[who].append(len(took) / seconds)
        tails[who].append(percentile(sorted(took), 99) * 1e3)

    def raw_round(model: RawModel) -> None:
        lock = threading.Lock()
        took: list[float] = []

        def client() -> None:
            model.enter()
            for _ in range(count // CLIENTS):
                sent = now()
                with lock:
                    model.run()
                took.append(now() - sent)

        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        start = now()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        note("raw", now() - start, took)

    async def our_rounds() -> None:
        async with aioascend.Session(head(GIVEN // 4, TAKEN // 4), devices="emulator:0", depth=3) as session:
            x = zeros(session)
            await session.infer(x)
            for _ in range(settings.rounds):
                took: list[float] = []

                async def client(took: list[float] = took) -> None:
                    for _ in range(count // CLIENTS):
                        sent = now()
                        await session.infer(x)
                        took.append(now() - sent)

                start = now()
                await asyncio.gather(*(client() for _ in range(CLIENTS)))
                note("ours", now() - start, took)

    profile = Profile(pinned=GIVEN / 0.4e-3, pageable=GIVEN / 2.4e-3, compute_default=7e-3, malloc=125e-6)
    with device(profile) as emulator:
        model = RawModel(emulator, head(GIVEN // 4, TAKEN // 4), GIVEN, TAKEN, pinned=False, reuse=False)
        for _ in range(settings.rounds):
            raw_round(model)
        model.close()
        on_uvloop(our_rounds())
    median = statistics.median
    return [
        Line("before, throughput", "90/s", f"{median(rates['raw']):.1f}/s (raw calls)", "90.1/s"),
        Line("after, throughput", "140/s", f"{median(rates['ours']):.1f}/s", "142.9/s"),
        Line("before, p99", "35 ms", f"{median(tails['raw']):.1f} ms (raw calls)", "33.3 ms at 3 clients"),
        Line("after, p99", "18 ms", f"{median(tails['ours']):.1f} ms", "21 ms at 3 clients"),
    ]
