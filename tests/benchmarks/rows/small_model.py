from __future__ import annotations

import contextlib
import os
import statistics
from functools import partial

import aioascend

from ..harness import Outcome, Row, Settings, alternate, on_uvloop, rate, ratio
from ..peers import openvino_queue, ort_run_async, ort_to_thread
from ..profiles import cpu_by_thread
from ..worlds import device, mlp, saved, zeros

ROW = Row(
    "a real model of 8 to 20 us, 64 callers, against the best of to_thread, ORT run_async and OpenVINO", "x", 1.0, 1.5,
    "higher", "none", "32",
)  # fmt: skip


def measure(settings: Settings) -> Outcome:
    """Blocks of 50 ms in turn; every contender has the same CPUs."""
    outcome = Outcome(notes={"callers": 64, "cpus": sorted(os.sched_getaffinity(0))})
    path = saved(mlp())

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            session = await stack.enter_async_context(aioascend.Session(path, devices="emulator:0", depth=32))
            x = zeros(session)
            calls = {"aioascend": lambda: session.infer(x)}
            for name, peer in (
                ("to_thread", ort_to_thread), ("run_async", ort_run_async), ("OpenVINO", openvino_queue)
            ):  # fmt: skip
                try:
                    calls[name] = await stack.enter_async_context(peer(path, x))
                except ImportError:
                    outcome.notes[f"{name}/s"] = "absent: pip install 'aioascend[bench]'"
            sides = [partial(rate, call, 64, 0.05) for call in calls.values()]
            await alternate(sides, 4)
            count = settings.of(5_000, 500)
            outcome.notes["CPU us of infer, by thread"] = await cpu_by_thread(lambda: session.infer(x), 64, count)
            for _ in settings.measured(outcome):
                results = await alternate(sides, settings.of(20, 2))
                best = max(results[1:], key=statistics.median)
                outcome.values.append(ratio(results[0], best))
                for name, rates in zip(calls, results, strict=True):
                    outcome.notes[f"{name}/s"] = round(statistics.median(rates))

    with device():
        on_uvloop(main())
    return outcome
