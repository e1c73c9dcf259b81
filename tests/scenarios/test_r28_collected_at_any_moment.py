"""R28: the last reference to a session goes, anywhere and with runs in flight: nothing hangs, all is given back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime import process
from tests import kit
from tests.waiting import eventually

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.emulated(profile=Profile(compute_default=0.05)),
]

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


def in_the_loop(kept: list[object]) -> None:
    kept.clear()


def in_a_thread(kept: list[object]) -> None:
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def in_a_collection(kept: list[object]) -> None:
    ring: list[object] = [kept[:]]
    ring.append(ring)
    kept.clear()
    del ring
    gc.collect()


def in_a_collection_in_a_thread(kept: list[object]) -> None:
    thread = threading.Thread(target=in_a_collection, args=(kept,))
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


WAYS = [in_the_loop, in_a_thread, in_a_collection, in_a_collection_in_a_thread]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tickets", [True, False], ids=["tickets are awaited", "tickets go too"])
async def test_dropped_with_four_runs_in_flight(
    emulator: Emulator, way: Callable[[list[object]], None], tickets: bool
) -> None:
    session = aioascend.Session(kit.pos(), depth=2)
    await session.open()
    held = [await session.submit(X * value) for value in range(4)]
    kept: list[object] = [session] if tickets else [session, *held]
    if not tickets:
        held.clear()
    del session
    with anyio.fail_after(10):
        way(kept)
        for value, ticket in enumerate(held):
            try:
                np.testing.assert_array_equal((await ticket)[0], X * value * kit.POS_WEIGHT)
            except aioascend.SessionClosed:
                pass
        await eventually(lambda: not process.open_devices())
    await eventually(lambda: not emulator.threads)
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []


async def test_an_array_over_pinned_memory_outlives_its_buffer_and_its_device(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device:
        released, kept = await device.malloc_host((3, 4), np.int32), await device.malloc_host(64)
        arrays = [released.array, kept.array[::2], kept.array.reshape(8, 8)]
        arrays[0][:] = 7
        await released.release()
        with pytest.raises(aioascend.StaleLease):
            _ = released.array
        assert (arrays[0] == 7).all()
        arrays[1][:] = 9
    assert (arrays[0] == 7).all()
    assert (arrays[1] == 9).all()
    assert {leak.kind for leak in emulator.report().leaks} >= {"pinned memory"}
    arrays.clear()
    await eventually(lambda: not emulator.threads)
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []


async def test_everything_that_stands_for_something_is_dropped_in_any_order(emulator: Emulator) -> None:
    for order in range(6):
        session = aioascend.Session(kit.pos(), depth=2)
        await session.open()
        device = aioascend.Device("emulator:0")
        await device.open()
        stream = await device.create_stream()
        memory, host = await device.malloc(64), await device.malloc_host(64)
        event = await device.create_event()
        await stream.copy(memory, host)
        await stream.record(event)
        request = session.request()
        await request.__aenter__()
        view = request.inputs["x"]
        ticket = await session.submit(X)
        things = [session, device, stream, memory, host, event, request, view, ticket]
        del session, device, stream, memory, host, event, request, view, ticket
        things = things[order:] + things[:order] if order % 2 else things[::-1][order:] + things[::-1][:order]
        while things:
            things.pop()
            if order % 3 == 0:
                gc.collect()
        gc.collect()
        await eventually(lambda: not process.open_devices(), seconds=10)
    await eventually(lambda: not emulator.threads)
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []
