"""Calls that fail under devices, streams, events and buffers: the first cause is told, nothing leaks, nobody hangs."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime import process
from aioascend.testing import emulated
from tests.session.test_under_faults import CODE, MAKERS, Books
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator", "probed_soon")


@pytest.fixture
def books(emulator: Emulator) -> Books:
    return Books(emulator)


@pytest.fixture
def without_ex_events(emulator: Emulator) -> None:
    """Old CANN: a plain event serves once."""
    del emulator.acl.rt.create_event_ex_with_flag


@pytest.mark.parametrize("destroy_fails", [False, True])
async def test_a_stream_that_cannot_be_subscribed_is_destroyed_and_the_first_cause_is_told(
    emulator: Emulator, destroy_fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with aioascend.Device("emulator:0") as device:
        emulator.faults.fail("acl.rt.subscribe_report", 507000)
        destroyed = []
        destroy = emulator.acl.rt.destroy_stream

        def destroy_and_fail(stream: int) -> int:
            destroyed.append(destroy(stream))
            return 507899 if destroy_fails else 0

        emulator.acl.rt.destroy_stream = destroy_and_fail
        with pytest.raises(aioascend.AclError) as caught:
            await device.create_stream()
        assert caught.value.code == 507000
        assert "subscribe" in caught.value.call
        assert destroyed == [0]
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * destroy_fails
        emulator.acl.rt.destroy_stream = destroy
        await (await device.create_stream()).synchronize()


@pytest.mark.usefixtures("without_ex_events")
async def test_an_event_whose_renewal_fails_is_still_one_event(emulator: Emulator, books: Books) -> None:
    async with aioascend.Device("emulator:0") as device:
        stream, event = await device.create_stream(), await device.create_event()
        await stream.record(event)
        emulator.faults.fail("acl.rt.create_event", 207007)
        with pytest.raises(aioascend.AclError, match="207007"):
            await stream.record(event)
        await event  # what was captured before
        await stream.record(event)
        await event
        await event.release()
    books.assert_balanced()


@pytest.mark.parametrize("way", ["callback", "event"])
async def test_awaiting_an_event_whose_recording_failed_does_not_hang(
    emulator: Emulator, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    armed_by = {"callback": ("acl.rt.launch_callback", 1), "event": ("acl.rt.record_event", 2)}[way]
    async with aioascend.Device("emulator:0") as device:
        stream, event = await device.create_stream(), await device.create_event()
        for _ in range(2):
            for function, nth in (("acl.rt.record_event", 1), armed_by):
                emulator.faults.fail(function, 507000, nth=nth)
                with pytest.raises(aioascend.AclError, match="507000"):
                    await stream.record(event)
                with anyio.fail_after(10):
                    await event
            await stream.record(event)  # the second time round it has captured something
            await event
            await stream.synchronize()


@pytest.mark.parametrize("way", ["callback", "event"])
async def test_a_point_that_cannot_be_armed_fails_its_caller_and_the_next_is_reached(
    emulator: Emulator, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        for wait in (stream.synchronize, stream.callback):
            emulator.faults.fail("acl.rt.launch_callback" if way == "callback" else "acl.rt.record_event", 507000)
            with pytest.raises(aioascend.AclError, match="507000"):
                await wait()
            (core,) = process.open_devices()
            assert not core._armed  # nothing is waited for that will not come
            with anyio.fail_after(10):
                await wait()


@pytest.mark.parametrize("function", ["rt.set_device", "rt.get_run_mode", "rt.create_context", "rt.set_context"])
async def test_a_device_whose_open_fails_gives_everything_back(books: Books, function: str) -> None:
    for k in range(1, 10):
        books.fail, books.calls = (function, k), 0
        device = aioascend.Device("emulator:0")
        (outcome,) = await asyncio.gather(device.open(), return_exceptions=True)
        assert (outcome is not None) == (books.calls >= k)
        if outcome is not None:
            assert isinstance(outcome, aioascend.AclError)
            assert outcome.code == CODE
            with pytest.raises(aioascend.SessionClosed, match="is not open"):
                await device.create_stream()
        await device.aclose()
        books.assert_balanced()
        assert process.open_devices() == ()
        if outcome is None:
            break
    else:
        raise AssertionError("more calls than expected: the loop has not tried them all")


@pytest.mark.parametrize("release_fails", [False, True])
async def test_what_is_made_while_its_device_closes_is_given_back(
    emulator: Emulator, books: Books, release_fails: bool
) -> None:
    async with aioascend.Device("emulator:0"):  # keeps it open
        device = aioascend.Device("emulator:0")
        await device.open()
        (core,) = process.open_devices()
        go = threading.Event()
        core.control(go.wait, 10)
        making = asyncio.ensure_future(device.create_event())
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(device.aclose())
        await asyncio.sleep(0)
        if release_fails:
            destroy = emulator.acl.rt.destroy_event
            emulator.acl.rt.destroy_event = lambda event: destroy(event) or 507000
        go.set()
        with pytest.raises(aioascend.SessionClosed, match="was closed meanwhile"):
            await making
        await closing
    books.assert_balanced()


async def test_a_device_that_was_never_opened_makes_nothing() -> None:
    device = aioascend.Device("emulator:0")
    with pytest.raises(aioascend.SessionClosed, match="is not open"):
        await device.create_stream()


async def test_a_release_that_finds_nothing_left_is_no_error() -> None:
    async with aioascend.Device("emulator:0") as device:
        (core,) = process.open_devices()
        core.control(device._handles._release_latest, core).result(10)  # a rebuild came first
        await device.create_event()


async def test_two_releases_at_once_are_one(books: Books) -> None:
    async with aioascend.Device("emulator:0") as device:
        for handle in (await device.create_stream(), await device.create_event(), await device.malloc(64)):
            await asyncio.gather(*(handle.release() for _ in range(3)))
    books.assert_balanced()


@pytest.mark.emulated(profile=Profile(copy_latency=0.4))  # two of them take longer than one look of the control thread
async def test_a_completion_that_fails_is_told_when_the_stream_has_got_there(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says of the point is nothing: the bytes are there all the same when the wait ends."""
    monkeypatch.setenv("AIOASCEND_COMPLETION", "event")
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        source, target = await device.malloc_host(1 << 20), await device.malloc_host(1 << 20)
        memory = await device.malloc(1 << 20)
        for value in (1, 2):
            source.array[:] = value
            emulator.faults.fail("acl.rt.synchronize_event_with_timeout", 507000)
            await stream.copy(memory, source)
            await stream.copy(target, memory)
            if value == 1:
                await stream.callback()  # says nothing about failures
            else:
                with pytest.raises(aioascend.AclError, match="507000"):
                    await stream.synchronize()
            assert (target.array == value).all()
        await stream.synchronize()


@pytest.mark.logs_errors
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["callback", "event"])
async def test_a_completion_that_tells_of_a_lost_device_ends_the_wait_and_the_device_comes_back(
    emulator: Emulator, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    function = {"callback": "process_report", "event": "synchronize_event_with_timeout"}[way]
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        emulator.faults.hang("copy")
        host, memory = await device.malloc_host(64), await device.malloc(64)
        await stream.copy(memory, host)
        waiting = asyncio.ensure_future(stream.synchronize())
        await asyncio.sleep(0.05)
        emulator.faults.fail(f"acl.rt.{function}", 507899)
        with anyio.fail_after(10), pytest.raises(aioascend.DeviceLost, match="507899"):
            await waiting
        await eventually(lambda: device.generation == 2, seconds=20)
        with anyio.fail_after(20):
            while True:  # until the probe has succeeded
                try:
                    stream = await device.create_stream()
                    break
                except aioascend.DeviceLost:
                    await asyncio.sleep(0.01)
        await stream.synchronize()


@pytest.mark.logs_errors
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("first", ["stream", "memory"])
@pytest.mark.parametrize("by_force", [True, False])
async def test_memory_that_a_hung_stream_may_still_touch_is_not_freed_under_it(by_force: bool, first: str) -> None:
    """Strict mode tells if it is. Where such a stream can be destroyed by force, the memory is given back."""
    with emulated(check=False) as emulator:
        books = Books(emulator)
        if not by_force:
            del emulator.acl.rt.destroy_stream_force
        async with aioascend.Device("emulator:0") as device:
            early = await device.create_stream()
            host, memory = await device.malloc_host(64), await device.malloc(64)
            stream = early if first == "stream" else await device.create_stream()
            emulator.faults.hang("copy")
            await stream.copy(memory, host)
            waiting = asyncio.ensure_future(stream.synchronize())
            await asyncio.sleep(0.05)
            emulator.faults.fail("acl.rt.process_report", 507899)
            with anyio.fail_after(10), pytest.raises(aioascend.DeviceLost):
                await waiting
            await eventually(lambda: device.generation == 2, seconds=20)
            for handle in (host, memory, stream, early):
                await handle.release()
        kept = {maker for maker, destroyer in MAKERS.items() if books.made[maker] != books.destroyed[destroyer]}
        assert not emulator.report().violations
        # What hangs keeps its subscription; by force it is destroyed by another call than the one that is counted.
        hung = {"rt.create_stream", "rt.subscribe_report"}
        assert kept == (
            hung if by_force else {*hung, "rt.malloc", "rt.malloc_host", "rt.create_context", "rt.set_device"}
        )


@pytest.mark.logs_errors
async def test_a_call_that_finds_the_device_lost_has_it_brought_back(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        host, memory = await device.malloc_host(64), await device.malloc(64)
        emulator.faults.fail("acl.rt.memcpy_async", 507899)
        with pytest.raises(aioascend.DeviceLost, match="507899"):
            await stream.copy(memory, host)
        await eventually(lambda: device.generation == 2, seconds=20)
        with pytest.raises((aioascend.StaleLease, aioascend.DeviceLost)):
            await stream.copy(memory, host)


async def test_a_look_at_a_stream_that_takes_its_time_keeps_what_it_sees(emulator: Emulator) -> None:
    """The status that a query takes is nobody else's to find any more."""
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        emulator.faults.delay_callback(0.6)
        emulator.faults.fail("acl.rt.stream_query", 507000)
        with anyio.fail_after(10), pytest.raises(aioascend.AclError, match="507000"):
            await stream.synchronize()
        await stream.synchronize()


@pytest.mark.parametrize("function", ["stream_query", "launch_callback", "memcpy_async", "record_event"])
async def test_what_is_no_error_of_ours_becomes_one_and_nobody_hangs(
    emulator: Emulator, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", "callback")
    monkeypatch.setenv("AIOASCEND_DRIVER", "pyacl")  # C functions raise nothing
    call = getattr(emulator.acl.rt, function)
    raising = 0

    def call_or_raise(*args: Any) -> Any:
        nonlocal raising
        raising -= 1
        if raising == 0:
            raise SystemError("returned a result with an exception set")
        return call(*args)

    async with aioascend.Device("emulator:0") as device:
        stream, event = await device.create_stream(), await device.create_event()
        host, memory = await device.malloc_host(64, np.uint8), await device.malloc(64)
        setattr(emulator.acl.rt, function, call_or_raise)

        async def use() -> None:
            await stream.copy(memory, host)
            await stream.record(event)
            await event

        raising = 1
        with anyio.fail_after(10):
            with pytest.raises(aioascend.AclError, match="SystemError: returned a result"):
                await use()
            await use()
            await stream.synchronize()
