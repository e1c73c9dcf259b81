from __future__ import annotations

import statistics
from functools import partial

import aioascend
from aioascend.emulator import Profile

from ..harness import Line, Settings, alternate, latencies, on_uvloop
from ..worlds import device, head, zeros

TITLE = "an input that is on the device already against one on the host, and three models in a chain"
PROFILE = "1.5/8/1.5 ms; one caller, p50"

SIZE = 40


def measure(settings: Settings) -> list[Line]:
    """Blocks of a tenth of a second in turn."""
    medians: list[list[float]] = []

    async def main() -> None:
        async with (
            aioascend.Session(head(SIZE, SIZE), devices="emulator:0") as first,
            aioascend.Session(head(SIZE, SIZE), devices="emulator:0") as second,
            aioascend.Session(head(SIZE, SIZE), devices="emulator:0") as third,
        ):
            x = zeros(first)
            there = await first.infer(x, outputs="device")

            async def through_the_host() -> None:
                hidden = (await first.infer(x))["y"]
                await third.infer((await second.infer(hidden))["y"])

            async def on_the_device() -> None:
                hidden = await first.infer(x, outputs="device")
                deeper = await second.infer(hidden["y"], outputs="device")
                await third.infer(deeper["y"])

            async def p50(call: object) -> float:
                return statistics.median(await latencies(call, 0.1)) * 1e3  # type: ignore[arg-type]

            calls = [lambda: second.infer(x), lambda: second.infer(there["y"]), through_the_host, on_the_device]
            sides = [partial(p50, call) for call in calls]
            await alternate(sides, 1)
            medians.extend(await alternate(sides, settings.of(10, 1) * settings.rounds))

    with device(Profile(copy_latency=1.5e-3, compute_default=8e-3)):
        on_uvloop(main())
    host, resident, far, near = map(statistics.median, medians)
    return [
        Line("input on the host", "1x", f"{host:.2f} ms", "11 ms"),
        Line(
            "input on the device",
            "10-20 % less latency",
            f"{resident:.2f} ms, {1 - resident / host:.0%} less",
            "9.5 ms, 14 % less",
        ),
        Line("a chain of three, through the host", "1x", f"{far:.2f} ms", "33 ms"),
        Line("a chain of three, on the device", "", f"{near:.2f} ms, {1 - near / far:.0%} less", "27 ms, 18 % less"),
    ]
