"""Recording sessions on the emulator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.telemetry import RequestTimes, record
from aioascend.telemetry.chrome import trace_events

from ..kit import add, out_of_bounds
from ..session.test_under_faults import Books
from ..waiting import eventually
from .test_chrome import check

pytestmark = pytest.mark.usefixtures("emulator")

X = np.zeros(4, np.float32)
# 64 bytes each way: a block of pinned memory is not smaller.
STAGED = Profile(name="2/8/2 ms", pinned=64 / 1e-3, copy_latency=1e-3, compute_default=8e-3)


def session(model: bytes | None = None, **options: object) -> aioascend.Session:
    return aioascend.Session(model or add(1.0), devices="emulator:0", **options)  # type: ignore[arg-type]


def in_order(one: RequestTimes, slack: float) -> bool:
    """Whether the points of its way come one after the other, device times within the error of the clock."""
    assert one.h2d is not None
    assert one.execute is not None
    assert one.d2h is not None
    assert one.launched is not None
    assert one.told is not None
    host = [one.submitted, *(one.staging or ()), one.launched, one.told, one.done, one.woken]
    device = [*one.h2d, *one.execute, *one.d2h]
    return (
        host == sorted(host)
        and device == sorted(device)
        and one.launched <= one.h2d.start + slack
        and one.d2h.end <= one.told + slack
    )


@pytest.mark.loops
async def test_every_request_of_the_block_is_timed_through_its_stages() -> None:
    async with session() as model:
        await model.infer(X)
        async with record(model) as recording:
            await asyncio.gather(*(model.infer(X) for _ in range(20)))
        await model.infer(X)

    timeline = recording.timeline()
    assert len(timeline.requests) == len(timeline.completed()) == 20
    [error] = timeline.clock_error.values()
    assert all(in_order(one, error + 2e-6) for one in timeline.requests)
    for one in timeline.requests:
        parts = one.queue + one.copy_in + one.compute + one.copy_out + one.wake_up
        assert parts == pytest.approx(one.total, abs=2 * error + 1e-5)
    assert set(timeline.split()) == {"queue", "copy_in", "compute", "copy_out", "wake_up", "total"}


@pytest.mark.emulated(profile=STAGED)
async def test_the_stages_last_as_long_as_the_device_takes() -> None:
    async with session() as model, record(model) as recording:
        await asyncio.gather(*(model.infer(X) for _ in range(6)))

    for one in recording.timeline().completed():
        assert one.h2d is not None
        assert one.d2h is not None
        assert one.compute == pytest.approx(8e-3, abs=2e-5)
        assert one.h2d.duration == pytest.approx(2e-3, abs=2e-5)


async def test_nothing_is_timed_and_no_event_made_without_a_recording(emulator: Emulator) -> None:
    made = []
    create = emulator.acl.rt.create_event_ex_with_flag

    def count(flag: int) -> object:
        made.append(flag)
        return create(flag)

    emulator.acl.rt.create_event_ex_with_flag = count
    async with session() as model:
        await model.infer(X)
        assert not [flag for flag in made if flag & 8]
        async with record(model):
            await model.infer(X)
        # Six events a place, and one to compare the clocks with at either end.
        assert len([flag for flag in made if flag & 8]) == 6 * 3 + 2
        before = len(made)
        await model.infer(X)
        assert len(made) == before


@pytest.mark.emulated(ex_events=False)
async def test_devices_without_ex_events_are_timed_too() -> None:
    async with session() as model, record(model) as recording:
        await asyncio.gather(*(model.infer(X) for _ in range(7)))

    assert len(recording.timeline().completed()) == 7


async def test_tickets_and_pinned_requests_are_in_the_timeline() -> None:
    async with session() as model, record(model) as recording:
        ticket = await model.submit(X)
        await ticket
        await asyncio.sleep(0.02)
        await ticket
        async with model.request() as request:
            request.inputs["x"][:] = 0
            await request.run()

    first, second = recording.timeline().requests
    assert first.woken == first.done  # when a ticket is awaited is its owner's affair
    assert first.staging is not None
    assert second.staging is None
    assert second.h2d is not None


async def test_failed_and_cancelled_requests_say_so() -> None:
    async with session(out_of_bounds()) as model, record(model) as recording:
        with pytest.raises(aioascend.ExecutionFailed):
            await model.infer(np.array([9], np.int64))
        await model.infer(np.array([1], np.int64))
        task = asyncio.ensure_future(model.infer(np.array([1], np.int64)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await model.infer(np.array([1], np.int64))  # what was submitted before it has ended

    timeline = recording.timeline()
    assert [one.outcome for one in timeline.requests] == ["failed", "completed", "cancelled", "completed"]
    check(trace_events(timeline))


async def test_only_the_latest_are_kept() -> None:
    async with session() as model, record(model, limit=3) as recording:
        for _ in range(8):
            await model.infer(X)

    timeline = recording.timeline()
    assert [one.number for one in timeline.requests] == sorted(one.number for one in timeline.requests)
    assert (len(timeline.requests), timeline.dropped) == (3, 5)


async def test_several_sessions_share_a_timeline(tmp_path: Path) -> None:
    async with session() as one, aioascend.Session(add(2.0), devices="emulator:1", instances=2) as two:
        async with record(one, two) as recording:
            await asyncio.gather(*(model.infer(X) for model in (one, two) for _ in range(10)))
        recording.save(tmp_path / "trace.json")

    timeline = recording.timeline()
    assert len(timeline.clock_error) == 2
    assert {request.instance for request in timeline.requests if "emulator:1" in request.session} == {0, 1}
    check(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])


async def test_a_session_is_in_one_recording_at_a_time() -> None:
    async with session() as model, record(model) as recording:
        with pytest.raises(aioascend.InvalidInput, match="recorded already"):
            async with record(model):
                pass
        await model.infer(X)

    assert len(recording.timeline().requests) == 1


async def test_a_second_recording_begins_anew() -> None:
    async with session() as model:
        for _ in range(2):
            async with record(model) as recording:
                await model.infer(X)
            assert len(recording.timeline().requests) == 1


async def test_closing_a_session_ends_its_recording() -> None:
    async with session() as model:
        recording = record(model)
        await recording.__aenter__()
        await model.infer(X)
    await recording.__aexit__(None, None, None)

    assert len(recording.timeline().completed()) == 1


async def test_requests_may_be_under_way_at_both_ends() -> None:
    async with session() as model:
        early = [asyncio.ensure_future(model.infer(X)) for _ in range(50)]
        await asyncio.sleep(0)
        async with record(model) as recording:
            late = [asyncio.ensure_future(model.infer(X)) for _ in range(50)]
            await late[0]
        await asyncio.gather(*early, *late)

    timeline = recording.timeline()
    assert 1 <= len(timeline.requests) <= 50
    check(trace_events(timeline))


def test_scripts_record_with_a_plain_with() -> None:
    with session() as model, record(model) as recording:
        model.infer_sync(X)

    assert len(recording.timeline().completed()) == 1


async def test_a_plain_with_on_a_loop_is_refused() -> None:
    async with session() as model:
        with pytest.raises(RuntimeError, match="async with"), record(model):
            pass


async def test_what_is_not_open_cannot_be_recorded() -> None:
    with pytest.raises(aioascend.SessionClosed):
        async with record(session()):
            pass
    with pytest.raises(ValueError, match="at least one"):
        record()
    with pytest.raises(ValueError, match="at least 1"):
        record(session(), limit=0)


async def test_an_event_that_cannot_be_recorded_fails_no_request(emulator: Emulator) -> None:
    async with session() as model, record(model) as recording:
        await model.infer(X)
        emulator.faults.parse("acl.rt.event_get_timestamp#1=507000")
        y = await model.infer(X)
        await model.infer(X)

    assert y[0].tolist() == [1.0] * 4
    requests = recording.timeline().requests
    assert [one.outcome for one in requests] == ["completed"] * 3
    assert [one.execute is not None for one in requests] == [True, False, True]


async def test_an_event_that_is_not_queued_leaves_its_request_timed_by_the_host_alone(emulator: Emulator) -> None:
    async with session() as model, record(model) as recording:
        await model.infer(X)
        emulator.faults.fail("acl.rt.record_event", 507000)  # the first of a launch is the recording's
        await model.infer(X)
        await model.infer(X)

    requests = recording.timeline().requests
    assert [one.outcome for one in requests] == ["completed"] * 3
    assert [one.execute is not None for one in requests] == [True, False, True]
    assert all(one.launched is not None and one.told is not None for one in requests)


@pytest.mark.emulated(profile=Profile(compute_default=0.2))
async def test_a_request_from_before_the_recording_is_none_of_it() -> None:
    async with session() as model:
        before = asyncio.ensure_future(model.infer(X))
        await eventually(lambda: model.statistics().running > 0)
        after = asyncio.ensure_future(model.infer(X))  # which takes a place when the recording is on
        async with record(model) as recording:
            await asyncio.gather(before, after)
            await model.infer(X)

    assert len(recording.timeline().requests) == 1


@pytest.mark.parametrize("function", ["create_stream", "create_event_ex_with_flag", "record_event"])
async def test_every_call_of_beginning_a_recording_may_fail_and_the_next_begins(
    emulator: Emulator, function: str
) -> None:
    books = Books(emulator)
    async with session(depth=2) as model:
        for nth in range(1, 30):
            rule = emulator.faults.fail(f"acl.rt.{function}", 207007, nth=nth)
            recording = record(model)
            (failure,) = await asyncio.gather(recording.__aenter__(), return_exceptions=True)
            struck = rule.seen >= nth
            emulator.faults.clear()
            assert isinstance(failure, aioascend.AclError) == struck, failure
            if not struck:
                await model.infer(X)
                await recording.__aexit__(None, None, None)
                assert len(recording.timeline().requests) == 1
                break
        else:
            raise AssertionError("more calls than expected: the loop has not tried them all")
    books.assert_balanced()


@pytest.mark.parametrize("nth", [1, 2, 4])  # of the first comparison of the clocks, and of later ones: at least 5 ask
async def test_an_event_that_cannot_be_asked_ends_the_beginning_of_a_recording(emulator: Emulator, nth: int) -> None:
    books = Books(emulator)
    async with session(depth=2) as model:
        emulator.faults.fail("acl.rt.query_event_status", 207007, nth=nth)
        with pytest.raises(aioascend.AclError, match="207007"):
            async with record(model):
                pass
        async with record(model) as recording:
            await model.infer(X)
        assert len(recording.timeline().requests) == 1
    books.assert_balanced()


async def test_a_recording_ends_although_the_clocks_cannot_be_compared_any_more(emulator: Emulator) -> None:
    async with session() as model:
        async with record(model) as recording:
            await model.infer(X)
            emulator.faults.fail("acl.rt.create_stream", 507000)
        async with record(model):
            pass

    (request,) = recording.timeline().requests
    assert request.execute is not None  # the comparison of the beginning has to do


async def test_an_event_on_an_idle_stream_that_never_comes_is_told(emulator: Emulator) -> None:
    books = Books(emulator)
    query = emulator.acl.rt.query_event_status
    async with session() as model:
        emulator.acl.rt.query_event_status = lambda event: (0, 0)
        with pytest.raises(aioascend.AioascendError, match="an event on an idle stream of emulator:0 was not reached"):
            async with record(model):
                pass
        emulator.acl.rt.query_event_status = query
        async with record(model) as recording:
            await model.infer(X)

    assert len(recording.timeline().requests) == 1
    books.assert_balanced()
