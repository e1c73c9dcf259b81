"""R16: past a stated limit a producer waits or is refused at once; memory and threads stay where they are.

`tests/benchmarks/soak.py` is the long run: changing sizes, failures, cancels, timeouts and faults by the hour.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Profile
from tests import kit
from tests.scenarios.memory import resident

SIZE = 1 << 19  # 2 MiB of float32
ROOM = 64 << 20
LIMIT = 20

pytestmark = [
    pytest.mark.usefixtures("emulator"),
    pytest.mark.emulated(profile=Profile(compute_default=0.24)),  # waiting is the point, not computing
]


class Peak:
    """The largest growth in resident memory inside the block."""

    async def __aenter__(self) -> Peak:
        gc.collect()
        self.start = resident()
        self.grown = 0
        self._task = asyncio.create_task(self._watch())
        return self

    async def _watch(self) -> None:
        while True:
            self.grown = max(self.grown, resident() - self.start)
            await asyncio.sleep(0.005)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()


def image(value: int) -> np.ndarray:
    return np.full(SIZE, value, np.float32)


def ours() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("aioascend"))


@pytest.mark.parametrize("bound", [{"max_waiting": LIMIT}, {"max_waiting_bytes": LIMIT * SIZE * 4}])
async def test_a_thousand_requests_in_a_second_are_refused_past_the_bound(standing, bound: dict[str, int]) -> None:
    async with aioascend.Session(kit.identity(1, (SIZE,)), **bound) as session, standing(session, image(0), image(0)):
        threads = ours()
        refusals: list[aioascend.Overloaded] = []
        slowest = 0.0

        async def one(value: int) -> None:
            nonlocal slowest
            started = time.monotonic()
            try:
                await session.infer(image(value), timeout=1.0)
            except aioascend.Overloaded as error:
                slowest = max(slowest, time.monotonic() - started)
                refusals.append(error)
            except aioascend.DeadlineExceeded:
                pass

        async with Peak() as peak:
            tasks = []
            for value in range(1000):
                tasks.append(asyncio.create_task(one(value)))
                await asyncio.sleep(0.001 if value % 10 else 0)
            assert ours() == threads
            await asyncio.gather(*tasks)
        assert len(refusals) > 900
        assert slowest < 0.5  # at once
        assert "max_waiting" in str(refusals[0])
        assert peak.grown < (LIMIT + 12) * SIZE * 4 + ROOM, f"{peak.grown >> 20} MiB"


async def test_a_producer_that_submits_is_made_to_wait(standing) -> None:
    async with aioascend.Session(kit.identity(1, (SIZE,))) as session, standing(session, image(0), image(0)):
        submitted = 0
        tickets: list[aioascend.Ticket] = []

        async def produce() -> None:
            nonlocal submitted
            for value in range(1000):
                tickets.append(await session.submit(image(value)))
                submitted += 1

        async with Peak() as peak:
            producer = asyncio.create_task(produce())
            await asyncio.sleep(1)
            producer.cancel()
            await asyncio.gather(producer, return_exceptions=True)
        assert 3 <= submitted <= 20  # four a second are done, three run and three lie ready
        assert peak.grown < 20 * SIZE * 4 + ROOM
        for ticket in tickets:
            ticket.cancel()


async def test_a_thousand_arrays_through_map_are_read_as_they_are_used(standing) -> None:
    made = 0

    def source() -> object:
        nonlocal made
        for value in range(1000):
            made += 1
            yield image(value)

    async with aioascend.Session(kit.identity(1, (SIZE,))) as session, standing(session, image(0), image(0)):
        results = session.map(source())
        async with Peak() as peak:
            for value in range(3):
                assert (await anext(results))[0][0] == value
        await results.aclose()  # type: ignore[attr-defined]
        assert made <= 3 + 3 + 4
        assert peak.grown < 10 * SIZE * 4 + ROOM
