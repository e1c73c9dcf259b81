from __future__ import annotations

import asyncio
import statistics
from concurrent.futures import ThreadPoolExecutor

from ..harness import Outcome, Row, Settings, alternate, cpu_us, latencies, on_uvloop, ratio
from ..placement import Placement, place
from ..profiles import cpu_by_thread
from ..worlds import null_session, zeros
from .own_cost_64_callers import nothing

PLACEMENTS: tuple[Placement, ...] = ("together", "anywhere")

ROW = Row(
    "the same, one caller: p50 against run_in_executor with one thread, callers and threads on a CPU each",
    "x", 1.5, 1.0, "lower", "null_acl", "3",
)  # fmt: skip


def measure(settings: Settings) -> Outcome:
    """Blocks of 50 ms in turn, of threads that are placed alike; the notes say how it is where they are not."""
    outcome = Outcome(notes={"callers": 1})

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with null_session(depth=3) as session, ThreadPoolExecutor(1) as executor:
            async with session:
                x = zeros(session)

                async def ours() -> float:
                    return statistics.median(await latencies(lambda: session.infer(x), 0.05))

                async def theirs() -> float:
                    return statistics.median(await latencies(lambda: loop.run_in_executor(executor, nothing), 0.05))

                await alternate([ours, theirs], 5)
                outcome.notes["CPU us, infer"] = await cpu_us(lambda: session.infer(x), 1)
                outcome.notes["CPU us, run_in_executor"] = await cpu_us(
                    lambda: loop.run_in_executor(executor, nothing), 1
                )
                outcome.notes["of infer, by thread"] = await cpu_by_thread(
                    lambda: session.infer(x), 1, settings.of(5_000, 500)
                )
                for how in PLACEMENTS:
                    place(how)
                    mine, other = await alternate([ours, theirs], settings.of(25, 3))
                    outcome.notes[f"{how}, x"] = round(ratio(mine, other), 2)
                place("apart")
                for _ in settings.measured(outcome):
                    mine, other = await alternate([ours, theirs], settings.of(25, 3))
                    outcome.values.append(ratio(mine, other))
                    outcome.notes["infer, us"] = round(statistics.median(mine) * 1e6, 1)
                    outcome.notes["run_in_executor, us"] = round(statistics.median(other) * 1e6, 1)
                place("anywhere")

    on_uvloop(main())
    return outcome
