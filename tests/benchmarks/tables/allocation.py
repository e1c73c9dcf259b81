from __future__ import annotations

import statistics
from time import perf_counter as now
from typing import Any

import numpy as np

import aioascend
from aioascend.emulator import Profile
from aioascend.memory.layout import plan

from ..harness import Line, Settings, on_uvloop
from ..raw import RawModel
from ..worlds import device, head, run_all

TITLE = "device memory: malloc and free for every request, from the pool, and made at open"
PROFILE = "compute 1 ms, malloc 90 us"


def measure(settings: Settings) -> list[Line]:
    """Raw requests with and without allocations of their own, in turn; the pool's blocks, and a session's."""
    count = settings.of(200, 20)
    costs = []
    calls = 0
    sizes = (plan([160]).nbytes, plan([64]).nbytes)

    def seconds(model: RawModel) -> float:
        took = []
        for _ in range(count):
            start = now()
            model.run()
            took.append(now() - start)
        return statistics.median(took)

    async def count_calls(acl: Any) -> int:
        made = 0
        async with aioascend.Session(head(), devices="emulator:0", depth=3) as session:
            x = np.zeros(40, np.float32)
            await session.infer(x)
            malloc = acl.rt.malloc

            def counted(*arguments: Any) -> Any:
                nonlocal made
                made += 1
                return malloc(*arguments)

            acl.rt.malloc = counted
            await run_all(lambda: session.infer(x), count)
            acl.rt.malloc = malloc
        return made

    async def from_the_pool() -> tuple[float, str]:
        async with aioascend.Device("emulator:0") as owner:

            async def lend() -> None:
                for buffer in [await owner.malloc(size) for size in sizes]:
                    await buffer.release()

            await lend()  # the first ones are allocated
            seconds = []
            for _ in range(settings.rounds):
                start = now()
                for _ in range(count):
                    await lend()
                seconds.append((now() - start) / count)
            pool = owner.memory_statistics().device
            return statistics.median(seconds), f"{pool.hits} of {pool.hits + pool.misses} were idle there"

    with device(Profile(compute_default=1e-3, malloc=90e-6)) as emulator:
        each, kept = (RawModel(emulator, head(), *sizes, reuse=reuse) for reuse in (False, True))
        for _ in range(settings.rounds):
            each.enter()
            allocating = seconds(each)
            kept.enter()
            costs.append(allocating - seconds(kept))
        each.close()
        kept.close()
        pooled, hits = on_uvloop(from_the_pool())
        calls = on_uvloop(count_calls(emulator.acl))
    cost = statistics.median(costs) * 1e6
    return [
        Line(
            "malloc and free each time, a request", "100-400 us", f"{cost:.0f} us (raw calls)", "180 us (two mallocs)"
        ),
        Line("from the pool and back each time, a request", "about 0", f"{pooled * 1e6:.0f} us ({hits})", "0 us"),
        Line("a session, a request", "about 0", f"{90 * calls / count:.0f} us ({calls} mallocs in {count})", "0 us"),
    ]
