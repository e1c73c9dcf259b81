from __future__ import annotations

import asyncio
import statistics

from ..harness import Outcome, Row, Settings, alternate, cpu_us, on_uvloop, rate, ratio
from ..profiles import cpu_by_thread
from ..worlds import null_session, zeros

ROW = Row(
    "the runtime's own cost, 64 callers: infer per second against to_thread on a no-op", "x", 1.5, 3.0, "higher",
    "null_acl", "64",
)  # fmt: skip


def nothing() -> None:
    pass


def measure(settings: Settings) -> Outcome:
    """Blocks of 50 ms in turn."""
    outcome = Outcome(notes={"callers": 64})

    async def main() -> None:
        with null_session(depth=64) as session:
            async with session:
                x = zeros(session)
                ours = lambda: rate(lambda: session.infer(x), 64, 0.05)  # noqa: E731
                theirs = lambda: rate(lambda: asyncio.to_thread(nothing), 64, 0.05)  # noqa: E731
                await alternate([ours, theirs], 5)
                outcome.notes["CPU us, infer"] = await cpu_us(lambda: session.infer(x), 64)
                outcome.notes["CPU us, to_thread"] = await cpu_us(lambda: asyncio.to_thread(nothing), 64)
                outcome.notes["of infer, by thread"] = await cpu_by_thread(
                    lambda: session.infer(x), 64, settings.of(5_000, 500)
                )
                for _ in settings.measured(outcome):
                    mine, other = await alternate([ours, theirs], settings.of(25, 3))
                    outcome.values.append(ratio(mine, other))
                    outcome.notes["infer/s"] = round(statistics.median(mine))
                    outcome.notes["to_thread/s"] = round(statistics.median(other))

    on_uvloop(main())
    return outcome
