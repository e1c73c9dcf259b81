"""R33: buffers run out: callers wait their turn, one that gives up fails alone, and nothing is declared dead."""

from __future__ import annotations

import asyncio

import anyio
import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

ONE = np.ones((1, 2, 3, 4), np.float32)
ANSWER = kit.POS_WEIGHT[None]
HOLD = 0.02  # the 200 ms of a pipeline that draws what it found, in small


async def test_50_callers_of_two_pinned_buffers_each_holding_its_own(standing) -> None:
    async with aioascend.Session(kit.pos(), depth=1) as session, standing(session, ONE, ANSWER):

        async def holds(value: int) -> None:
            async with session.request() as request:
                request.inputs["x"][:] = value
                outputs = await request.run()
                await asyncio.sleep(HOLD)
                np.testing.assert_array_equal(request.inputs["x"], ONE * value)
                np.testing.assert_array_equal(outputs[0], ANSWER * value)

        async def gives_up() -> None:
            with anyio.fail_after(HOLD / 2):
                async with session.request() as request:
                    request.inputs["x"][:] = -1
                    await request.run()
                    await asyncio.sleep(HOLD)

        with anyio.fail_after(60):
            results = await asyncio.gather(
                *(gives_up() if value % 10 == 7 else holds(value) for value in range(50)), return_exceptions=True
            )
        for value, result in enumerate(results):
            assert type(result) is (TimeoutError if value % 10 == 7 else type(None)), result


async def test_holders_of_every_pinned_buffer_hold_up_no_ordinary_caller(standing) -> None:
    async with (
        aioascend.Session(kit.pos(), depth=1) as session,
        standing(session, ONE, ANSWER),
        session.request(),
        session.request(),
    ):
        assert session.statistics().leased == 2
        results = await asyncio.gather(*(session.infer(ONE * value) for value in range(50)))
        for value, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], ANSWER * value)


async def test_kept_results_take_no_buffer_from_anybody(standing) -> None:
    async with aioascend.Session(kit.pos(), depth=1) as session, standing(session, ONE, ANSWER):
        kept = [await session.infer(ONE * value) for value in range(200)]
        with anyio.fail_after(10):
            await asyncio.gather(*(session.infer(ONE) for _ in range(50)))
        assert all((outputs[0] == ANSWER * value).all() for value, outputs in enumerate(kept))


async def test_kept_results_without_a_copy_take_no_buffer_from_anybody(standing) -> None:
    async with aioascend.Session(kit.pos(), depth=1, device_results=4) as session, standing(session, ONE, ANSWER):
        leased = [await session.infer(ONE * value, outputs="leased") for value in range(50)]
        there = [await session.infer(ONE * value, outputs="device") for value in range(4)]
        with pytest.raises(aioascend.Overloaded, match="release some"):
            await session.infer(ONE, outputs="device")
        with anyio.fail_after(10):
            await asyncio.gather(*(session.infer(ONE) for _ in range(50)))
        assert all((outputs[0] == ANSWER * value).all() for value, outputs in enumerate(leased))
        assert all([((await outputs.to_host())[0] == ANSWER * value).all() for value, outputs in enumerate(there)])
