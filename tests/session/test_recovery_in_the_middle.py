"""A context that dies while something else is under way: copies, cancels, rebuilds, runs that are made again alone."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime import pipeline as pipeline_module
from aioascend.runtime.core import DeviceCore
from aioascend.runtime.pipeline import Pipeline
from aioascend.scheduling.health import Step
from aioascend.testing import emulated
from tests import kit
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator", "probed_soon"), pytest.mark.logs_errors]

SLOW = pytest.mark.emulated(fatal_faults=True, profile=Profile(compute_default=0.3))
LARGE = 1 << 19  # elements: copied by a worker


def ones(value: float, size: int = 4) -> np.ndarray:
    return np.full(size, value, np.float32)


def inside(session: aioascend.Session) -> Pipeline:
    pipeline = session._pipeline
    assert pipeline is not None
    return pipeline


def core_of(session: aioascend.Session) -> DeviceCore:
    return inside(session)._core


def kill_context(session: aioascend.Session, code: int = 507015) -> None:
    """Have the context seen dead, now."""
    core = core_of(session)
    core.recovery.report(core.driver.error(code, "acl.rt.test"))


def suspect_all(pipeline: Pipeline) -> None:
    """Any of the runs on the device may be the one that kills it."""

    def suspect() -> None:
        for lane in pipeline.lanes:
            for place in lane.running_places():
                place.suspect = True

    pipeline._core.call(suspect).result(10)


def said(error: BaseException) -> str:
    """Its text and its notes, which are in the text before CPython 3.11."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def idle(session: aioascend.Session) -> bool:
    now = session.statistics()
    return (now.waiting, now.staging, now.running, now.draining, now.leased) == (0,) * 5


class Gate:
    """Stops a large copy half-way when it is shut, after so many that pass; the copy may be told to fail then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shut = False
        self.passes = 0
        self.reached = threading.Event()
        self.go = threading.Event()
        self.error: Exception | None = None
        copy = pipeline_module.copy_array

        def gated(dst: Any, src: Any, stop: Any = None) -> bool:
            self.passes -= 1
            if self.shut and self.passes < 0:
                self.shut = False
                self.reached.set()
                self.go.wait(10)
                if self.error is not None:
                    raise self.error
            return copy(dst, src, stop)

        monkeypatch.setattr(pipeline_module, "copy_array", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@SLOW
async def test_a_cancelled_run_on_a_context_that_dies_is_over() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        running = asyncio.ensure_future(session.infer(ones(1)))
        await eventually(lambda: session.statistics().running == 1)
        other = asyncio.ensure_future(session.infer(ones(2)))
        await eventually(lambda: session.statistics().running == 2)
        running.cancel()
        await asyncio.sleep(0)
        kill_context(session)
        assert (await other)[0][0] == 3
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await session.infer(ones(1)))[0][0] == 2
        assert session.statistics().cancelled == 1
        assert idle(session)


@SLOW
async def test_who_is_cancelled_before_it_is_run_again_alone_is_not_run(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), depth=3) as session:
        await session.infer(ones(0))
        tasks = [asyncio.ensure_future(session.infer(ones(i))) for i in range(3)]
        await eventually(lambda: session.statistics().running == 3)
        pipeline = inside(session)
        suspect_all(pipeline)
        kill_context(session)
        await eventually(lambda: pipeline._alone is not None)
        alone = pipeline._alone
        assert alone is not None
        tasks[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]
        assert [result[0][0] for result in await asyncio.gather(*tasks[:2])] == [1, 2]
        assert (await session.infer(ones(1)))[0][0] == 2
        statistics = session.statistics()
        assert (statistics.cancelled, statistics.failed, statistics.completed) == (1, 0, 4)
        assert idle(session)


@SLOW
@pytest.mark.parametrize("dies_again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_the_copy_for_a_run_alone_may_fail_and_be_overtaken_by_the_next_death(
    gate: Gate, fails: bool, dies_again: bool
) -> None:
    x = ones(1, LARGE)
    async with aioascend.Session(kit.add(1, LARGE), depth=2) as session:
        tasks = [asyncio.ensure_future(session.infer(i * x)) for i in (1, 2)]
        await eventually(lambda: session.statistics().running == 2)
        core, pipeline = core_of(session), inside(session)
        gate.shut = True
        gate.error = MemoryError("no room") if fails else None
        suspect_all(pipeline)
        kill_context(session)
        assert await asyncio.to_thread(gate.reached.wait, 10)  # it is being copied in, to be run alone
        if dies_again:
            kill_context(session)
            core.call(lambda: None).result(10)
        gate.go.set()
        with anyio.fail_after(20):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        assert [str(error) for error in failed] == ["copying the inputs failed: MemoryError: no room"] * fails
        for i, result in enumerate(results, 1):
            if not isinstance(result, BaseException):
                assert result[0][0] == i + 1
        assert (await session.infer(x))[0][0] == 2
        assert session.statistics().devices[0].rebuilds == 1 + dies_again
        assert idle(session)


@SLOW
async def test_a_device_that_is_lost_while_inputs_are_copied_fails_them_when_the_copy_has_stopped(gate: Gate) -> None:
    x = ones(1, LARGE)
    async with aioascend.Session(kit.add(1, LARGE)) as session:
        gate.shut = True
        copying = asyncio.ensure_future(session.infer(x))
        assert await asyncio.to_thread(gate.reached.wait, 10)
        kill_context(session, 507010)
        core_of(session).call(lambda: None).result(10)
        assert not copying.done()  # its array is still being read
        gate.go.set()
        with anyio.fail_after(10), pytest.raises(aioascend.DeviceLost):
            await copying
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(x))[0][0] == 2
        assert idle(session)


@SLOW
async def test_suspects_of_a_device_that_is_lost_meanwhile_are_failed(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), depth=3) as session:
        tasks = [asyncio.ensure_future(session.infer(ones(i))) for i in range(3)]
        await eventually(lambda: session.statistics().running == 3)
        pipeline = inside(session)
        suspect_all(pipeline)
        kill_context(session)
        await eventually(lambda: pipeline._alone is not None)
        kill_context(session, 507010)
        with anyio.fail_after(10):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [aioascend.DeviceLost] * 3
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2
        assert idle(session)


@SLOW
async def test_a_fault_while_a_rebuild_waits_for_the_device_begins_it_at_once() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        running = asyncio.ensure_future(session.infer(ones(1)))
        await eventually(lambda: session.statistics().running == 1)
        rebuilding = asyncio.ensure_future(device.rebuild())
        await eventually(lambda: session.statistics().devices[0].state == "rebuilding")
        kill_context(session)
        with anyio.fail_after(10):
            await rebuilding
            assert (await running)[0][0] == 2  # it is run again: nothing says that it did it
        last_error = session.statistics().devices[0].last_error
        assert last_error is not None
        assert "507015" in last_error
        assert device.generation == 2


@SLOW
async def test_a_request_on_whose_runs_the_context_dies_again_and_again_is_given_up() -> None:
    async with aioascend.Session(kit.add(1), depth=1) as session:
        running = asyncio.ensure_future(session.infer(ones(1)))
        for death in range(1, 5):
            await eventually(lambda: session.statistics().running == 1)
            kill_context(session)
            await eventually(lambda death=death: session.statistics().devices[0].rebuilds == death)  # type: ignore[misc]
        with anyio.fail_after(10), pytest.raises(aioascend.ExecutionFailed) as caught:
            await running
        assert "died 4 times while this request was on the device" in said(caught.value)
        assert (await session.infer(ones(1)))[0][0] == 2


@SLOW
async def test_what_a_run_has_failed_with_already_is_told_though_the_context_dies_meanwhile() -> None:
    async with aioascend.Session(kit.add(1), depth=2) as session:
        tasks = [asyncio.ensure_future(session.infer(ones(i))) for i in range(2)]
        pipeline = inside(session)
        await eventually(lambda: len(pipeline.lanes[0].running_places()) == 2)
        pipeline.lanes[0].running_places()[-1].error = pipeline._core.driver.error(500002, "acl.rt.memcpy_async")
        kill_context(session)
        with anyio.fail_after(10):
            first, second = await asyncio.gather(*tasks, return_exceptions=True)
        assert first[0][0] == 1  # type: ignore[index]
        assert isinstance(second, aioascend.AclError)
        assert second.code == 500002
        assert idle(session)


async def test_a_device_that_does_nothing_in_its_new_context_is_probed_on(emulator: Emulator) -> None:
    wait = emulator.acl.rt.synchronize_stream_with_timeout
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        emulator.acl.rt.synchronize_stream_with_timeout = lambda stream, timeout: 507046
        with pytest.raises(aioascend.AclError, match="507046"):
            await device.rebuild()
        emulator.acl.rt.synchronize_stream_with_timeout = wait
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2


async def test_a_device_that_is_lost_while_its_sessions_are_restored_is_probed_on(emulator: Emulator) -> None:
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(kit.add(1)) as session,
        aioascend.Session(kit.add(2)) as other,
    ):
        emulator.faults.fail("acl.rt.malloc_host", 507899)
        with pytest.raises(aioascend.DeviceLost, match="507899"):
            await device.rebuild()
        for one in (session, other):
            with pytest.raises(aioascend.DeviceLost, match="507899"):
                await one.infer(ones(1))
        await eventually(lambda: session.ready and other.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2
        assert (await other.infer(ones(1)))[0][0] == 3


# -- a session that cannot be restored, on a device that is well -------------------------------------------------------


class Swapped:
    """A model file that changes and comes back as it was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = kit.add(1)
        path.write_bytes(self.content)
        self.stamp = path.stat()

    def become(self, content: bytes, *, unnoticed: bool = False) -> None:
        self.path.write_bytes(content)
        if unnoticed:
            os.utime(self.path, ns=(self.stamp.st_atime_ns, self.stamp.st_mtime_ns))


@pytest.fixture
def file(tmp_path: Path) -> Swapped:
    return Swapped(tmp_path / "m.onnx")


async def test_a_file_that_comes_back_is_loaded_at_the_next_attempt(file: Swapped) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(file.path) as session:
        recovery = core_of(session).recovery
        attempts = recovery._retry
        file.become(kit.several())
        with pytest.raises(aioascend.ModelLoadError, match="has changed since"):
            await device.rebuild()
        assert not session.ready
        await eventually(lambda: recovery._retry > 2 * attempts)  # two that fail, at growing intervals
        assert not session.ready
        with pytest.raises(aioascend.ModelLoadError, match="has changed since"):
            await session.infer(ones(1))
        file.become(file.content, unnoticed=True)
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2
        assert recovery._retry == attempts


async def test_a_model_of_another_signature_is_refused_however_alike_the_files_look(file: Swapped) -> None:
    other = kit.add(1, 5)
    assert len(other) == len(file.content)
    async with aioascend.Device("emulator:0") as device, aioascend.Session(file.path) as session:
        file.become(other, unnoticed=True)
        with pytest.raises(
            aioascend.ModelLoadError, match="has other inputs or outputs than when the session was opened"
        ):
            await device.rebuild()
        with pytest.raises(aioascend.ModelLoadError, match="open a new session"):
            await session.infer(ones(1))
        file.become(file.content, unnoticed=True)
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2


async def test_a_session_that_could_not_be_restored_may_be_closed(file: Swapped) -> None:
    async with aioascend.Device("emulator:0") as device:
        async with aioascend.Session(file.path) as session:
            recovery = core_of(session).recovery
            file.become(kit.several())
            with pytest.raises(aioascend.ModelLoadError):
                await device.rebuild()
        await asyncio.sleep(0.3)  # the next attempt finds nobody
        assert not recovery._broken
        await device.rebuild()
        assert device.generation == 3


@SLOW
async def test_a_suspect_whose_session_cannot_be_restored_is_told_why(file: Swapped) -> None:
    async with aioascend.Session(file.path, depth=2) as session, aioascend.Session(kit.add(5)) as other:
        tasks = [asyncio.ensure_future(session.infer(ones(i))) for i in range(2)]
        await eventually(lambda: session.statistics().running == 2)
        suspect_all(inside(session))
        file.become(kit.several())
        kill_context(session)
        with anyio.fail_after(10):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [aioascend.ModelLoadError] * 2
        assert (await other.infer(ones(1)))[0][0] == 6
        assert idle(session)


async def test_the_failure_of_an_attempt_to_restore_that_reaches_the_device_is_its_concern(
    emulator: Emulator, file: Swapped
) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(file.path) as session:
        file.become(kit.several())
        with pytest.raises(aioascend.ModelLoadError):
            await device.rebuild()
        file.become(file.content, unnoticed=True)
        emulator.faults.fail("acl.rt.malloc_host", 507899)
        await eventually(lambda: session.statistics().devices[0].state != "healthy", seconds=10)
        await eventually(lambda: session.ready, seconds=20)
        assert session.statistics().devices[0].generation == 3
        assert (await session.infer(ones(1)))[0][0] == 2


async def test_a_lost_device_that_shows_when_a_model_is_loaded_again_is_told_as_that(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        emulator.faults.fail("acl.mdl.load_from_mem", 507899, times=None)
        with pytest.raises(aioascend.ModelLoadError, match="507899"):
            await device.rebuild()
        with pytest.raises(aioascend.DeviceLost, match="507899"):
            await session.infer(ones(1))
        emulator.faults.clear()
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2


async def test_a_restored_session_that_was_closed_meanwhile_is_left_alone(file: Swapped) -> None:
    async with aioascend.Device("emulator:0") as device:
        session = aioascend.Session(file.path)
        await session.open()
        pipeline, recovery = inside(session), core_of(session).recovery
        file.become(kit.several())
        with pytest.raises(aioascend.ModelLoadError):
            await device.rebuild()
        go = threading.Event()
        pipeline._core.control(go.wait, 10)
        restored = recovery._restored
        seen = []

        def note(outcomes: Any) -> None:
            recovery._broken.pop(pipeline, None)  # as when it leaves
            seen.append(outcomes)
            restored(outcomes)

        recovery._restored = note  # type: ignore[method-assign]
        await asyncio.sleep(0.3)  # the next attempt stands behind the block
        go.set()
        await eventually(lambda: bool(seen), seconds=10)
        assert recovery._retry == 0.25
        await session.aclose()
        await device.rebuild()
        assert device.generation == 3


@pytest.mark.usefixtures("impatient")
async def test_a_session_without_abort_or_force_leaves_behind_what_its_hung_stream_may_touch() -> None:
    """The device cannot be given back before the process ends: nothing is freed under it, and the rest goes on."""
    with emulated(check=False) as emulator:
        del emulator.acl.rt.destroy_stream_force
        async with aioascend.Session(kit.add(1), stall_timeout=0.4) as session:
            emulator.faults.hang("execute")
            with anyio.fail_after(20), pytest.raises(aioascend.DeviceLost, match="could not be aborted"):
                await session.infer(ones(1))
            await eventually(lambda: session.statistics().devices[0].generation == 2, seconds=20)
        assert not emulator.report().violations


@pytest.mark.parametrize("where", ["_offered", "_copied_in", "_settle"])
async def test_a_request_whose_handling_is_interrupted_is_told_or_served(where: str) -> None:
    async with aioascend.Device("emulator:0"), aioascend.Session(kit.add(1, LARGE), depth=2) as session:
        x = ones(1, LARGE)
        await session.infer(x)
        pipeline, left = inside(session), 1
        handle = getattr(pipeline, where)

        def interrupted(*args: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise SystemExit("thrown into the thread")
            handle(*args)

        setattr(pipeline, where, interrupted)
        with anyio.fail_after(20):
            results = await asyncio.gather(*(session.infer(i * x) for i in range(4)), return_exceptions=True)
        assert left <= 0
        for i, result in enumerate(results):
            if isinstance(result, BaseException):
                assert isinstance(result, aioascend.AclError)
                assert "SystemExit" in str(result)
            else:
                assert result[0][0] == i + 1
        assert sum(isinstance(result, BaseException) for result in results) <= 1
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(x))[0][0] == 2


async def test_a_session_that_closes_without_drain_waits_for_a_copy_to_stop(gate: Gate) -> None:
    session = aioascend.Session(kit.add(1, LARGE))
    await session.open()
    gate.shut = True
    copying = asyncio.ensure_future(session.infer(ones(1, LARGE)))
    assert await asyncio.to_thread(gate.reached.wait, 10)
    closing = asyncio.ensure_future(session.aclose(drain=False))
    await eventually(lambda: inside(session)._closing is not None)
    gate.go.set()
    with anyio.fail_after(10):
        with pytest.raises(aioascend.SessionClosed):
            await copying
        await closing


async def test_a_result_that_is_copied_out_while_the_context_dies_is_right(gate: Gate) -> None:
    x = ones(1, LARGE)
    async with aioascend.Session(kit.add(1, LARGE)) as session:
        gate.shut, gate.passes = True, 1  # the copy in
        passed = asyncio.ensure_future(session.infer(x))
        assert await asyncio.to_thread(gate.reached.wait, 10)
        kill_context(session)
        core_of(session).call(lambda: None).result(10)
        gate.go.set()
        with anyio.fail_after(10):
            assert (await passed)[0][0] == 2
        assert (await session.infer(x))[0][0] == 2
        assert idle(session)


async def test_a_context_that_dies_while_memory_is_given_back_for_a_run(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        go, asked = threading.Event(), threading.Event()

        def relieve() -> int:
            asked.set()
            return int(not go.wait(10))

        core_of(session).memory.relieve = relieve  # type: ignore[method-assign]
        emulator.faults.fail("acl.mdl.execute_async", 207001)
        running = asyncio.ensure_future(session.infer(ones(1)))
        assert await asyncio.to_thread(asked.wait, 10)
        kill_context(session)
        core_of(session).call(lambda: None).result(10)
        go.set()
        with anyio.fail_after(10):
            assert (await running)[0][0] == 2  # it was in line again
        assert (await session.infer(ones(1)))[0][0] == 2
        assert idle(session)


@SLOW
async def test_a_rebuild_asked_for_while_suspects_are_run_alone_comes_between_them() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1), depth=3) as session:
        tasks = [asyncio.ensure_future(session.infer(ones(i))) for i in range(3)]
        await eventually(lambda: session.statistics().running == 3)
        pipeline = inside(session)
        suspect_all(pipeline)
        kill_context(session)
        await eventually(lambda: pipeline._alone is not None)
        with anyio.fail_after(20):
            await device.rebuild()
            assert [result[0][0] for result in await asyncio.gather(*tasks)] == [1, 2, 3]
        assert device.generation == 3
        assert idle(session)


async def test_a_context_that_dies_while_a_session_is_restored_is_rebuilt_with_it(file: Swapped) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(file.path) as session:
        file.become(kit.several())
        with pytest.raises(aioascend.ModelLoadError):
            await device.rebuild()
        go = threading.Event()
        core_of(session).control(go.wait, 10)
        file.become(file.content, unnoticed=True)
        await asyncio.sleep(0.3)  # the next attempt stands behind the block
        kill_context(session)
        core_of(session).call(lambda: None).result(10)
        go.set()
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2
        assert device.generation == 3


async def test_a_device_object_may_be_opened_on_a_lost_device_and_makes_nothing_there(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        emulator.faults.lose_device(0, 507010, recoverable=False)
        with pytest.raises(aioascend.DeviceLost):
            await session.infer(ones(1))
        recovery, core = core_of(session).recovery, core_of(session)
        async with aioascend.Device("emulator:0") as device:
            with pytest.raises(aioascend.DeviceLost) as caught:
                await device.create_event()
            assert "emulator:0 is lost; it is probed again and again" in said(caught.value)
            await eventually(lambda: recovery.health.next_probe is not None, seconds=10)
            recovery.health.next_probe = probe = time.monotonic() + 1.0
            core.call(recovery._probe).result(10)  # a timer that comes too early
            assert recovery.health.next_probe == probe
            emulator.faults.return_device(0)
            await eventually(lambda: session.ready, seconds=20)
            await device.create_event()


async def test_a_device_that_is_being_closed_is_not_brought_back(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        core = core_of(session)
        probes = core.recovery.health.probes
        core.control(core.recovery.stop).result(10)
        core.call(core.recovery._probe).result(10)
        core.control(core.recovery._rebuild, Step.REBUILD, None).result(10)
        assert core.recovery.health.probes == probes
        assert device.generation == 1
        assert (await session.infer(ones(1)))[0][0] == 2
