"""Calls that fail under devices, streams, events and buffers: the first cause is told, nothing leaks, nobody hangs."""

from __future__ import annotations

import logging

import anyio
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests.session.test_under_faults import Books

pytestmark = pytest.mark.usefixtures("emulator")


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
            with anyio.fail_after(10):
                await wait()
