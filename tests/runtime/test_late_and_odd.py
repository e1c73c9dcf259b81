"""What comes twice or a moment too late on a device's threads."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.runtime.core import DeviceCore
from aioascend.runtime.device_loop import DeviceLoop
from aioascend.runtime.draining import drain
from tests import kit

pytestmark = [pytest.mark.usefixtures("emulator"), pytest.mark.logs_errors]


def core_of(device: aioascend.Device) -> DeviceCore:
    return device._open_core()


def test_a_post_that_was_taken_back_while_a_burst_began_is_no_loss() -> None:
    ran: list[int] = []
    loop = DeviceLoop("aioascend-test", lambda: None)

    class Shrinking(deque):  # type: ignore[type-arg]
        def popleft(self) -> Any:
            first = super().popleft()
            self.clear()  # as its poster does that finds the thread ended
            return first

    loop._inbox = Shrinking([(ran.append, 1), (ran.append, 2)])
    loop._burst()
    assert ran == [1]


async def test_what_was_given_back_is_given_back_once() -> None:
    async with aioascend.Device("emulator:0") as device:
        core, event = core_of(device), await device.create_event()
        core.control(event.release_blocking).result(10)
        core.control(event.release_blocking).result(10)
        event.release_soon().result(10)


@pytest.mark.parametrize("over", [True, False], ids=["gone before", "gone meanwhile"])
async def test_a_point_that_is_looked_for_when_its_context_goes_lets_its_waiter_go(
    over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aioascend.Device("emulator:0") as device:
        core, stream = core_of(device), await device.create_stream()
        point = core.call(stream.new_point).result(10)
        failing = core.driver.error(500002, "acl.rt.synchronize_stream")

        def fails(*_: int) -> bool:
            core.valid = False
            raise failing

        def look() -> None:
            with monkeypatch.context() as patch:
                patch.setattr(core, "valid", not over)
                patch.setattr(core.driver, "synchronize_stream", fails)
                point._synchronize(0.001)

        core.control(look).result(10)
        if over:
            await point.wait()
        else:
            with pytest.raises(aioascend.AclError, match="500002"):
                await point.wait()


async def test_a_failure_that_a_look_at_a_stream_takes_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Device("emulator:0") as device:
        core, stream = core_of(device), await device.create_stream()
        failing = [core.driver.error(507015, "acl.rt.synchronize_stream")]
        synchronize, notes = core.driver.synchronize_stream, []

        def once(*args: int) -> bool:
            if failing:
                raise failing.pop()
            return synchronize(*args)

        def look() -> bool:
            with monkeypatch.context() as patch:
                patch.setattr(core.driver, "synchronize_stream", once)
                patch.setattr(core.teardown, "note", notes.append)
                return stream.is_idle()

        assert core.control(look).result(10)
        assert "507015" in notes[0]


@pytest.mark.parametrize("stuck", [False, True])
async def test_memory_is_given_back_behind_its_copy_or_left_to_a_stream_that_hangs(
    stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aioascend.Device("emulator:0") as device:
        core, stream = core_of(device), await device.create_stream()
        memory, host = await device.malloc(64), await device.malloc_host(64)
        await stream.copy(memory, host)
        address, finish = memory.address, core.teardown.finish_stream

        def finish_or_hang(handle: int) -> None:
            finish(handle)
            if stuck:
                core.teardown.stuck.add(handle)

        def release() -> None:
            with monkeypatch.context() as patch:
                patch.setattr(core.teardown, "finish_stream", finish_or_hang)
                memory.holding.release_blocking()
            core.teardown.stuck.discard(stream.handle)

        core.control(release).result(10)
        again = await device.malloc(64)
        assert (again.address == address) != stuck


async def test_spares_of_a_former_context_are_freed_when_the_next_begins() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        pipeline: Any = session._pipeline
        spares = pipeline.pinned_spares
        freed: list[Any] = []
        former = SimpleNamespace(name="of an earlier context")

        def renew() -> None:
            generation, free, idle = spares._generation, spares._free, spares.idle
            spares._generation, spares._free, spares.idle = lambda _: 0, freed.append, [former]
            try:
                spares.renew()
                assert spares.idle == []
            finally:
                spares._generation, spares._free, spares.idle = generation, free, idle

        pipeline._core.call(renew).result(10)
        assert freed == [former]
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


def test_a_stream_that_only_ever_fails_is_not_known_to_be_empty() -> None:
    calls: list[int] = []

    def fails(stream: int, milliseconds: int) -> bool:
        calls.append(milliseconds)
        raise ValueError("it fails")

    driver: Any = SimpleNamespace(synchronize_stream=fails, as_error=lambda error, call: error)
    empty, failures = drain(driver, 7, lambda: 5, lambda: True)
    assert (empty, len(failures), calls) == (False, 4, [5] * 4)


@pytest.mark.parametrize("fails", [False, True])
async def test_all_who_wait_for_one_release_are_told_how_it_ended(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Device("emulator:0") as device:
        core, event = core_of(device), await device.create_event()
        looks, release = iter((False, True)), event._release
        waiting: list[Any] = []

        def idle() -> bool:
            if len(waiting) < 2:
                waiting.append(event.release_soon())  # somebody else
            return next(looks)

        def refused() -> None:
            release()
            raise core.driver.error(500002, "acl.rt.destroy_event")

        monkeypatch.setattr(event, "is_idle", idle)
        if fails:
            monkeypatch.setattr(event, "_release", refused)
        waiting.append(event.release_soon())
        for one in waiting:
            if fails:
                assert isinstance(one.exception(10), aioascend.AclError)
            else:
                assert one.result(10) is None
