from __future__ import annotations

import statistics
from time import perf_counter as now

import aioascend
from aioascend.memory.layout import plan

from ..harness import Line, Settings, on_uvloop
from ..raw import RawModel
from ..worlds import device, head, run_all, staged, zeros

TITLE = "1,000 requests one after the other, and in a pipeline (depth 3)"
PROFILE = "2/8/1 ms"


def measure(settings: Settings) -> list[Line]:
    """Seconds and milliseconds a request; medians of the rounds."""
    count = settings.of(1000, 30)
    serial_s, pipeline_s = [], []

    async def main(serial: RawModel) -> None:
        async with aioascend.Session(head(), devices="emulator:0", depth=3) as session:
            x = zeros(session)
            await session.infer(x)
            for _ in range(settings.rounds):
                start = now()
                for _ in range(count):
                    serial.run()
                serial_s.append(now() - start)
                pipeline_s.append(await run_all(lambda: session.infer(x), count))

    with device(staged(2, 8, 1)) as emulator:
        serial = RawModel(emulator, head(), plan([160]).nbytes, plan([64]).nbytes)
        on_uvloop(main(serial))
        serial.close()
    serial_ms, pipeline_ms = (statistics.median(each) / count * 1e3 for each in (serial_s, pipeline_s))
    return [
        Line("one after the other, a request", "11 ms", f"{serial_ms:.2f} ms (raw calls)", "11 ms"),
        Line("pipeline, a request", "8.1 ms", f"{pipeline_ms:.2f} ms", "8 ms"),
        Line("throughput", "+36 %", f"{serial_ms / pipeline_ms - 1:+.1%}", "+37.5 %"),
    ]
