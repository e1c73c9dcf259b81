from __future__ import annotations

import gc
import os
from pathlib import Path

from ..harness import Outcome, Row, Settings, on_uvloop
from ..worlds import null_session, run_all, zeros

ROW = Row("growth of resident memory over 200,000 requests", "MiB", 2.0, 0.0, "lower", "null_acl", "3")


def resident() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(settings: Settings) -> Outcome:
    """After a warm-up of 20,000 requests."""
    count = settings.of(200_000, 5_000)
    outcome = Outcome(notes={"callers": 64, "requests": count})

    async def main() -> None:
        with null_session(depth=3) as session:
            async with session:
                x = zeros(session)
                await run_all(lambda: session.infer(x), count // 10, 64)
                for _ in range(settings.rounds):  # memory does not mind neighbours
                    gc.collect()
                    before = resident()
                    await run_all(lambda: session.infer(x), count, 64)
                    gc.collect()
                    outcome.values.append(resident() - before)

    on_uvloop(main())
    return outcome
