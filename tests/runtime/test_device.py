"""One level below a session: devices, streams, events and buffers, all awaitable."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.mark.loops
async def test_copies_through_two_streams_ordered_by_an_event() -> None:
    async with aioascend.Device("emulator:0") as device:
        up, down = await device.create_stream(), await device.create_stream()
        source = await device.malloc_host((3, 4), np.int32)
        target = await device.malloc_host((3, 4), np.int32)
        memory = await device.malloc(source.nbytes)
        copied = await device.create_event()
        for value in range(20):
            source.array[:] = np.arange(12).reshape(3, 4) + value
            await up.copy(memory, source)
            await up.record(copied)
            await down.wait(copied)
            await down.copy(target, memory)
            await down.synchronize()
            np.testing.assert_array_equal(target.array, np.arange(12).reshape(3, 4) + value)


@pytest.mark.loops
async def test_streams_and_events_are_awaitable() -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        start, end = await device.create_event(timing=True), await device.create_event(timing=True)
        big = await device.malloc_host(8 << 20)
        memory = await device.malloc(8 << 20)
        await end  # never recorded: returns at once
        await stream.record(start)
        await stream.copy(memory, big)
        await stream.record(end)
        await asyncio.gather(_await(start), _await(end), stream.callback(), stream.synchronize())
        assert start.elapsed(end) > 0


async def _await(event: aioascend.Event) -> None:
    await event


async def test_a_failed_task_is_raised_by_synchronize_once_and_not_by_callback(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.out_of_bounds()) as session:
        stream = await device.create_stream()
        with pytest.raises(aioascend.ExecutionFailed):
            await session.infer(np.array([9]))
        await stream.synchronize()  # another stream's failure is not this one's
        await stream.callback()


async def test_misuse_is_refused_before_it_reaches_the_device() -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        event = await device.create_event()
        host = await device.malloc_host(64)
        memory, small = await device.malloc(64), await device.malloc(8)
        with pytest.raises(aioascend.InvalidInput, match="one pinned and one device buffer, given two device buffers"):
            await stream.copy(memory, small)
        with pytest.raises(aioascend.InvalidInput, match="the source has 64 bytes, the destination only 8"):
            await stream.copy(small, host)
        with pytest.raises(aioascend.InvalidInput, match="never recorded"):
            await stream.wait(event)
        with pytest.raises(aioascend.InvalidInput, match="timing=True"):
            event.elapsed(event)
        with pytest.raises(aioascend.InvalidInput, match="at least 1 byte"):
            await device.malloc(0)
        with pytest.raises(aioascend.InvalidInput, match="no bytes to lock"):
            await device.malloc_host((0, 3))
        for size in (1.5, "x", None):
            with pytest.raises(aioascend.InvalidInput, match="whole number of bytes"):
                await device.malloc(size)  # type: ignore[arg-type]
        for shape in ("ab", None, (2, 2.5)):
            with pytest.raises(aioascend.InvalidInput, match="malloc_host: no array"):
                await device.malloc_host(shape)  # type: ignore[arg-type]
        with pytest.raises(aioascend.InvalidInput, match="malloc_host: no array"):
            await device.malloc_host(4, "zork")
        with pytest.raises(aioascend.InvalidInput, match="as source, given ndarray"):
            await stream.copy(memory, np.zeros(8))  # type: ignore[arg-type]
        with pytest.raises(aioascend.InvalidInput, match="wanted an event"):
            await stream.record(None)  # type: ignore[arg-type]
        with pytest.raises(aioascend.OutOfMemory):
            await device.malloc(1 << 50)
        for call in (device.malloc(2**64 + 1024), device.malloc_host(2**64 + 1024), device.malloc_host((1 << 40,) * 2)):
            with pytest.raises(aioascend.InvalidInput, match="as an address can tell apart"):
                await call


async def test_what_belongs_to_another_device_is_refused() -> None:
    async with aioascend.Device("emulator:0") as here, aioascend.Device("emulator:1") as there:
        stream = await here.create_stream()
        memory, pinned = await here.malloc(64), await here.malloc_host(64)
        event, mark = await there.create_event(timing=True), await here.create_event(timing=True)
        for call in (
            stream.copy(await there.malloc(64), pinned),
            stream.copy(memory, await there.malloc_host(64)),
            stream.record(event),
            stream.wait(event),
        ):
            with pytest.raises(aioascend.InvalidInput, match="of emulator:0, given one of emulator:1"):
                await call
        with pytest.raises(aioascend.InvalidInput, match="elapsed: wanted an event of emulator:0, given one of emula"):
            mark.elapsed(event)


async def test_what_was_released_fails_loudly() -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        host = await device.malloc_host(64)
        memory = await device.malloc(64)
        await stream.copy(memory, host)
        await host.release()
        await host.release()
        with pytest.raises(aioascend.StaleLease, match="this pinned buffer of emulator:0 was released"):
            host.array.any()
        await stream.release()
        with pytest.raises(aioascend.StaleLease, match="this stream of emulator:0 was released"):
            await stream.synchronize()
    with pytest.raises(aioascend.StaleLease):
        memory.check()
    with pytest.raises(aioascend.SessionClosed, match="is not open"):
        await device.create_stream()


async def test_a_buffer_is_released_after_the_copies_that_use_it() -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        source = await device.malloc_host(4 << 20)
        target = await device.malloc_host(4 << 20)
        memory = await device.malloc(4 << 20)
        source.array[:] = 7
        await stream.copy(memory, source)
        await stream.copy(target, memory)
        await asyncio.gather(source.release(), memory.release())
        assert (target.array == 7).all()


async def test_a_device_and_a_session_share_one_context(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        threads = len(emulator.threads)
        async with aioascend.Device("emulator:0") as device:
            assert len(emulator.threads) == threads
            assert device.name == "emulator:0"
            assert device.generation == 1
            assert repr(device) == "<aioascend.Device emulator:0: open>"
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


async def test_a_device_is_opened_once_and_forgets_what_was_released() -> None:
    device = aioascend.Device("emulator:0")
    results = await asyncio.gather(device.open(), device.open(), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), aioascend.SessionClosed]
    for _ in range(20):
        await (await device.malloc(64)).release()
        await (await device.create_event()).release()
    assert not device._handles
    await device.aclose()


async def test_a_device_closed_while_it_opens_says_so_and_stays_closed() -> None:
    device = aioascend.Device("emulator:0")
    opening = asyncio.create_task(device.open())
    await asyncio.sleep(0)
    await device.aclose()
    with pytest.raises(aioascend.SessionClosed, match="was closed while it was being opened"):
        await opening
    assert not aioascend.runtime.process.open_devices()


async def test_a_device_that_is_dropped_warns_and_closes_itself() -> None:
    device = aioascend.Device("emulator:0")
    await device.open()
    await device.malloc(64)
    kept = [device]
    del device
    with pytest.warns(ResourceWarning, match="was never closed"):
        kept.clear()
    await eventually(lambda: not aioascend.runtime.process.open_devices())


async def test_a_device_that_does_not_open_leaves_nothing() -> None:
    with pytest.raises(aioascend.BackendUnavailable, match="no device emulator:5"):
        await aioascend.Device("emulator:5").open()
    with pytest.raises(aioascend.InvalidInput, match="name one"):
        await aioascend.Device("all").open()
    device = aioascend.Device("emulator:0")
    await device.aclose()
    task = asyncio.create_task(device.open())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not aioascend.runtime.process.open_devices())


def test_listing_devices_opens_none(emulator: Emulator) -> None:
    found = aioascend.devices()
    assert [device.name for device in found] == ["emulator:0", "emulator:1"]
    assert {device.kind for device in found} == {"emulator"}
    assert found[0].memory_total == emulator.config.memory
    assert not emulator.threads
    assert emulator.acl.finalize() != 0  # nobody has initialised it
