"""R17: many sources on one device: each keeps its order, equal ones get equal shares, a slow consumer holds up nobody.

Here for `session.map`, which keeps every frame and makes the source wait. Streams that drop stale frames ("latest
only") and count what they dropped are not offered yet, and with them the bound on the age of a frame.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Profile
from tests import kit

SOURCES = 8
SECONDS = 1.5


@pytest.mark.usefixtures("emulator")
@pytest.mark.emulated(profile=Profile(compute_default=1 / 120))
async def test_eight_sources_share_a_device_and_one_consumer_rests(standing) -> None:
    frame = np.zeros((1, 2, 3, 4), np.float32)
    async with aioascend.Session(kit.pos()) as session, standing(session, frame, frame):
        fair = await play(session, slow=None)
        assert min(fair) > 0.6 * max(fair), fair
        rested = await play(session, slow=3)
        others = [count for number, count in enumerate(rested) if number != 3]
        assert rested[3] <= SECONDS / 0.3 + 8
        assert min(others) > 0.6 * max(others), rested
        assert sum(others) > 0.75 * sum(count for number, count in enumerate(fair) if number != 3), (fair, rested)


async def play(session: aioascend.Session, slow: int | None) -> list[int]:
    """Frames that each consumer got in the time, which come in order and without a gap."""
    counts = [0] * SOURCES
    read = [0] * SOURCES
    end = time.monotonic() + SECONDS

    async def camera(number: int) -> AsyncIterator[np.ndarray]:
        while time.monotonic() < end:
            read[number] += 1
            yield np.full((1, 2, 3, 4), number * 10_000 + read[number], np.float32)

    async def consumer(number: int) -> None:
        async for outputs in session.map(camera(number)):
            counts[number] += 1
            stamp = outputs[0][0, 0, 0, 0]  # the first weight is 1
            assert stamp == number * 10_000 + counts[number]
            assert read[number] - counts[number] <= 3 + 3  # nothing piles up
            if number == slow:
                await asyncio.sleep(0.3)

    await asyncio.gather(*(consumer(number) for number in range(SOURCES)))
    return counts
