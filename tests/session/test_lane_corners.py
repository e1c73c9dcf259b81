"""Streams that are waited for, asked and aborted while something else goes wrong: nobody waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from tests import kit
from tests.session.test_recovery_in_the_middle import idle, inside, kill_context, ones
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator", "probed_soon"), pytest.mark.logs_errors]


def emulated(seconds: float, **changes: Any) -> pytest.MarkDecorator:
    return pytest.mark.emulated(profile=Profile(compute_default=seconds), **changes)


async def outcomes(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    with anyio.fail_after(20):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def launched_with_a_failure(emulator: Emulator, session: aioascend.Session) -> list[asyncio.Task[Any]]:
    """One request that runs, and one whose launch fails behind it, so that the streams are being waited for."""
    first = asyncio.ensure_future(session.infer(ones(1)))
    await eventually(lambda: session.statistics().running == 1)
    emulator.faults.fail("acl.rt.record_event", 500002)
    second = asyncio.ensure_future(session.infer(ones(2)))
    (lane,) = inside(session).lanes
    await eventually(lambda: lane.held)
    return [first, second]


@emulated(0.8)
async def test_a_failed_launch_waits_for_the_run_before_it_however_long(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        first, second = await outcomes(await launched_with_a_failure(emulator, session))
        assert first[0][0] == 2
        assert isinstance(second, aioascend.AclError)
        assert second.code == 500002
        assert (await session.infer(ones(1)))[0][0] == 2
        assert idle(session)


@pytest.mark.parametrize("asked_in_vain", [False, True])
@emulated(0.3)
async def test_a_context_that_dies_while_its_streams_are_waited_for(emulator: Emulator, asked_in_vain: bool) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        tasks = await launched_with_a_failure(emulator, session)
        if asked_in_vain:
            emulator.faults.fail("acl.rt.stream_query", 507015)
        kill_context(session)
        first, second = await outcomes(tasks)
        if not asked_in_vain:
            assert first[0][0] == 2  # it is run again
        assert isinstance(second, aioascend.AclError)
        assert second.code == 500002
        assert (await session.infer(ones(1)))[0][0] == 2
        assert session.statistics().devices[0].rebuilds == 1
        assert idle(session)


@pytest.mark.parametrize("code, kind", [(507015, aioascend.ExecutionFailed), (507899, aioascend.DeviceLost)])
@emulated(0.1, fatal_faults=True)
async def test_a_wait_for_the_streams_may_tell_that_the_context_is_dead(
    emulator: Emulator, code: int, kind: type[aioascend.AclError]
) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        emulator.faults.fail("acl.rt.synchronize_stream_with_timeout", code)
        first, second = await outcomes(await launched_with_a_failure(emulator, session))
        for result in (first, second):
            assert isinstance(result, aioascend.Outputs) or result.code in (code, 500002)
        assert isinstance(second, aioascend.AclError)
        await eventually(lambda: session.ready, seconds=20)
        assert session.statistics().devices[0].rebuilds == 1
        assert (await session.infer(ones(1)))[0][0] == 2
        assert idle(session)


@emulated(0.0, soc_name="Ascend910B3")
async def test_streams_that_are_aborted_while_they_are_waited_for(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), stall_timeout=0.4) as session:
        emulator.faults.hang("execute")
        tasks = await launched_with_a_failure(emulator, session)
        first, second = await outcomes(tasks)
        assert isinstance(first, aioascend.ExecutionFailed)
        assert "stall_timeout" in str(first)
        assert isinstance(second, aioascend.AclError)
        assert second.code == 500002
        assert session.statistics().devices[0].rebuilds == 0
        assert (await session.infer(ones(1)))[0][0] == 2
        assert idle(session)


@emulated(0.05, soc_name="Ascend910B3")
async def test_a_hang_costs_each_of_two_instances_no_more_than_the_run_it_was_at(emulator: Emulator) -> None:
    """They share the engine that hangs, so that nothing tells which of the two has done it."""
    async with aioascend.Session(kit.add(1), instances=2, stall_timeout=0.4) as session:
        emulator.faults.hang("copy")
        results = await outcomes([asyncio.ensure_future(session.infer(ones(i))) for i in range(20)])
        failed = [result for result in results if isinstance(result, BaseException)]
        assert 1 <= len(failed) <= 2
        for i, result in enumerate(results):
            if isinstance(result, BaseException):
                assert isinstance(result, aioascend.ExecutionFailed)
                assert "stall_timeout" in str(result)
            else:
                assert result[0][0] == i + 1
        assert idle(session)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("code", [500002, 507899])
@emulated(0.0, soc_name="Ascend910B3")
async def test_an_abort_that_fails_gives_the_device_up(emulator: Emulator, code: int) -> None:
    async with aioascend.Session(kit.add(1), stall_timeout=0.4) as session:
        emulator.faults.hang("execute")
        emulator.faults.fail("acl.rt.stream_abort", code)
        with anyio.fail_after(20), pytest.raises(aioascend.DeviceLost) as caught:
            await session.infer(ones(1))
        assert caught.value.code == (507046 if code == 500002 else code)  # the watchdog's, or what it has found
        await eventually(lambda: session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2
        assert idle(session)


@pytest.mark.parametrize("ex_events", [True, False])
@pytest.mark.parametrize("fails", [None, "acl.mdl.execute_async", "acl.rt.query_event_status"])
@emulated(0.05)
async def test_runs_that_are_made_again_alone(emulator: Emulator, ex_events: bool, fails: str | None) -> None:
    """A failure that may be any of several runs': each is repeated, on old CANN with fresh events."""
    if not ex_events:
        del emulator.acl.rt.create_event_ex_with_flag
    async with aioascend.Session(kit.out_of_bounds(), depth=3) as session:
        for _ in range(20):
            before = session.statistics().repeated
            tasks = [asyncio.ensure_future(session.infer(np.array([index]))) for index in (1, 99, 2)]
            await asyncio.sleep(0)
            if fails is not None:
                times = None if "query" in fails else 1
                emulator.faults.fail(fails, 500002, nth=4 if "execute" in fails else 1, times=times)
            results = await outcomes(tasks)
            emulator.faults.clear()
            assert isinstance(results[1], aioascend.AclError)
            for result, expected in ((results[0], 11), (results[2], 12)):
                if isinstance(result, BaseException):
                    assert fails is not None
                    assert isinstance(result, aioascend.AclError)
                else:
                    assert result[0].tolist() == [expected]
            if session.statistics().repeated > before:
                break
        else:
            raise AssertionError("nothing was ever repeated")
        assert (await session.infer(np.array([3])))[0].tolist() == [13]
        assert session.statistics().devices[0].rebuilds == 0
        assert idle(session)


async def test_what_comes_late_for_a_place_whose_streams_were_aborted_changes_nothing() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        assert (await session.infer(ones(1)))[0][0] == 2
        (lane,) = inside(session).lanes
        place = max(lane.places, key=lambda one: one.generation)

        def late() -> None:
            lane._draining += 1
            lane._synchronized((place, place.generation - 1, True, []))  # it serves another request by now
            lane.finished(place, place.generation, None)  # it has its outcome already

        inside(session)._core.call(late).result(10)
        assert not lane.held
        assert [(await session.infer(ones(i)))[0][0] for i in range(4)] == [1, 2, 3, 4]
        assert idle(session)


async def test_a_request_ends_once() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        pipeline = inside(session)
        request = session._request(pipeline, [ones(1)], patient=False)
        pipeline.submit(request)
        await request.done.wait()
        pipeline._core.call(lambda: pipeline._end(request)).result(10)  # such as of one that was given up before
        request.give_up(RuntimeError("too late"), pipeline._core.touch)
        assert request.result()[0][0] == 2
        assert session.statistics().completed == 1


@emulated(0.3)
async def test_where_the_events_cannot_be_asked_a_failure_may_be_any_runs(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), depth=3) as session:
        tasks = [asyncio.ensure_future(session.infer(ones(i))) for i in range(3)]
        await eventually(lambda: session.statistics().running == 3)
        (lane,), core = inside(session).lanes, inside(session)._core
        emulator.faults.fail("acl.rt.query_event_status", 500002, times=None)

        def blame() -> list[bool]:
            lane._blame(core.driver.error(507011, "acl.rt.stream_query"), 1)  # the compute stream's
            return [place.suspect for place in lane.running_places()]

        assert core.call(blame).result(10) == [True] * 3
        emulator.faults.clear()
        assert [result[0][0] for result in await outcomes(tasks)] == [1, 2, 3]  # each was made again, alone
        assert idle(session)


# -- one callback for several short runs -------------------------------------------------------------------------------


def grouped(session: aioascend.Session) -> None:
    """Have the lane take its runs for short ones: those that are queued together get one callback."""
    (lane,) = inside(session).lanes
    lane._run_s = 0.0
    lane._learn(1e-5)
    assert lane._most_unarmed == 50


async def test_runs_that_are_queued_together_are_told_together_while_they_are_short(emulator: Emulator) -> None:
    callbacks = 0
    launch = emulator.acl.rt.launch_callback

    def counted(*arguments: Any) -> Any:
        nonlocal callbacks
        callbacks += 1
        return launch(*arguments)

    emulator.acl.rt.launch_callback = counted
    async with aioascend.Session(kit.add(1), depth=8) as session:
        grouped(session)
        results = await outcomes([asyncio.ensure_future(session.infer(ones(i))) for i in range(8)])
        assert [result[0][0] for result in results] == [i + 1 for i in range(8)]
        together = callbacks
        (lane,) = inside(session).lanes
        lane._learn(0.1)  # a slow run: from now on each is told at its end
        assert lane._most_unarmed == 1
        await outcomes([asyncio.ensure_future(session.infer(ones(i))) for i in range(8)])
        assert callbacks - together > together
        for _ in range(100):
            lane._learn(1e-6)
        assert lane._most_unarmed > 1
        assert idle(session)


@pytest.mark.parametrize("way", ["callback", "event"])
async def test_where_the_end_of_several_runs_cannot_be_told_one_fails_and_the_others_are_waited_for(
    emulator: Emulator, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    async with aioascend.Session(kit.add(1), depth=4) as session:
        grouped(session)
        pipeline = inside(session)
        arm, failing = pipeline._core.arm, [True]

        def fail_once(*arguments: Any) -> None:
            if failing:
                failing.clear()
                raise pipeline._core.driver.error(500002, "acl.rt.launch_callback")
            arm(*arguments)

        monkeypatch.setattr(pipeline._core, "arm", fail_once)
        results = await outcomes([asyncio.ensure_future(session.infer(ones(i))) for i in range(4)])
        failed = [result for result in results if isinstance(result, BaseException)]
        assert [type(error) for error in failed] == [aioascend.AclError]
        assert all(result[0][0] == i + 1 for i, result in enumerate(results) if not isinstance(result, BaseException))
        assert (await session.infer(ones(1)))[0][0] == 2
        assert idle(session)


@pytest.mark.parametrize("call", ["acl.rt.launch_callback", "acl.mdl.execute_async"])
async def test_a_context_that_dies_while_several_runs_are_queued_takes_none_of_them_with_it(
    emulator: Emulator, call: str
) -> None:
    async with aioascend.Session(kit.add(1), depth=4) as session:
        assert (await session.infer(ones(0)))[0][0] == 1
        grouped(session)
        emulator.faults.fail(call, 507015, nth=1 if "callback" in call else 3)
        results = await outcomes([asyncio.ensure_future(session.infer(ones(i))) for i in range(4)])
        assert [result[0][0] for result in results] == [1, 2, 3, 4]
        assert session.statistics().devices[0].rebuilds == 1
        assert idle(session)


async def test_what_several_runs_are_told_with_is_told_to_each(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", "event")
    async with aioascend.Session(kit.add(1), depth=3) as session:
        grouped(session)
        emulator.faults.fail("acl.rt.synchronize_event_with_timeout", 500002)
        results = await outcomes([asyncio.ensure_future(session.infer(ones(i))) for i in range(3)])
        told = [isinstance(result, aioascend.AclError) for result in results]
        assert True in told
        assert all(result[0][0] == i + 1 for i, result in enumerate(results) if not told[i])
        assert (await session.infer(ones(1)))[0][0] == 2
        assert idle(session)


@pytest.mark.parametrize("where", ["streams", "point"])
async def test_a_stream_that_answers_with_failures_only_has_its_context_made_anew(
    emulator: Emulator, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells that it is empty: what it may still touch is not used again in this context."""
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        core = inside(session)._core
        failing = core.driver.error(500002, "acl.rt.synchronize_stream")
        stream = await device.create_stream()

        def fails(*_: int) -> bool:
            if core.generation == 1:
                raise failing
            return True

        with monkeypatch.context() as patch:
            patch.setattr(core.driver, "synchronize_stream", fails)
            if where == "streams":
                emulator.faults.fail("acl.mdl.execute_async", 500002)
                with pytest.raises(aioascend.AclError):
                    await session.infer(ones(1))
            else:
                point = core.call(stream.new_point).result(10)
                core.call(lambda: point._reached(failing)).result(10)  # the completion has failed
                with pytest.raises(aioascend.AclError):
                    await point.wait()
            await eventually(lambda: session.statistics().devices[0].rebuilds == 1 and session.ready, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2


async def test_what_is_launched_while_the_streams_are_aborted_is_queued_once_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        pipeline = inside(session)
        core, (lane,) = pipeline._core, pipeline.lanes
        request = session._request(pipeline, [ones(1)])
        queued: list[Any] = []

        def launch() -> None:
            lane._hung = True
            with monkeypatch.context() as patch:
                patch.setattr(core.driver, "queue_in", lambda *args: queued.append(args))
                lane.launch(request)
            lane._hung = False
            place = lane._running.pop()
            assert place.outlet is not None
            lane.outlets.append(place.outlet)
            lane.free(place)

        core.call(launch).result(10)
        assert not queued
        assert (await session.infer(ones(1)))[0][0] == 2
