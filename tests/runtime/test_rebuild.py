"""The context of a device is made anew: models come back, old handles are refused, nobody else notices."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.scheduling.health import HealthState
from tests import kit
from tests.session.test_under_faults import MAKERS, Books
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator", "probed_soon")


def ones(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


@pytest.mark.loops
async def test_a_session_carries_on_after_a_rebuild() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        for round in range(3):
            assert (await session.infer(ones(round)))[0].tolist() == [round + 1] * 4
            await device.rebuild()
            assert device.generation == round + 2
        assert (await session.infer(ones(7)))[0].tolist() == [8] * 4


@pytest.mark.loops
async def test_requests_in_flight_and_in_line_all_get_their_own_answer() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1), instances=2) as session:
        waiting = [asyncio.ensure_future(session.infer(ones(i))) for i in range(200)]
        await asyncio.sleep(0)
        await device.rebuild()
        waiting += [asyncio.ensure_future(session.infer(ones(i))) for i in range(200, 220)]
        for i, outputs in enumerate(await asyncio.gather(*waiting)):
            assert outputs[0].tolist() == [i + 1] * 4
        assert session.statistics().failed == 0


@pytest.mark.loops
@pytest.mark.emulated(profile=Profile(calls={"acl.rt.create_context": 0.05, "acl.rt.destroy_context": 0.05}))
async def test_what_is_opened_while_a_rebuild_is_under_way_waits_for_it() -> None:
    async with aioascend.Device("emulator:0") as device:
        rebuilding = asyncio.ensure_future(device.rebuild())
        while not rebuilding.done():
            async with aioascend.Session(kit.add(1)) as session:
                assert (await session.infer(ones(1)))[0].tolist() == [2] * 4
            await (await device.create_stream()).synchronize()
        await rebuilding


@pytest.mark.logs_errors
async def test_what_is_opened_right_after_a_rebuild_that_failed_is_told_why(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device:
        emulator.faults.fail("acl.rt.create_context", 507899, times=None)
        rebuilding = asyncio.ensure_future(device.rebuild())
        health = device._open_core().recovery.health
        await eventually(lambda: health.state is not HealthState.HEALTHY)  # else an open may be the first
        opening = [asyncio.ensure_future(aioascend.Session(kit.add(1)).open()) for _ in range(8)]
        for result in await asyncio.gather(rebuilding, *opening, return_exceptions=True):
            assert isinstance(result, aioascend.AclError)
            assert result.code == 507899


async def test_a_rebuild_finds_every_handle_of_a_device_object_that_is_being_closed() -> None:
    async with aioascend.Device("emulator:0") as device:
        for _ in range(10):
            other = aioascend.Device("emulator:0")
            await other.open()
            for _ in range(10):
                await other.malloc(1000)
                await other.create_event()
                await other.create_stream()
            await asyncio.gather(other.aclose(), device.rebuild())


@pytest.mark.logs_errors
async def test_a_rebuild_asked_for_at_once_when_a_device_is_lost_waits_for_the_copies(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        copied = threading.Event()
        device._open_core().copy(copied.wait, 10.0)  # a large copy to or from pinned memory
        emulator.faults.lose_device(0, at_task=1)
        with pytest.raises(aioascend.DeviceLost):
            await session.infer(ones(1))
        rebuilding = asyncio.ensure_future(device.rebuild())
        await asyncio.sleep(0.1)
        assert not session.ready
        copied.set()
        with anyio.fail_after(10):
            await rebuilding
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4
        assert session.ready


async def test_large_inputs_that_were_copied_already_are_not_copied_from_the_caller_again() -> None:
    """A ticket's array is the caller's again: a rebuild takes its bytes from pinned memory."""
    size = 700
    eye = np.eye(size, dtype=np.float32)
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.slow(20, size), depth=1) as session:
        tickets = []
        for i in range(1, 4):
            x = i * eye
            tickets.append(await session.submit(x))
            x[:] = -1
        await device.rebuild()
        for i, ticket in enumerate(tickets, 1):
            np.testing.assert_array_equal((await ticket)[0], i * eye)


async def test_handles_of_the_old_context_are_refused() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        stream, other = await device.create_stream(), await device.create_stream()
        event = await device.create_event()
        memory, host = await device.malloc(64), await device.malloc_host(64)
        array = host.array
        array[:] = 5
        await stream.copy(memory, host)
        await stream.record(event)
        async with session.request() as request:
            inputs = request.inputs["x"]
            inputs[:] = 3
            await device.rebuild()
            for use in (
                stream.synchronize(),
                stream.callback(),
                stream.copy(memory, host),
                stream.record(event),
                other.wait(event),
                request.run(),
            ):
                with pytest.raises(aioascend.StaleLease, match="earlier context of emulator:0"):
                    await use
            for look in (lambda: memory.address, lambda: host.array, lambda: event.elapsed(event)):
                with pytest.raises(aioascend.StaleLease, match="earlier context of emulator:0"):
                    look()
            with pytest.raises(aioascend.StaleLease, match="earlier context of emulator:0"):
                await event
            with pytest.raises(aioascend.StaleLease, match="earlier context of emulator:0"):
                request.inputs["x"]
            assert (inputs == 3).all()  # an array that somebody holds stays readable
            assert (array == 5).all()
        for handle in (stream, event, memory, host):
            await handle.release()
        async with session.request() as request:
            request.inputs["x"][:] = 3
            assert (await request.run())[0].tolist() == [4] * 4
        fresh = await device.create_stream()
        await fresh.synchronize()


async def test_a_pinned_request_in_line_is_kept() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.slow(20), depth=1) as session:
        eye = np.eye(700, dtype=np.float32)
        before = [asyncio.ensure_future(session.infer(eye)) for _ in range(3)]
        async with session.request() as request:
            request.inputs["x"][:] = 2 * eye
            running = asyncio.ensure_future(request.run())
            await eventually(lambda: session.statistics().waiting > 1)
            await device.rebuild()
            np.testing.assert_array_equal((await running)[0], 2 * eye)
        await asyncio.gather(*before)


async def test_nothing_is_left_of_the_old_contexts(emulator: Emulator) -> None:
    books = Books(emulator)
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1), depth=2) as session:
        for _ in range(5):
            await device.create_stream()
            await device.create_event()
            await device.malloc(64)
            pinned = await device.malloc_host(64)
            async with session.request() as request:
                request.inputs["x"][:] = 1
                await request.run()
            await device.rebuild()
            await pinned.release()
            gc.collect()
    books.assert_balanced()


async def test_somebody_else_in_the_process_keeps_the_device(emulator: Emulator) -> None:
    """Another library has set the device too: its default context, streams and memory survive our rebuilds."""
    acl = emulator.acl
    acl.init()
    assert acl.rt.set_device(0) == 0
    mine, _ret = acl.rt.get_context()
    stream, _ret = acl.rt.create_stream()
    block, _ret = acl.rt.malloc(64, 0)
    forced = []
    acl.rt.reset_device_force = lambda device: forced.append(device) or 0
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        await device.rebuild()
        assert acl.rt.set_context(mine) == 0
        assert acl.rt.synchronize_stream(stream) == 0
        assert (await session.infer(ones(1)))[0][0] == 2
    assert acl.rt.free(block) == 0
    assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.reset_device(0) == 0
    assert not forced


@pytest.mark.logs_errors
async def test_a_model_file_is_loaded_again_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(kit.add(1))
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(path) as session,
        aioascend.Session(kit.add(5)) as other,
    ):
        await device.rebuild()
        assert (await session.infer(ones(1)))[0][0] == 2
        path.write_bytes(kit.several())
        for asked in (device.rebuild(), session.infer(ones(1)), session.request().__aenter__()):
            with pytest.raises(aioascend.ModelLoadError, match="has changed since the session was opened"):
                await asked
        assert not session.ready
        assert (await other.infer(ones(1)))[0][0] == 6  # the device is well
        assert other.ready


async def test_rebuilds_asked_for_at_once_are_one() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        await asyncio.gather(*(device.rebuild() for _ in range(5)))
        assert device.generation == 2
        assert (await session.infer(ones(1)))[0][0] == 2


async def test_cancelling_the_wait_for_a_rebuild_leaves_it_alone() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        task = asyncio.create_task(device.rebuild())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.infer(ones(1)))[0][0] == 2


async def test_sessions_and_devices_may_come_and_go_during_rebuilds() -> None:
    async with aioascend.Device("emulator:0") as device:

        async def use(i: int) -> None:
            async with aioascend.Session(kit.add(i)) as session:
                assert (await session.infer(ones(1)))[0][0] == i + 1
                if i % 2:
                    await session.infer(ones(1))

        with anyio.fail_after(60):
            for _ in range(3):
                await asyncio.gather(*(use(i) for i in range(4)), device.rebuild())


async def test_cancelled_and_closing_callers_during_a_rebuild() -> None:
    async with aioascend.Device("emulator:0") as device:
        session = aioascend.Session(kit.add(1))
        await session.open()
        tasks = [asyncio.ensure_future(session.infer(ones(i))) for i in range(30)]
        await asyncio.sleep(0)
        rebuilding = asyncio.ensure_future(device.rebuild())
        for task in tasks[::3]:
            task.cancel()
        with anyio.fail_after(20):
            await session.aclose()
            await rebuilding
            for i, result in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
                if i % 3 == 0:
                    assert isinstance(result, (asyncio.CancelledError, aioascend.Outputs))
                else:
                    assert result[0][0] == i + 1  # type: ignore[index]


STEPS = [
    *MAKERS,
    # What could not be destroyed is still there when its context goes, which is against the rules.
    *(
        pytest.param(name, marks=pytest.mark.breaks_rules)
        for name in sorted(set(MAKERS.values()) - {"rt.destroy_context", "rt.reset_device"})
    ),
    "rt.get_run_mode",
    "rt.set_context",
    "mdl.get_desc",
    "mdl.add_dataset_buffer",
]


def _said(function: str, text: str) -> bool:
    """Whether an error names the function, as pyACL or as the C library calls it."""
    name = function.split(".")[-1].replace("_", "").lower()
    return name in text.replace("_", "").lower()


@pytest.mark.logs_errors
@pytest.mark.parametrize("way", ["callback", "event"])
@pytest.mark.parametrize("function", STEPS)
async def test_a_rebuild_whose_kth_call_fails_says_so_and_leaves_nothing(
    emulator: Emulator, function: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    books = Books(emulator)
    destroying = function in MAKERS.values()
    for k in range(1, 60):
        async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1), depth=1) as session:
            await session.infer(ones(1))
            books.fail, books.calls = (function, k), 0
            with anyio.fail_after(20):
                (outcome,) = await asyncio.gather(device.rebuild(), return_exceptions=True)
            books.fail = None
            if outcome is not None:
                assert isinstance(outcome, aioascend.AioascendError)
                text = str(outcome)
                assert _said(function, text)
                assert "500002" in text or "200000" in text
                with anyio.fail_after(20):  # the device is well: the next probe finds that out
                    while True:
                        (answer,) = await asyncio.gather(session.infer(ones(1)), return_exceptions=True)
                        if isinstance(answer, aioascend.Outputs):
                            break
                        await asyncio.sleep(0.01)
            assert (await session.infer(ones(1)))[0][0] == 2
        struck = books.calls >= k
        if struck and destroying:
            books.destroyed[function] += 1  # what could not be destroyed is the one thing that stays
        books.assert_balanced()
        if not struck:
            break
    else:
        raise AssertionError("more calls than expected: the loop has not tried them all")
    async with aioascend.Session(kit.add(1)) as session:
        assert (await session.infer(ones(1)))[0][0] == 2


@pytest.mark.breaks_rules
@pytest.mark.parametrize("function", ["destroy_context", "reset_device"])
async def test_a_context_that_cannot_be_closed_is_left_behind_and_a_new_one_serves(
    emulator: Emulator, function: str
) -> None:
    close = getattr(emulator.acl.rt, function)
    left: list[int] = []
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        setattr(emulator.acl.rt, function, lambda handle: left.append(handle) or 507000)
        await device.rebuild()
        setattr(emulator.acl.rt, function, close)
        assert (await session.infer(ones(1)))[0][0] == 2
    assert len(left) == 1
    assert close(left[0]) == 0
