"""What comes a moment too late, or is empty, on its way through a session."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest
import uvloop

import aioascend
from aioascend.emulator import Emulator
from aioascend.runtime import process
from aioascend.runtime.ports import current_port
from aioascend.runtime.request import Request
from tests import kit
from tests.session.test_recovery_in_the_middle import LARGE, core_of, inside, ones
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")


async def test_a_large_input_that_is_given_up_when_its_copy_is_to_begin_is_not_copied() -> None:
    async with aioascend.Session(kit.add(1, LARGE)) as session:
        pipeline = inside(session)
        request = session._request(pipeline, [ones(1, LARGE)])
        assert request.claim() is not None  # a cancel was faster than the decision to copy
        pipeline.submit(request)
        await eventually(lambda: request.done.is_set)
        assert request.outputs is None
        assert (await session.infer(ones(1, LARGE)))[0][0] == 2
        assert session.statistics().cancelled == 1


async def test_a_small_input_that_is_given_up_while_it_is_copied_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        pipeline, loop = inside(session), asyncio.get_running_loop()
        copy_in, given_up = pipeline._copy_in, threading.Event()

        def slowly(request: Request, arrays: list[Any]) -> None:
            copy_in(request, arrays)
            loop.call_soon_threadsafe(task.cancel)
            while not (request.abandoned or given_up.wait(0.001)):
                pass

        with monkeypatch.context() as patch, anyio.fail_after(20):
            patch.setattr(pipeline, "_copy_in", slowly)
            task = asyncio.ensure_future(session.infer(ones(1)))
            try:
                with pytest.raises(asyncio.CancelledError):
                    await task
            finally:
                given_up.set()
        await eventually(lambda: pipeline.admission.idle)
        assert (await session.infer(ones(1)))[0].tolist() == [2] * 4
        statistics = session.statistics()
        assert (statistics.cancelled, statistics.completed) == (1, 1)


@pytest.mark.logs_errors
async def test_a_copy_whose_worker_is_interrupted_fails_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1, LARGE)) as session:
        pipeline = inside(session)

        def interrupted(*_: Any) -> None:
            raise SystemExit("thrown into the thread")

        with monkeypatch.context() as patch, anyio.fail_after(20):
            patch.setattr(pipeline, "_copy_in", interrupted)
            with pytest.raises(aioascend.AioascendError, match="copying the inputs failed: SystemExit"):
                await session.infer(ones(1, LARGE))
        assert (await session.infer(ones(1, LARGE)))[0][0] == 2


def test_loops_that_take_turns_on_a_thread_keep_their_ports() -> None:
    loops = [asyncio.new_event_loop() for _ in range(2)]

    async def port() -> Any:
        return current_port()[1]

    try:
        first, second, again = (loop.run_until_complete(port()) for loop in (loops[0], loops[1], loops[0]))
        assert first is again
        assert first is not second
    finally:
        for loop in loops:
            loop.close()


async def test_the_last_holder_of_a_result_may_let_go_when_its_context_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        core = core_of(session)
        outputs = await session.infer(ones(1), outputs="device")
        result, block = outputs.result, outputs.result.block
        assert block is not None
        used = session.statistics().memory.device.used

        def let_go() -> None:
            with monkeypatch.context() as patch:
                patch.setattr(core, "valid", False)
                result.hold()
                result.unclaim()
                result.let_go()

        core.call(let_go).result(10)
        assert session.statistics().memory.device.used == used  # it goes with its context
        block.release()


async def test_a_closing_session_waits_for_runs_that_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        pipeline = inside(session)
        request = session._request(pipeline, [ones(1)])

        def look() -> tuple[bool, bool]:
            with monkeypatch.context() as patch:
                patch.setattr(type(pipeline.admission), "running", property(lambda _: 1))
                alone = pipeline._nobody_waits()
                pipeline._unsure[request] = None
                waiting = pipeline._nobody_waits()
                del pipeline._unsure[request]
            return alone, waiting

        assert pipeline._core.call(look).result(10) == (True, False)


async def test_an_outcome_that_waits_for_a_place_that_serves_another_by_then_is_left_alone() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        pipeline = inside(session)
        (lane,) = pipeline.lanes
        late = pipeline._again(0, lane, lane.places[0])
        seen = threading.Event()

        def later() -> None:
            lane.places[0].generation += 1
            late()
            lane.places[0].generation -= 1
            seen.set()

        pipeline._core.call(later).result(10)
        assert seen.is_set()
        assert np.array_equal((await session.infer(ones(1)))[0], ones(2))


async def test_a_result_without_elements_comes_to_the_host_too() -> None:
    async with aioascend.Session(kit.identity(1, (0, 3))) as session:
        with await session.infer(np.zeros((0, 3), np.float32), outputs="device") as outputs:
            assert (await outputs.to_host())[0].shape == (0, 3)


@pytest.mark.parametrize("outputs", ["owned", "leased", "device"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_loop_that_was_closed_before_it_took_an_answer_is_let_go_with_the_answer(
    new_loop: Callable[[], asyncio.AbstractEventLoop], outputs: Any, emulator: Emulator
) -> None:
    with aioascend.Session(kit.add(1), devices="emulator:0") as session:
        loops = []
        for number in range(3):
            loop = new_loop()
            loop.set_exception_handler(lambda *_: None)  # of the task that was pending when it was destroyed
            task = loop.create_task(session.infer(ones(1), outputs=outputs))
            loop.run_until_complete(asyncio.sleep(0))
            limit = time.monotonic() + 10
            while session.statistics().completed <= number:
                assert time.monotonic() < limit
                time.sleep(0.001)
            loop.close()
            loops.append(weakref.ref(loop))
            del loop, task
        assert session.infer_sync(ones(1))[0][0] == 2
        gc.collect()
        assert [loop() for loop in loops] == [None] * 3
        limit = time.monotonic() + 10
        while (now := session.statistics()).leased_results or now.device_results:
            assert time.monotonic() < limit
            time.sleep(0.001)
    assert not process.open_devices()
