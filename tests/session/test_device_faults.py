"""A dead context, a lost device: who fails, who waits, who never notices, and how the device comes back."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from tests import kit
from tests.waiting import eventually

pytestmark = [
    pytest.mark.usefixtures("emulator", "probed_soon"),
    pytest.mark.emulated(fatal_faults=True),
    pytest.mark.logs_errors,
]


def ones(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


async def infer_all(session: aioascend.Session, count: int) -> list[Any]:
    with anyio.fail_after(30):
        return await asyncio.gather(*(session.infer(ones(i)) for i in range(count)), return_exceptions=True)


def assert_right_or(kind: type[BaseException], results: list[Any]) -> int:
    """Every result is its own answer or an error of `kind`; how many errors."""
    failed = 0
    for i, result in enumerate(results):
        if isinstance(result, BaseException):
            assert isinstance(result, kind), result
            failed += 1
        else:
            assert result[0].tolist() == [i + 1] * 4
    return failed


# -- a dead context -------------------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_an_ai_core_error_fails_its_request_and_the_next_is_served_by_a_new_context(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        emulator.faults.fail_task("execute", 507015)
        with pytest.raises(aioascend.ExecutionFailed) as caught:
            await session.infer(ones(1))
        assert (caught.value.code, caught.value.device) == (507015, "emulator:0")
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4
        (device,) = session.statistics().devices
        assert (device.name, device.state, device.generation, device.rebuilds) == ("emulator:0", "healthy", 2, 1)
        assert device.last_error is not None
        assert "507015" in device.last_error
        assert session.ready


@pytest.mark.loops
@pytest.mark.parametrize("kind", ["execute", "copy"])
async def test_neighbours_of_a_run_that_kills_the_context_are_run_again(emulator: Emulator, kind: str) -> None:
    async with aioascend.Session(kit.add(1), instances=2) as session:
        await session.infer(ones(0))
        for nth in (1, 2, 3, 6):
            emulator.faults.fail_task(kind, 507015, nth=nth)
            assert assert_right_or(aioascend.ExecutionFailed, await infer_all(session, 30)) <= 1
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


async def test_two_sessions_on_a_context_that_dies_lose_one_request_a_fault_at_most(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(5), depth=3) as one, aioascend.Session(kit.add(1)) as other:
        emulator.faults.fail_task("execute", 507015, nth=2, times=2)
        results = await asyncio.gather(
            *(one.infer(ones(i - 4)) for i in range(12)), *(other.infer(ones(i)) for i in range(12)),
            return_exceptions=True,
        )  # fmt: skip
        assert (
            assert_right_or(aioascend.ExecutionFailed, results[:12])
            + assert_right_or(aioascend.ExecutionFailed, results[12:])
            <= 2
        )


async def test_requests_keep_their_order_of_arrival_and_their_deadlines(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), depth=1) as session:
        emulator.faults.fail_task("execute", 507015)
        done: list[int] = []

        async def one(i: int) -> None:
            try:
                await session.infer(ones(i))
            finally:
                done.append(i)

        with anyio.fail_after(20):
            await asyncio.gather(*(one(i) for i in range(10)), return_exceptions=True)
        assert done == sorted(done)


async def test_a_device_object_on_the_same_context_is_told(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1), depth=1) as session:
        stream = await device.create_stream()
        emulator.faults.fail_task("execute", 507015)
        with pytest.raises(aioascend.ExecutionFailed):
            await session.infer(ones(1))
        await eventually(lambda: session.ready)
        with pytest.raises(aioascend.StaleLease, match="earlier context"):
            await stream.synchronize()
        # ... and the other way round: its stream kills the context of the session
        stream = await device.create_stream()
        host, memory = await device.malloc_host(64), await device.malloc(64)
        emulator.faults.fail_task("copy", 507015)
        await stream.copy(memory, host)
        with pytest.raises(aioascend.ExecutionFailed):
            await stream.synchronize()
        assert assert_right_or(aioascend.ExecutionFailed, await infer_all(session, 10)) == 0


async def test_a_rebuild_that_fails_is_repeated_and_the_first_cause_is_told(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), depth=1) as session:
        emulator.faults.fail_task("execute", 507015)
        emulator.faults.fail("acl.rt.create_context", 507899, times=2)
        results = await infer_all(session, 5)
        assert isinstance(results[0], aioascend.ExecutionFailed)
        for result in results[1:]:
            assert isinstance(result, aioascend.DeviceLost)
            assert result.code == 507899
        await eventually(lambda: session.ready)
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


async def test_what_is_kept_of_an_error_keeps_nothing_alive_and_is_nobody_elses(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        assert session._core is not None
        recovery = session._core.recovery
        emulator.faults.fail_task("execute", 507015)
        told = await infer_all(session, 1)
        first = recovery.last_error
        emulator.faults.fail("acl.rt.create_context", 507899)
        told += await asyncio.gather(device.rebuild(), device.rebuild(), return_exceptions=True)
        kept = [first, recovery.last_error]
        assert [type(error) for error in told] == [aioascend.ExecutionFailed, *[aioascend.DeviceLost] * 2]
        assert [type(error) for error in kept] == [aioascend.ExecutionFailed, aioascend.DeviceLost]
        assert len({id(error) for error in [*kept, *told]}) == 5
        assert [error.__traceback__ for error in kept if error is not None] == [None, None]
        await eventually(lambda: session.ready)


# -- a lost device --------------------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_a_lost_device_fails_its_requests_at_once_and_other_devices_go_on(emulator: Emulator) -> None:
    async with (
        aioascend.Session(kit.add(1), devices="emulator:0") as well,
        aioascend.Session(kit.add(1), devices="emulator:1") as session,
    ):
        waiting = [asyncio.ensure_future(session.infer(ones(i))) for i in range(50)]
        tickets = [await session.submit(ones(i)) for i in range(3)]
        emulator.faults.lose_device(1, 507010, recoverable=False)
        with anyio.fail_after(10):
            results = await asyncio.gather(*waiting, *(t for t in tickets), return_exceptions=True)
            late = await asyncio.gather(*(session.infer(ones(i)) for i in range(5)), return_exceptions=True)
        for result in (*results, *late):
            if isinstance(result, BaseException):
                assert isinstance(result, aioascend.DeviceLost)
                assert (result.code, result.device) == (507010, "emulator:1")
        assert all(isinstance(result, aioascend.DeviceLost) for result in late)
        assert not session.ready
        (state,) = session.statistics().devices
        assert state.state in ("lost", "probing")
        assert assert_right_or(aioascend.AclError, await infer_all(well, 20)) == 0
        assert well.ready
        assert well.statistics().devices[0].state == "healthy"
        start = time.monotonic()
        await session.aclose()
        assert time.monotonic() < start + 5
        emulator.faults.return_device(1)
        emulator.acl.rt.reset_device(1)


@pytest.mark.loops
async def test_a_device_that_comes_back_serves_again(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        await session.infer(ones(0))
        for _ in range(2):
            emulator.faults.lose_device(0, 507010, recoverable=False)
            with pytest.raises(aioascend.DeviceLost):
                await session.infer(ones(1))
            await eventually(lambda: session.statistics().devices[0].state == "lost")
            await asyncio.sleep(0.3)  # a probe or more fails
            assert not session.ready
            emulator.faults.return_device(0)
            await eventually(lambda: session.ready, seconds=20)
            assert assert_right_or(aioascend.AclError, await infer_all(session, 20)) == 0


async def test_a_rebuild_asked_for_probes_a_lost_device_at_once(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        emulator.faults.lose_device(0, 507010, recoverable=False)
        with pytest.raises(aioascend.DeviceLost):
            await session.infer(ones(1))
        with pytest.raises(aioascend.DeviceLost):
            await device.rebuild()
        with pytest.raises(aioascend.DeviceLost):
            await device.create_stream()
        with pytest.raises(aioascend.DeviceLost):
            await aioascend.Session(kit.add(1)).open()
        emulator.faults.return_device(0)
        await device.rebuild()
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


async def test_the_first_cause_is_told_and_what_failed_after_it_is_a_note(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        emulator.faults.lose_device(0, 507010)
        with pytest.raises(aioascend.DeviceLost) as caught:
            await session.infer(ones(1))
        assert str(caught.value).startswith(caught.value.call)
        assert "while giving back" not in str(caught.value).splitlines()[0]


async def test_pinned_requests_and_sync_callers_of_a_lost_device_come_back_too(emulator: Emulator) -> None:
    async with aioascend.Session(kit.slow(20), depth=1) as session:
        eye = np.eye(700, dtype=np.float32)

        async def pinned() -> aioascend.Outputs:
            async with session.request() as request:
                request.inputs["x"][:] = eye
                return await request.run()

        tasks = [
            *(asyncio.ensure_future(pinned()) for _ in range(5)),
            *(asyncio.ensure_future(asyncio.to_thread(session.infer_sync, eye)) for _ in range(5)),
        ]
        await eventually(lambda: session.statistics().running > 0)
        emulator.faults.lose_device(0, 507010)
        with anyio.fail_after(20):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                assert isinstance(result, (aioascend.DeviceLost, aioascend.StaleLease)), result
        await eventually(lambda: session.ready, seconds=20)
        np.testing.assert_array_equal((await session.infer(eye))[0], eye)


async def test_large_results_on_their_way_out_survive_the_death_of_the_context(emulator: Emulator) -> None:
    """They are copied out on a worker: the new context waits for that, and what was confirmed is handed out."""
    async with aioascend.Session(kit.slow(2), depth=2) as session:
        eye = np.eye(700, dtype=np.float32)
        for nth in (2, 3, 4):
            emulator.faults.fail_task("execute", 507015, nth=nth)
            with anyio.fail_after(30):
                results = await asyncio.gather(*(session.infer(i * eye) for i in range(8)), return_exceptions=True)
            assert sum(isinstance(result, BaseException) for result in results) <= 1
            for i, result in enumerate(results):
                if not isinstance(result, BaseException):
                    np.testing.assert_array_equal(result[0], i * eye)


@pytest.mark.emulated(fatal_faults=True, profile=Profile(copy_latency=0.3, compute_default=0.2))
async def test_memory_stays_until_its_copy_is_done_although_another_run_ends_the_wait_for_it(
    emulator: Emulator,
) -> None:
    first = aioascend.Session(kit.pos("n"), shapes={"x": (1, 2, 3, 4)}, devices="emulator:0")
    second = aioascend.Session(kit.pos("n"), shapes={"x": (2, 2, 3, 4)}, devices="emulator:0")
    async with first, second:
        emulator.faults.fail_task("execute", 507015)  # at 0.5 s, while the second copy is under way and waited for
        a = asyncio.ensure_future(first.infer(np.ones((1, 2, 3, 4), np.float32)))
        await eventually(lambda: first.statistics().running == 1)
        emulator.faults.fail("acl.rt.record_event", 507015)  # the copy is queued, and the context is dead
        b = asyncio.ensure_future(second.infer(np.ones((2, 2, 3, 4), np.float32)))
        outcomes = await asyncio.gather(a, b, return_exceptions=True)
        assert all(isinstance(one, (aioascend.Outputs, aioascend.AclError)) for one in outcomes)
        again = await second.infer(np.ones((2, 2, 3, 4), np.float32))
        assert (again[0] == kit.POS_WEIGHT).all()
