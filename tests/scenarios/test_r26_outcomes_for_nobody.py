"""R26: an outcome that comes after its future was cancelled, or its loop closed, is set on nothing and says nothing."""

from __future__ import annotations

import asyncio
import gc
import random

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Profile
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
ANSWER = X * kit.POS_WEIGHT


@pytest.mark.loops
@pytest.mark.emulated(profile=Profile(compute_default=0.001))
async def test_200_cancels_around_the_moment_of_completion(standing) -> None:
    random.seed(26)
    async with aioascend.Session(kit.pos(), depth=2) as session, standing(session, X, ANSWER):
        for _ in range(200):
            tasks = [asyncio.create_task(session.infer(X)) for _ in range(2)]
            await asyncio.sleep(random.random() * 0.004)
            tasks[0].cancel()
            first, second = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(first, (asyncio.CancelledError, aioascend.Outputs))
            assert isinstance(second, aioascend.Outputs)


@pytest.mark.emulated(profile=Profile(compute_default=0.05))
@pytest.mark.parametrize("cancel", [True, False], ids=["cancelled first", "without as much as a cancel"])
def test_the_loop_closes_before_the_device_is_done(standing, cancel: bool) -> None:
    with aioascend.Session(kit.pos(), depth=1) as session, standing(session, X, ANSWER):
        complaints: list[object] = []
        for _ in range(3):
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            doors = [session.infer(X), session.submit(X), session.infer(X, timeout=0.02)]
            tasks = [loop.create_task(door) for door in doors]
            loop.run_until_complete(asyncio.sleep(0.01))
            if cancel:
                for task in tasks:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()
            for task in tasks:
                task._log_destroy_pending = False  # that the tasks were pending is asyncio's to say, and said
            del tasks, doors, loop
        np.testing.assert_array_equal(session.infer_sync(2 * X)[0], 2 * ANSWER)
        gc.collect()
        assert complaints == []


@pytest.mark.emulated(profile=Profile(compute_default=0.05))
def test_a_session_opened_on_a_loop_that_is_gone_serves_the_next_one(standing) -> None:
    session = aioascend.Session(kit.pos())

    async def opens() -> None:
        await session.open()
        np.testing.assert_array_equal((await session.infer(X))[0], ANSWER)

    async def uses(value: int) -> None:
        results = await asyncio.gather(*(session.infer(X * (value + k)) for k in range(4)))
        for k, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], ANSWER * (value + k))

    asyncio.run(opens())
    with standing(session, X, ANSWER):
        for value in range(3):
            asyncio.run(uses(value))
    asyncio.run(session.aclose())
