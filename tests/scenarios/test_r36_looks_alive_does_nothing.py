"""R36: a worker thread that dies is noticed within seconds: those who wait are told or served, the next are served."""

from __future__ import annotations

import asyncio

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests import kit
from tests.runtime.test_worker_threads import ours, throw
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator"), pytest.mark.logs_errors]

EYE = np.eye(700, dtype=np.float32)


@pytest.mark.parametrize("part", ["device", "control", "copy", "report"])
async def test_pending_awaits_end_and_the_session_serves_on(part: str, standing) -> None:
    async with aioascend.Session(kit.slow(4)) as session, standing(session, EYE, EYE):
        pending = [asyncio.ensure_future(session.infer(i * EYE)) for i in range(6)]
        await eventually(lambda: session.statistics().running > 0)
        for thread in ours(part):
            throw(thread)
        with anyio.fail_after(15):
            results = await asyncio.gather(*pending, return_exceptions=True)
        for i, result in enumerate(results):
            if isinstance(result, BaseException):
                assert isinstance(result, aioascend.AioascendError)
            else:
                np.testing.assert_array_equal(result[0], i * EYE)
        await eventually(lambda: session.ready)


@pytest.mark.usefixtures("impatient")
async def test_a_device_that_does_nothing_any_more_is_told_by_health(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), stall_timeout=1) as session:
        emulator.faults.hang("execute")
        pending = asyncio.ensure_future(session.infer(np.zeros(4, np.float32)))
        await eventually(lambda: not session.ready, seconds=5)
        with anyio.fail_after(5), pytest.raises(aioascend.DeviceLost):
            await pending
        await eventually(lambda: session.ready, seconds=20)
