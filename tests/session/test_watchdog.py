"""A stream that hangs is noticed and aborted, or the device is given up; what is slow is left alone."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend import session as session_module
from aioascend.emulator import Emulator, Profile
from tests import kit
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator"), pytest.mark.logs_errors]

SERVER = pytest.mark.emulated(soc_name="Ascend910B3")  # where streams can be aborted
IMPATIENT = pytest.mark.usefixtures("impatient")


def ones(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


async def infer_all(session: aioascend.Session, count: int) -> list[Any]:
    with anyio.fail_after(30):
        return await asyncio.gather(*(session.infer(ones(i)) for i in range(count)), return_exceptions=True)


@pytest.mark.loops
@SERVER
@pytest.mark.parametrize("kind", ["execute", "copy"])
async def test_a_stream_that_hangs_is_aborted_and_only_its_run_fails(emulator: Emulator, kind: str) -> None:
    async with aioascend.Session(kit.add(1), stall_timeout=0.5) as session:
        await session.infer(ones(0))
        emulator.faults.hang(kind, nth=2)
        results = await infer_all(session, 20)
        errors = [result for result in results if isinstance(result, BaseException)]
        assert len(errors) == 1
        assert isinstance(errors[0], aioascend.ExecutionFailed)
        assert errors[0].code == 507046
        assert "stall_timeout=0.5 s" in str(errors[0])
        for i, result in enumerate(results):
            if not isinstance(result, BaseException):
                assert result[0].tolist() == [i + 1] * 4
        (device,) = session.statistics().devices
        assert (device.state, device.generation, device.rebuilds) == ("healthy", 1, 0)
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


@IMPATIENT
@pytest.mark.loops
@pytest.mark.parametrize("kind", ["execute", "copy"])
async def test_where_streams_cannot_be_aborted_the_device_counts_as_lost_and_comes_back(
    emulator: Emulator, kind: str
) -> None:
    async with aioascend.Session(kit.add(1), stall_timeout=0.5) as session:
        await session.infer(ones(0))
        emulator.faults.hang(kind)
        results = await infer_all(session, 20)
        assert all(isinstance(result, aioascend.DeviceLost) for result in results)
        assert all("could not be aborted" in str(result) for result in results)
        await eventually(lambda: session.ready, seconds=20)
        assert session.statistics().devices[0].generation == 2
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


@pytest.mark.usefixtures("impatient")
async def test_a_run_that_waited_for_the_device_behind_one_that_hung_ends_before_its_model_goes(
    emulator: Emulator,
) -> None:
    """Where streams cannot be aborted they are destroyed with the context: not under a run that has just begun."""
    async with (
        aioascend.Session(kit.slow(6), stall_timeout=0.5) as behind,
        aioascend.Session(kit.add(1), stall_timeout=0.5) as hanging,  # what came last is given back first
    ):
        x = np.eye(700, dtype=np.float32)
        await behind.infer(x)
        emulator.faults.hang("execute")
        with anyio.fail_after(20):
            lost = asyncio.ensure_future(hanging.infer(ones(0)))
            await eventually(lambda: hanging.statistics().running > 0)
            waiting = [asyncio.ensure_future(behind.infer(x)) for _ in range(2)]
            for request in (lost, *waiting):
                with pytest.raises(aioascend.DeviceLost):
                    await request
            await eventually(lambda: behind.ready and hanging.ready, seconds=20)
        np.testing.assert_array_equal((await behind.infer(x))[0], x)


@SERVER
@IMPATIENT
async def test_an_abort_that_does_not_help_gives_the_device_up(emulator: Emulator) -> None:
    emulator.acl.rt.stream_abort = lambda stream: 0  # says that it is done
    async with aioascend.Session(kit.add(1), stall_timeout=0.5) as session:
        emulator.faults.hang("execute")
        with pytest.raises(aioascend.DeviceLost, match="could not be aborted"):
            await session.infer(ones(1))


@IMPATIENT
async def test_a_session_on_another_device_goes_on_while_one_hangs(emulator: Emulator) -> None:
    async with (
        aioascend.Session(kit.add(1), devices="emulator:0", stall_timeout=0.5) as hanging,
        aioascend.Session(kit.add(1), devices="emulator:1", stall_timeout=0.5) as well,
    ):
        emulator.faults.hang("execute", device=0)
        waiting = asyncio.ensure_future(hanging.infer(ones(1)))
        while not waiting.done():
            assert (await well.infer(ones(1)))[0][0] == 2
        with pytest.raises(aioascend.DeviceLost):
            await waiting
        assert well.statistics().devices[0].state == "healthy"


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_closing_while_a_stream_hangs_takes_seconds(
    emulator: Emulator, request: pytest.FixtureRequest, drain: bool, when: str
) -> None:
    if when == "after":
        request.getfixturevalue("impatient")
    session = aioascend.Session(kit.add(1), stall_timeout=0.5)
    await session.open()
    emulator.faults.hang("execute", times=None)
    waiting = [asyncio.ensure_future(session.infer(ones(i))) for i in range(10)]
    await eventually(lambda: session.statistics().running > 0)
    if when == "after":
        await asyncio.wait(waiting)
    start = time.monotonic()
    await session.aclose(drain=drain)
    assert time.monotonic() - start < 5
    with anyio.fail_after(5):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, (aioascend.DeviceLost, aioascend.SessionClosed)) for result in results)


@IMPATIENT
async def test_a_close_that_does_not_drain_waits_seconds_for_a_run_that_nobody_knows_to_hang(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory stays the device's: it is given back when the watchdog has come."""
    assert session_module._CLOSE_S == 4.0  # as `aclose` says
    monkeypatch.setattr(session_module, "_CLOSE_S", 0.5)
    session = aioascend.Session(kit.add(1), stall_timeout=2)
    await session.open()
    emulator.faults.hang("execute")
    waiting = asyncio.ensure_future(session.infer(ones(1)))
    await eventually(lambda: session.statistics().running > 0)
    await session.aclose(drain=False)
    assert aioascend.runtime.process.open_devices()  # it has not waited for the watchdog
    with anyio.fail_after(15):
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(result, aioascend.AioascendError)
    await eventually(lambda: not aioascend.runtime.process.open_devices(), seconds=15)


@pytest.mark.emulated(profile=Profile(compute_default=0.1))
async def test_a_long_queue_that_moves_is_left_alone(emulator: Emulator) -> None:
    async with (
        aioascend.Session(kit.add(1), stall_timeout=0.6) as session,
        aioascend.Session(kit.add(2), stall_timeout=0.6) as other,
    ):
        results = await asyncio.gather(
            *(session.infer(ones(i)) for i in range(10)), *(other.infer(ones(i)) for i in range(10))
        )
        assert [result[0][0] for result in results] == [*range(1, 11), *range(2, 12)]
        assert session.statistics().devices[0].last_error is None


@pytest.mark.emulated(profile=Profile(compute_default=0.8))
async def test_a_slow_run_within_the_limit_is_left_alone_also_by_a_session_with_a_shorter_one(
    emulator: Emulator,
) -> None:
    async with (
        aioascend.Session(kit.add(1), stall_timeout=5) as slow,
        aioascend.Session(kit.add(2), stall_timeout=1.5) as other,
    ):
        results = await asyncio.gather(
            *(slow.infer(ones(i)) for i in range(2)), *(other.infer(ones(i)) for i in range(2))
        )
        assert [result[0][0] for result in results] == [1, 2, 2, 3]
        assert slow.statistics().devices[0].last_error is None


@pytest.mark.parametrize("value", [0, -1, float("nan"), "soon", True])
def test_a_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(aioascend.InvalidInput, match="stall_timeout: wanted seconds above 0, or None"):
        aioascend.Session(kit.add(1), stall_timeout=value)


@SERVER
@pytest.mark.parametrize("asked_after", [0.0, 0.55], ids=["before it is noticed", "about when it is aborted"])
async def test_a_rebuild_that_waits_for_a_run_that_hangs_waits_until_it_is_aborted(
    emulator: Emulator, asked_after: float
) -> None:
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(kit.add(1), stall_timeout=0.5) as session,
    ):
        emulator.faults.hang("execute")
        calls = asyncio.gather(*(session.infer(ones(i)) for i in range(8)), return_exceptions=True)
        await eventually(lambda: session.statistics().running > 0)
        await asyncio.sleep(asked_after)
        with anyio.fail_after(20):
            await device.rebuild()
            results = await calls
        assert sum(isinstance(result, aioascend.ExecutionFailed) for result in results) == 1
        assert sum(isinstance(result, aioascend.Outputs) for result in results) == 7
        assert device.generation == 2
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


@SERVER
async def test_a_rebuild_asked_for_while_streams_are_being_aborted_follows(emulator: Emulator) -> None:
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(kit.add(1), stall_timeout=0.3) as session,
    ):
        abort, suspect = emulator.acl.rt.stream_abort, threading.Event()

        def slow_abort(stream: int) -> int:
            suspect.set()
            time.sleep(0.1)
            return int(abort(stream))

        emulator.acl.rt.stream_abort = slow_abort
        emulator.faults.hang("execute")
        call = asyncio.ensure_future(session.infer(ones(0)))
        await eventually(suspect.is_set)
        with anyio.fail_after(20):
            await device.rebuild()
            with pytest.raises(aioascend.ExecutionFailed):
                await call
        assert device.generation == 2
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


@IMPATIENT
async def test_a_rebuild_that_waits_for_a_device_that_is_given_up_fails(emulator: Emulator) -> None:
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(kit.add(1), stall_timeout=0.5) as session,
    ):
        emulator.faults.hang("execute")
        call = asyncio.ensure_future(session.infer(ones(0)))
        await eventually(lambda: session.statistics().running > 0)
        with anyio.fail_after(20):
            with pytest.raises(aioascend.DeviceLost):
                await device.rebuild()
            with pytest.raises(aioascend.DeviceLost):
                await call
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4
