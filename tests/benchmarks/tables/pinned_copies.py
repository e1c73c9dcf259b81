from __future__ import annotations

import statistics
from time import perf_counter as now

import aioascend
from aioascend.emulator import Profile
from aioascend.telemetry import Timeline, record

from ..harness import Line, Settings, on_uvloop
from ..raw import RawModel, ok
from ..worlds import device, head, run_all, zeros

TITLE = "copies of 1 MB to the device: from pageable and from pinned memory"
PROFILE = "1 MB in 3.25 ms pageable, 0.55 ms pinned: the middles of what was published"

NBYTES = 1_000_000


def measure(settings: Settings) -> list[Line]:
    """Raw pageable copies, timed on the host; a session's copies, which are always from pinned memory, by events."""
    count = settings.of(100, 10)
    pageable = []

    async def recorded() -> Timeline:
        async with aioascend.Session(head(NBYTES // 4), devices="emulator:0", depth=3) as session:
            x = zeros(session)
            await session.infer(x)
            async with record(session) as recording:
                await run_all(lambda: session.infer(x), count * settings.rounds, 1)
        return recording.timeline()

    with device(Profile(pinned=NBYTES / 0.55e-3, pageable=NBYTES / 3.25e-3)) as emulator:
        raw = RawModel(emulator, head(NBYTES // 4), NBYTES, 64, pinned=False)
        rt, host, to = emulator.acl.rt, raw.host[0], raw.device[0]
        for _ in range(count * settings.rounds):
            start = now()
            ok(rt.memcpy(to, NBYTES, host, NBYTES, 1))
            pageable.append((now() - start) * 1e3)
        raw.close()
        pinned = on_uvloop(recorded()).streams()["h2d"]
    before, after = statistics.median(pageable), pinned.median * 1e3
    return [
        Line("pageable", "1.5-5 ms", f"{before:.2f} ms (raw calls)", "3.25 ms"),
        Line("pinned", "0.3-0.8 ms", f"{after:.2f} ms", "0.55 ms"),
        Line("saved", "60-80 %", f"{1 - after / before:.0%}", f"{1 - 0.55 / 3.25:.0%}"),
    ]
