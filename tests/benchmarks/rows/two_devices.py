from __future__ import annotations

import asyncio

import aioascend

from ..harness import Outcome, Row, Settings, on_uvloop, ratio
from ..worlds import device, head, run_all, staged, zeros

ROW = Row("two devices, a session on each, against one", "x", 1.95, 1.99, "higher", "2/8/1 ms", "3")


def measure(settings: Settings) -> Outcome:
    """Blocks of 1 s on two devices and on one, in turn."""
    block, pairs = settings.of(125, 10), settings.of(5, 1)
    outcome = Outcome(notes={"requests a block and device": block, "pairs a round": pairs})

    async def main() -> None:
        async with (
            aioascend.Session(head(), devices="emulator:0", depth=3) as one,
            aioascend.Session(head(), devices="emulator:1", depth=3) as two,
        ):
            x = zeros(one)

            async def load(*sessions: aioascend.Session) -> float:
                seconds = await asyncio.gather(*(run_all(lambda s=s: s.infer(x), block) for s in sessions))
                return sum(block / each for each in seconds)

            await load(one, two)
            for _ in settings.measured(outcome):
                both, alone = [], []
                for pair in range(pairs):
                    both.append(await load(one, two))
                    alone.append(await load((one, two)[pair % 2]))
                outcome.values.append(ratio(both, alone))

    with device(staged(2, 8, 1), devices=2):
        on_uvloop(main())
    return outcome
