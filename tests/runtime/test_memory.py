"""Buffers of a device and the places of sessions come from the device's pools, and go back when nothing uses them."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections import Counter
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime.core import DeviceCore
from aioascend.runtime.memory import Holding
from aioascend.testing import emulated
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

KIB, MIB = 1 << 10, 1 << 20
SLOW_COPIES = pytest.mark.emulated(profile=Profile(copy_latency=0.2))


def core_of(device: aioascend.Device) -> DeviceCore:
    core = device._core
    assert core is not None
    return core


def counted(emulator: Emulator) -> Counter[str]:
    """Count every call of `acl.rt` from now on."""
    calls: Counter[str] = Counter()
    rt = emulator.acl.rt
    for name in ("malloc", "malloc_host", "free", "free_host", "memcpy_async", "synchronize_stream", "stream_query"):
        call = getattr(rt, name)

        def count(*args: Any, name: str = name, call: Any = call) -> Any:
            calls[name] += 1
            return call(*args)

        setattr(rt, name, count)
    return calls


def used(device: aioascend.Device) -> tuple[int, int]:
    now = device.memory_statistics()
    return now.device.used, now.pinned.used


@pytest.mark.loops
async def test_memory_that_was_released_is_lent_again_without_a_call(emulator: Emulator) -> None:
    calls = counted(emulator)
    async with aioascend.Device("emulator:0") as device:
        for _ in range(20):
            memory, host = await device.malloc(100 * KIB), await device.malloc_host((10, 10), np.float32)
            assert not host.array.any()
            host.array[:] = 1
            await host.release()
            await memory.release()
        assert calls == {"malloc": 1, "malloc_host": 1}
        figures = device.memory_statistics()
        assert (figures.device.hits, figures.device.misses) == (19, 1)
        assert figures.pinned.hit_rate == 0.95
        assert figures.device.fragmentation == figures.device.used == 0
        assert await device.trim_memory() == 112 * KIB + 512
        assert calls["free"] == calls["free_host"] == 1
    with pytest.raises(aioascend.SessionClosed):
        device.memory_statistics()


async def test_a_buffer_is_released_at_the_end_of_its_block() -> None:
    async with aioascend.Device("emulator:0") as device:
        async with await device.malloc(64) as memory, await device.malloc_host(64) as host:
            assert (memory.nbytes, host.array.nbytes) == (64, 64)
            assert used(device) == (512, 512)
        assert used(device) == (0, 0)
        with pytest.raises(aioascend.StaleLease, match="was released"):
            _ = host.array


async def test_a_loop_that_waits_for_its_copies_makes_no_other_calls(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device:
        stream, calls = await device.create_stream(), counted(emulator)
        for value in range(1, 6):
            source, memory = await device.malloc_host(64), await device.malloc(64)
            target = await device.malloc_host(64)
            source.array[:] = value
            await stream.copy(memory, source)
            await stream.copy(target, memory)
            await stream.synchronize()
            assert (target.array == value).all()
            for buffer in (source, memory, target):
                await buffer.release()
        # one for each kind of block; nothing is freed, and no stream is waited for a second time
        assert calls == {"malloc": 1, "malloc_host": 2, "memcpy_async": 10, "stream_query": 5}


@SLOW_COPIES
async def test_memory_is_lent_again_only_when_every_copy_that_uses_it_is_over() -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        source, memory = await device.malloc_host(64), await device.malloc(64)
        await stream.copy(memory, source)
        releasing = asyncio.ensure_future(memory.release())
        await asyncio.sleep(0.005)
        assert not releasing.done()
        assert core_of(device).pools.device.take_idle(64) is None
        await releasing
        assert device.memory_statistics().device.idle == 512
        await source.release()  # the stream was waited for, though by somebody else
        await stream.synchronize()


async def test_awaiting_an_event_tells_that_what_was_before_it_is_over(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device:
        stream, event = await device.create_stream(), await device.create_event()
        source, memory = await device.malloc_host(64), await device.malloc(64)
        await stream.copy(memory, source)
        assert not source.holding.at_rest
        await stream.record(event)
        await event
        assert source.holding.at_rest
        calls = counted(emulator)
        await memory.release()
        await source.release()
        assert not calls


async def test_a_copy_on_its_way_to_the_device_counts_as_a_use() -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        source, memory = await device.malloc_host(64), await device.malloc(64)
        go, busy = threading.Event(), threading.Event()

        def block() -> None:
            busy.set()
            go.wait(10)

        core_of(device).post(lambda _: block(), None)
        assert await asyncio.to_thread(busy.wait, 10)
        copying = asyncio.ensure_future(stream.copy(memory, source))
        await asyncio.sleep(0)
        releasing = asyncio.ensure_future(memory.release())
        await asyncio.sleep(0.01)
        assert not releasing.done()
        go.set()
        with anyio.fail_after(10):
            results = await asyncio.gather(copying, releasing, return_exceptions=True)
        assert results[1] is None
        assert isinstance(results[0], aioascend.StaleLease)  # the release was first
        assert source.holding.at_rest
        assert device.memory_statistics().device.idle == 512


async def test_a_copy_that_is_refused_at_the_door_is_no_use() -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        source, memory = await device.malloc_host(64), await device.malloc(64)
        await stream.release()
        with pytest.raises(aioascend.StaleLease):
            await stream.copy(memory, source)
        assert memory.holding.at_rest
        assert source.holding.at_rest


async def test_a_buffer_that_nobody_has_any_more_comes_back(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device:
        memory, host = await device.malloc(64), await device.malloc_host(64)
        assert used(device) == (512, 512)
        del memory, host
        gc.collect()
        await eventually(lambda: used(device) == (0, 0))  # the thread that made them lets go of them a moment later
        array = (await device.malloc_host(8)).array[2:]
        array[:] = 5
        gc.collect()
        await eventually(lambda: used(device) == (0, 512))
        assert array.tolist() == [5] * 6
        del array
        await eventually(lambda: used(device) == (0, 0))
        assert not device._handles._handles


@SLOW_COPIES
async def test_a_buffer_that_is_dropped_comes_back_when_its_copies_are_over() -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        source, memory = await device.malloc_host(64), await device.malloc(64)
        await stream.copy(memory, source)
        del source, memory
        assert used(device) == (512, 512)
        await eventually(lambda: used(device) == (0, 0))
        await stream.synchronize()


async def test_what_is_dropped_after_its_device_was_closed_says_nothing() -> None:
    async with aioascend.Device("emulator:0") as device:
        memory, host, core = await device.malloc(64), await device.malloc_host(64), core_of(device)
        lost = Holding(core, memory.holding.block, "device buffer")
    lost.announce()
    lost.dropped()  # its use is never told to be over
    del memory, host
    gc.collect()


async def test_a_release_and_the_close_of_the_device_give_back_once() -> None:
    async with aioascend.Session(kit.add(1)) as session, aioascend.Device("emulator:0") as other:
        before = used(other)
        device = aioascend.Device("emulator:0")
        await device.open()
        buffers = [await device.malloc(64) for _ in range(8)]
        buffers += [await device.malloc_host(64) for _ in range(8)]
        await asyncio.gather(device.aclose(), *(buffer.release() for buffer in buffers), return_exceptions=True)
        assert used(other) == before
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


async def test_a_close_that_finds_everything_released_meanwhile_has_nothing_to_do() -> None:
    async with aioascend.Device("emulator:0") as device:
        core = core_of(device)
        await (await device.malloc(64)).release()
        core.control(device._handles._release_latest, core).result()
        assert used(device) == (0, 0)


async def test_idle_memory_is_not_lent_by_a_device_that_is_being_closed(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as other:
        device = aioascend.Device("emulator:0")
        await device.open()
        await (await device.malloc(64)).release()
        device._handles.closed = True  # as a close does in a thread of its own, which nobody has heard of yet
        buffer = await device.malloc(64)
        assert other.memory_statistics().device.hits == 1  # on the control thread, where the close finds it
        await device.aclose()
        assert buffer.holding.released
        assert used(other) == (0, 0)


@pytest.mark.parametrize("kind", ["device", "pinned"])
async def test_a_rebuild_leaves_nothing_of_the_pools_behind(emulator: Emulator, kind: str) -> None:
    async with aioascend.Device("emulator:0") as device:

        async def take() -> aioascend.DeviceBuffer | aioascend.PinnedBuffer:
            return await (device.malloc(64) if kind == "device" else device.malloc_host(64))

        kept, idle = await take(), await take()
        await idle.release()
        await device.rebuild()
        figures = getattr(device.memory_statistics(), kind)
        assert figures.idle == 0
        with pytest.raises(aioascend.StaleLease, match="an earlier context"):
            _ = kept.address
        with pytest.raises(aioascend.StaleLease, match="was given back" if kind == "device" else "an earlier context"):
            kept.holding.block.check()
        fresh = await take()
        await kept.release()
        await fresh.release()
        figures = getattr(device.memory_statistics(), kind)
        assert (figures.used, figures.idle) == (0, 512)  # what belongs to the earlier context is not lent again


async def test_a_session_that_follows_another_of_its_size_finds_its_memory_there(emulator: Emulator) -> None:
    calls = counted(emulator)
    async with aioascend.Device("emulator:0") as device:
        for constant in range(1, 5):
            async with aioascend.Session(kit.add(constant), depth=3) as session:
                results = await asyncio.gather(*(session.infer(np.full(4, i, np.float32)) for i in range(8)))
                assert [result[0][0] for result in results] == [constant + i for i in range(8)]
                memory = session.statistics().memory
                assert memory is not None
                assert memory.device.blocks == 6
                assert memory.pinned.blocks == 8
            assert used(device) == (0, 0)
        assert (calls["malloc"], calls["malloc_host"]) == (6, 8)
        assert (calls["free"], calls["free_host"]) == (0, 0)
    assert (calls["free"], calls["free_host"]) == (6, 8)
    memory = session.statistics().memory
    assert memory is not None
    assert memory.device.blocks == memory.pinned.blocks == 0


async def test_large_pinned_memory_is_zeroed_elsewhere_than_on_the_callers_loop(emulator: Emulator) -> None:
    calls = counted(emulator)
    async with aioascend.Device("emulator:0") as device:
        threads = []
        for _ in range(2):
            buffer = await device.malloc_host(3 * MIB)
            assert not buffer.array.any()
            buffer.array[:] = 1
            announce = core_of(device).pools.pinned.host_access

            def note(address: int, nbytes: int, write: bool, announce: Any = announce) -> None:
                threads.append(threading.current_thread().name)
                announce(address, nbytes, write)

            core_of(device).pools.pinned.host_access = note
            await buffer.release()
        assert calls["malloc_host"] == 1
        assert set(threads) == {"aioascend-control-emulator:0"}


async def test_where_memory_was_asked_for_is_told_when_its_device_or_session_is_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_TRACE_MEMORY", "1")
    with caplog.at_level(logging.WARNING, "aioascend"):
        async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
            memory, host = await device.malloc(64), await device.malloc_host(64)
            released = await device.malloc(64)
            await released.release()
            request = session.request()
            await request.__aenter__()
            array = request.inputs["x"]
        texts = [record.getMessage() for record in caplog.records if __file__ in record.getMessage()]
    assert [text.partition(", asked for at ")[0] for text in texts] == [
        "a pinned input buffer of a closed session is not given back",
        "emulator:0 is closed with a device buffer of 64 bytes not released",
        "emulator:0 is closed with a pinned buffer of 64 bytes not released",
    ]
    assert all(text.rpartition(":")[2].isdigit() for text in texts)
    assert memory.holding.released
    assert host.holding.released
    del request, array


async def test_without_tracing_a_close_says_nothing_of_what_it_releases(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "aioascend"):
        async with aioascend.Device("emulator:0") as device:
            memory = await device.malloc(64)
    assert [record for record in caplog.records if "not released" in record.getMessage()] == []
    assert memory.holding.released


@pytest.mark.logs_errors
@pytest.mark.parametrize("leased", [False, True])
async def test_what_a_hung_stream_of_a_session_may_touch_is_not_lent_again(
    monkeypatch: pytest.MonkeyPatch, leased: bool
) -> None:
    monkeypatch.setattr("aioascend.runtime.recovery._TEARDOWN_S", 0.2)
    with emulated(check=False) as emulator:
        del emulator.acl.rt.destroy_stream_force
        async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1), depth=1) as session:
            before = used(device)
            x = np.zeros(4, np.float32)
            emulator.faults.hang("copy")
            if leased:
                async with session.request() as request:
                    request.inputs["x"][:] = 0
                    running = asyncio.ensure_future(request.run())
                    await eventually(lambda: session.statistics().running == 1)
            else:
                running = asyncio.ensure_future(session.infer(x))
                await eventually(lambda: session.statistics().running == 1)
            emulator.faults.fail("acl.rt.process_report", 507899)
            with anyio.fail_after(20):
                (outcome,) = await asyncio.gather(running, return_exceptions=True)
                assert isinstance(outcome, aioascend.DeviceLost)
                await eventually(lambda: device.generation == 2 and session.ready, seconds=20)
                assert (await session.infer(x))[0][0] == 1
            assert used(device) == before
        assert not emulator.report().violations
        left = Counter(leak.kind for leak in emulator.report().leaks)
        assert left["device memory"] == 2
        assert left["pinned memory"] == 4 + leased


async def test_pinned_memory_that_comes_back_after_the_close_of_its_device_is_left_behind(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "aioascend.memory"):
        async with aioascend.Device("emulator:0") as device:
            pool = core_of(device).pools.pinned
            await (await device.malloc_host(64)).release()
            block = pool.take_idle(64, "somebody")
            assert block is not None
    assert [record.getMessage() for record in caplog.records] == [
        "emulator:0 is closed with 64 bytes of pinned memory not released, held for somebody"
    ]
    block.release()
    assert pool.statistics().used == 0


async def test_memory_goes_from_stream_to_stream_without_an_event_where_the_host_has_waited(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device:
        streams = [await device.create_stream() for _ in range(3)]
        addresses = set()
        for round in range(9):
            stream = streams[round % 3]
            source, memory = await device.malloc_host(64), await device.malloc(64)
            addresses.add(memory.address)
            source.array[:] = round
            await stream.copy(memory, source)
            if round % 2:
                await stream.callback()
            await asyncio.gather(memory.release(), source.release())  # waits where nobody has
        assert len(addresses) == 1
        # The strict emulator tells of a use without an order at the end.


async def test_an_array_that_is_seen_keeps_its_memory_while_its_buffer_is_released() -> None:
    async with aioascend.Device("emulator:0") as device:
        host = await device.malloc_host(8)
        array, go = host.array, threading.Event()
        array[:] = 3
        held = core_of(device).control(go.wait, 10)
        releasing = asyncio.ensure_future(host.release())
        await asyncio.sleep(0.005)
        assert not releasing.done()
        with pytest.raises(aioascend.StaleLease, match="was released"):
            _ = host.array
        go.set()
        with anyio.fail_after(10):
            await releasing
        assert held.result()
        assert used(device) == (0, 512)
        assert array.tolist() == [3] * 8
        del array
        await eventually(lambda: used(device) == (0, 0))
