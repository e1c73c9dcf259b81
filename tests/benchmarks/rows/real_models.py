"""What the rows about real models share: a session against ONNX Runtime in a bare loop."""

from __future__ import annotations

import statistics
from time import perf_counter as now

import aioascend

from ..harness import Outcome, Settings, alternate, on_uvloop, ratio, steady_rate
from ..peers import ort_session
from ..profiles import cpu_by_thread
from ..worlds import device, saved, zeros

__all__ = ["against_a_bare_loop"]


def against_a_bare_loop(settings: Settings, content: bytes, callers: int = 5, seconds: float = 0.1) -> Outcome:
    """Runs a second of the emulator (one compute thread) over those of `session.run`, in blocks of `seconds`."""
    outcome = Outcome(notes={"callers": callers})
    path = saved(content)

    async def main() -> None:
        raw = ort_session(path)
        async with aioascend.Session(path, devices="emulator:0", depth=3) as session:
            x = zeros(session)

            async def ours() -> float:
                return await steady_rate(lambda: session.infer(x), callers, seconds)

            async def theirs() -> float:
                limit = now() + seconds
                ends: list[float] = []
                while now() < limit or len(ends) < 2:
                    raw.run(None, {"x": x})
                    ends.append(now())
                return (len(ends) - 1) / (ends[-1] - ends[0])

            await alternate([ours, theirs], 3)
            count = settings.of(200, 20)
            outcome.notes["CPU us of infer, by thread"] = await cpu_by_thread(lambda: session.infer(x), callers, count)
            for _ in settings.measured(outcome):
                mine, other = await alternate([ours, theirs], settings.of(21, 2))
                outcome.values.append(ratio(mine, other))
                outcome.notes["bare run, ms"] = round(1e3 / statistics.median(other), 3)

    with device():
        on_uvloop(main())
    return outcome
