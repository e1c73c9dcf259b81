"""Whatever a call on the control thread raises, an error of ours or not, whoever waits for it is told."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from aioascend.runtime import process
from tests import kit
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator", "probed_soon"), pytest.mark.logs_errors]

FOREIGN = pytest.mark.parametrize("kind", [SystemError, SystemExit])


def ones(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


class Raising:
    """Lets calls of one function raise something while it is armed; on the control thread alone."""

    def __init__(self, emulator: Emulator, function: str, kind: type[BaseException]) -> None:
        self.times = 0
        part, _, name = function.rpartition(".")
        module = getattr(emulator.acl, part)
        call: Callable[..., Any] = getattr(module, name)

        def call_or_raise(*args: Any) -> Any:
            if self.times and threading.current_thread().name.startswith("aioascend-control"):
                self.times -= 1
                raise kind(f"out of {name}")
            return call(*args)

        setattr(module, name, call_or_raise)


@pytest.fixture(autouse=True)
def through_pyacl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "pyacl")  # C functions raise nothing


@FOREIGN
async def test_waiting_for_the_streams_after_a_failed_launch(emulator: Emulator, kind: type[BaseException]) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        raising = Raising(emulator, "rt.synchronize_stream_with_timeout", kind)
        for _ in range(3):
            emulator.faults.fail("acl.rt.record_event", 507000)
            raising.times = 1
            with anyio.fail_after(20):
                results = await asyncio.gather(*(session.infer(ones(i)) for i in range(6)), return_exceptions=True)
            assert raising.times == 0
            for i, result in enumerate(results):
                if isinstance(result, BaseException):
                    assert isinstance(result, aioascend.AclError)
                else:
                    assert result[0].tolist() == [i + 1] * 4
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


@FOREIGN
async def test_waiting_for_a_point_whose_completion_failed(
    emulator: Emulator, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", "event")
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        raising = Raising(emulator, "rt.synchronize_stream_with_timeout", kind)
        emulator.faults.fail("acl.rt.synchronize_event_with_timeout", 507000)
        raising.times = 1
        with anyio.fail_after(20), pytest.raises(aioascend.AclError, match=f"{kind.__name__}: out of synchronize"):
            await stream.synchronize()
        assert raising.times == 0
        await stream.synchronize()


@FOREIGN
async def test_pinned_memory_for_a_holder(emulator: Emulator, kind: type[BaseException]) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        raising = Raising(emulator, "rt.malloc_host", kind)
        raising.times = 1
        with anyio.fail_after(20):
            with pytest.raises(aioascend.AioascendError, match=f"pinned memory: {kind.__name__}"):
                await session.request().__aenter__()
            async with session.request() as request:
                request.inputs["x"][:] = 1
                assert (await request.run())[0].tolist() == [2] * 4


@FOREIGN
async def test_giving_back_idle_memory_for_a_run_that_had_none(emulator: Emulator, kind: type[BaseException]) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        async with session.request() as request:
            request.inputs["x"][:] = 1
            await request.run()
        del request
        gc.collect()
        pipeline = session._pipeline
        assert pipeline is not None
        await eventually(lambda: len(pipeline.leases._free) == 1)
        raising = Raising(emulator, "rt.free_host", kind)
        raising.times = 1
        emulator.faults.fail("acl.mdl.execute_async", 207001)
        with anyio.fail_after(20):
            assert (await session.infer(ones(1)))[0].tolist() == [2] * 4
        assert raising.times == 0
        assert session.statistics().failed == 0


@FOREIGN
@pytest.mark.parametrize("function", ["rt.create_context", "rt.set_device", "rt.create_stream", "rt.malloc"])
async def test_a_rebuild(emulator: Emulator, kind: type[BaseException], function: str) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        raising = Raising(emulator, function, kind)
        raising.times = 1
        with anyio.fail_after(20):
            with pytest.raises(aioascend.AclError, match=f"{kind.__name__}: out of "):
                await device.rebuild()
            await eventually(lambda: session.ready, seconds=20)  # the next probe finds the device well
            assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


@FOREIGN
async def test_the_next_attempt_to_restore_a_session(
    emulator: Emulator, kind: type[BaseException], tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(kit.add(1))
    stamp = path.stat()
    async with aioascend.Device("emulator:0") as device, aioascend.Session(path) as session:
        path.write_bytes(kit.several())
        with pytest.raises(aioascend.ModelLoadError):
            await device.rebuild()
        raising = Raising(emulator, "rt.malloc_host", kind)
        raising.times = 1
        path.write_bytes(kit.add(1))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        await eventually(lambda: raising.times == 0, seconds=10)
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4


async def test_a_rebuild_asked_for_when_the_device_is_being_closed_is_refused() -> None:
    async with aioascend.Device("emulator:0"):
        (core,) = process.open_devices()
        core.control(core.recovery.stop).result(10)
        with pytest.raises(aioascend.SessionClosed, match="emulator:0 is closed"):
            core.recovery.rebuild().result(10)
