"""What the rows about pipelines share: so many requests on a device with these stage times."""

from __future__ import annotations

import aioascend

from ..harness import Outcome, Settings, on_uvloop
from ..profiles import stream_idle
from ..worlds import device, head, run_all, staged, zeros

__all__ = ["share_of_limit"]


def share_of_limit(
    settings: Settings, h2d_ms: float, compute_ms: float, d2h_ms: float, depth: int, callers: int = 16
) -> Outcome:
    """Throughput of 1,000 requests, first submission to last answer, over what the slowest stage allows."""
    limit = 1e3 / max(h2d_ms, compute_ms, d2h_ms)
    count = settings.of(1000, 50)
    outcome = Outcome(notes={"requests": count, "callers": callers, "limit": f"{limit:g}/s"})

    async def main() -> None:
        async with aioascend.Session(head(), devices="emulator:0", depth=depth) as session:
            x = zeros(session)
            await run_all(lambda: session.infer(x), 20)
            for _ in settings.measured(outcome):
                seconds = await run_all(lambda: session.infer(x), count, callers)
                outcome.values.append(count / seconds / limit)
            outcome.notes |= await stream_idle(session, lambda: run_all(lambda: session.infer(x), count // 2, callers))

    with device(staged(h2d_ms, compute_ms, d2h_ms)):
        on_uvloop(main())
    return outcome
