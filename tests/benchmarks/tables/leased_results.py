from __future__ import annotations

import statistics
from functools import partial

import aioascend
from aioascend.emulator import Profile

from ..harness import Line, Settings, alternate, cpu_us, latencies, on_uvloop
from ..worlds import device, head, zeros

TITLE = "results of 4 MB: arrays of the caller's own, and leases of the pinned memory that they arrived in"
PROFILE = "2/8/2 ms; one caller, p50"

FLOATS = 1_000_000


def measure(settings: Settings) -> list[Line]:
    """Blocks of a tenth of a second in turn."""
    medians: list[list[float]] = []
    costs: list[float] = []

    async def main() -> None:
        async with aioascend.Session(head(FLOATS, FLOATS), devices="emulator:0") as session:
            x = zeros(session)

            async def owned() -> None:
                await session.infer(x)

            async def leased() -> None:
                assert (await session.infer(x, outputs="leased")).leased  # and let go of at once

            async def p50(call: object) -> float:
                return statistics.median(await latencies(call, 0.1)) * 1e3  # type: ignore[arg-type]

            sides = [partial(p50, call) for call in (owned, leased)]
            await alternate(sides, 1)
            medians.extend(await alternate(sides, settings.of(10, 1) * settings.rounds))
            costs.extend([await cpu_us(call, 1, 0.5) for call in (owned, leased)])

    with device(Profile(copy_latency=2e-3, compute_default=8e-3)):
        on_uvloop(main())
    own, lent = map(statistics.median, medians)
    return [
        Line("owned: a copy of each result", "-", f"{own:.2f} ms, {costs[0] / 1e3:.2f} ms of CPU", "12 ms"),
        Line("leased", "-", f"{lent:.2f} ms, {costs[1] / 1e3:.2f} ms of CPU", "12 ms"),
    ]
