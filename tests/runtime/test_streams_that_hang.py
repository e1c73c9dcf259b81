"""A user's stream that hangs, or takes its time, keeps nobody else on the device from their work."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime import device as devices
from aioascend.runtime import process
from aioascend.testing import emulated
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.logs_errors

X = np.zeros(4, np.float32)
PRODUCTS = pytest.mark.parametrize("soc", ["Ascend910B3", "Ascend310P3"])  # streams can be aborted on the first


@asynccontextmanager
async def serving() -> AsyncIterator[aioascend.Session]:
    async with aioascend.Session(kit.add(1.0), devices="emulator:0") as session:
        await session.infer(X)
        yield session


async def assert_others_go_on(session: aioascend.Session) -> None:
    """Everything that takes the control thread."""
    with anyio.fail_after(20):
        async with session.request() as request:
            request.inputs["x"][:] = 1
            assert (await request.run())[0].tolist() == [2] * 4
        (await session.infer(X, outputs="device")).release()
        async with aioascend.Session(kit.add(2.0), devices="emulator:0") as other:
            assert (await other.infer(X))[0].tolist() == [2] * 4
        async with aioascend.Device("emulator:0") as device:
            await (await device.create_stream()).synchronize()
            await device.trim_memory()


async def hang(emulator: Emulator, device: aioascend.Device) -> tuple[aioascend.Stream, aioascend.DeviceBuffer]:
    stream, memory, host = await device.create_stream(), await device.malloc(64), await device.malloc_host(64)
    emulator.faults.hang("copy")
    await stream.copy(memory, host)
    return stream, memory


@pytest.mark.usefixtures("impatient")
@PRODUCTS
@pytest.mark.parametrize("way", ["memory", "stream", "dropped"])
async def test_a_release_that_waits_for_a_stream_that_hangs_is_over_with_the_context(soc: str, way: str) -> None:
    with emulated(check=False, soc_name=soc) as emulator:
        async with serving() as session, aioascend.Device("emulator:0") as device:
            stream, memory = await hang(emulator, device)
            releases: list[asyncio.Future[None]] = []
            if way != "dropped":
                handle = memory if way == "memory" else stream
                releases = [asyncio.ensure_future(handle.release())]
            del memory
            gc.collect()
            await assert_others_go_on(session)
            assert not any(release.done() for release in releases)
            with anyio.fail_after(20):
                await device.rebuild()
                await asyncio.gather(*releases)
            await assert_others_go_on(session)
        assert not emulator.report().violations


@PRODUCTS
@pytest.mark.parametrize("by_force", [True, False])
async def test_a_device_that_is_closed_waits_for_a_stream_that_hangs_for_some_seconds_only(
    soc: str, by_force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_CLOSE_S", 1.0)
    with emulated(check=False, soc_name=soc) as emulator:
        if not by_force:
            del emulator.acl.rt.destroy_stream_force
        async with serving() as session:
            device = aioascend.Device("emulator:0")
            await device.open()
            stream, _ = await hang(emulator, device)
            waiting = asyncio.ensure_future(stream.synchronize())
            closing = asyncio.ensure_future(device.aclose())
            await assert_others_go_on(session)
            with anyio.fail_after(20):
                await closing
                with pytest.raises(aioascend.StaleLease, match="given up"):
                    await waiting
            await assert_others_go_on(session)
            async with aioascend.Device("emulator:0") as other:
                with anyio.fail_after(20):
                    await other.rebuild()
            await assert_others_go_on(session)
        assert process.open_devices() == ()
        assert not emulator.report().violations


@pytest.mark.usefixtures("emulator")
@pytest.mark.emulated(profile=Profile(copy_latency=0.7))
@pytest.mark.parametrize("way", ["memory", "stream", "dropped"])
async def test_a_release_waits_for_work_that_takes_its_time(way: str) -> None:
    """Strict mode tells if anything is freed under it."""
    async with aioascend.Device("emulator:0") as device:
        (core,) = process.open_devices()
        stream, memory, host = await device.create_stream(), await device.malloc(64), await device.malloc_host(64)
        holding = memory.holding
        await stream.copy(memory, host)
        if way == "dropped":
            del memory
            gc.collect()
        else:
            releasing = asyncio.ensure_future((memory if way == "memory" else stream).release())
            await eventually(lambda: (holding if way == "memory" else stream).released)
            await asyncio.wrap_future(core.control(lambda: None))  # has its turn meanwhile
            assert not releasing.done()
            await releasing
        if way != "stream":
            await eventually(lambda: holding._given_back)
        assert stream.passed == stream.queued == 1


@pytest.mark.usefixtures("impatient")
async def test_a_point_whose_completion_failed_waits_for_its_stream_without_the_control_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", "event")
    monkeypatch.setattr(devices, "_CLOSE_S", 1.0)
    with emulated(check=False) as emulator:
        async with serving() as session:
            device = aioascend.Device("emulator:0")
            await device.open()
            stream, _ = await hang(emulator, device)
            rule = emulator.faults.fail("acl.rt.synchronize_event_with_timeout", 507000)
            waiting = asyncio.ensure_future(stream.synchronize())
            await eventually(lambda: rule.hits == 1)
            await assert_others_go_on(session)
            assert not waiting.done()
            with anyio.fail_after(20):
                await device.aclose()
                with pytest.raises(aioascend.AioascendError):
                    await waiting
        assert not emulator.report().violations
