"""The device model by itself: no threads, no clock of its own."""

from __future__ import annotations

from aioascend.emulator.device_model import ComputeUnit, DeviceModel, Work
from aioascend.emulator.streams import Event, Fault, Flavour, Marker, ReportQueue, State, Stream
from aioascend.emulator.tasks import Callback, LegacyWait, Record, Reset, Wait


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Gate:
    """A host thread that notes how it was woken."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def wake(self, code: int) -> None:
        self.codes.append(code)


class Bench:
    """A model, driven by hand."""

    def __init__(self, lanes: int = 1) -> None:
        self.clock = Clock()
        self.model = DeviceModel(self.clock, lanes)

    def next(self) -> Work | None:
        return self.model.advance(self.clock.now)

    def record(self, event: Event, stream: Stream) -> Marker:
        event.marker = Marker()
        self.model.submit(stream, Record(event, event.marker))
        return event.marker

    def wait(self, stream: Stream, event: Event) -> None:
        assert event.marker is not None
        self.model.submit(stream, Wait(event, event.marker))


def test_a_stream_hands_out_one_task_at_a_time_in_order() -> None:
    bench, stream = Bench(), Stream()
    first, second = Work(), Work()
    assert bench.model.submit(stream, first)
    assert not bench.model.submit(stream, second)
    assert bench.next() is first
    assert bench.next() is None
    bench.model.finish(first, None)
    assert bench.next() is second
    bench.model.finish(second, None)
    assert stream.state is State.IDLE
    assert (stream.submitted, stream.completed) == (2, 2)


def test_streams_advance_side_by_side() -> None:
    bench, streams = Bench(), [Stream() for _ in range(5)]
    tasks = [Work() for _ in streams]
    for stream, task in zip(streams, tasks, strict=True):
        bench.model.submit(stream, task)
    assert [bench.next() for _ in streams] == tasks


def test_a_record_releases_the_streams_and_threads_that_wait_for_it() -> None:
    bench, event, gate = Bench(), Event(), Gate()
    first, second = Stream(), Stream()
    work, later = Work(), Work()
    bench.model.submit(first, work)
    marker = bench.record(event, first)
    marker.add(gate)
    bench.wait(second, event)
    bench.model.submit(second, later)
    assert bench.next() is work
    assert bench.next() is None
    assert second.state is State.PARKED
    bench.clock.now = 3.0
    bench.model.finish(work, None)
    assert bench.next() is later
    assert (marker.done, marker.time, gate.codes) == (True, 3.0, [0])


def test_an_earlier_wait_keeps_its_own_record() -> None:
    bench, event = Bench(), Event()
    first, second, third = Stream(), Stream(), Stream()
    bench.record(event, first)
    bench.wait(second, event)
    blocker = Work()
    bench.model.submit(third, blocker)
    bench.record(event, third)
    after = Work()
    bench.model.submit(second, after)
    assert {bench.next(), bench.next()} == {blocker, after}


def test_a_legacy_wait_is_released_by_a_record_that_comes_later() -> None:
    bench, event = Bench(), Event(flavour=Flavour.LEGACY)
    waiting, recording = Stream(), Stream()
    bench.model.submit(waiting, LegacyWait(event))
    assert bench.next() is None
    assert event.waits == 1
    bench.record(event, recording)
    assert bench.next() is None
    assert (waiting.completed, event.waits) == (1, 0)
    bench.model.submit(waiting, Reset(event))
    bench.model.submit(waiting, LegacyWait(event))
    bench.next()
    assert waiting.state is State.PARKED


def test_a_reset_does_not_undo_a_record_submitted_after_it() -> None:
    bench, event, stream = Bench(), Event(flavour=Flavour.LEGACY), Stream()
    bench.record(event, stream)
    bench.model.submit(stream, Reset(event))
    newest = bench.record(event, stream)
    bench.next()
    assert event.marker is newest
    assert event.raised


def test_compute_lanes_are_shared_in_order() -> None:
    bench, streams = Bench(lanes=2), [Stream() for _ in range(4)]
    tasks = [Work(lane=bench.model.compute, unit=ComputeUnit()) for _ in streams]
    for stream, task in zip(streams, tasks, strict=True):
        bench.model.submit(stream, task)
    assert [bench.next(), bench.next(), bench.next()] == [tasks[0], tasks[1], None]
    bench.model.finish(tasks[1], None)
    assert bench.next() is tasks[2]
    bench.model.finish(tasks[0], None)
    assert bench.next() is tasks[3]


def test_a_stream_with_a_long_queue_starves_no_other() -> None:
    bench, busy, other = Bench(), Stream(), Stream()
    order = []
    for stream, count in ((busy, 5), (other, 3)):
        for _ in range(count):
            bench.model.submit(stream, Work(lane=bench.model.compute))
    while (work := bench.next()) is not None:
        order.append(work.stream)
        assert bench.next() is None  # the other one waits for the lane
        bench.model.finish(work, None)
    assert order == [busy, other, busy, other, busy, other, busy, busy]


def test_one_model_never_runs_twice_at_once() -> None:
    bench, unit = Bench(lanes=4), ComputeUnit()
    first, second = Work(lane=bench.model.compute, unit=unit), Work(lane=bench.model.compute, unit=unit)
    bench.model.submit(Stream(), first)
    bench.model.submit(Stream(), second)
    assert [bench.next(), bench.next()] == [first, None]
    bench.model.finish(first, None)
    assert bench.next() is second


def test_copies_go_on_while_a_model_runs() -> None:
    bench = Bench()
    compute, copy = Work(lane=bench.model.compute, unit=ComputeUnit()), Work(inline=True)
    bench.model.submit(Stream(), compute)
    bench.model.submit(Stream(), copy)
    assert [bench.next(), bench.next()] == [compute, copy]


def test_the_first_failure_stays_until_it_is_taken() -> None:
    bench, stream = Bench(), Stream()
    for fault in (Fault(1, "first"), Fault(2, "second"), None):
        task = Work()
        bench.model.submit(stream, task)
        assert bench.next() is task
        bench.model.finish(task, fault)
    taken = stream.take_fault()
    assert taken is not None
    assert taken.text == "first"
    assert stream.take_fault() is None
    assert stream.completed == 3


def test_a_thread_that_waits_for_a_stream_wakes_when_its_part_is_done() -> None:
    bench, stream, early, late = Bench(), Stream(), Gate(), Gate()
    tasks = [Work(), Work()]
    bench.model.submit(stream, tasks[0])
    stream.waiters.append((stream.submitted, early))
    bench.model.submit(stream, tasks[1])
    stream.waiters.append((stream.submitted, late))
    bench.next()
    bench.model.finish(tasks[0], None)
    assert (early.codes, late.codes) == ([0], [])
    bench.next()
    bench.model.finish(tasks[1], None)
    assert late.codes == [0]


def subscribed() -> tuple[Bench, Stream, ReportQueue, Gate]:
    bench, stream, report, gate = Bench(), Stream(), ReportQueue(1), Gate()
    stream.report = report
    report.streams.add(stream)
    report.waiter = gate
    return bench, stream, report, gate


def test_a_callback_that_does_not_block_lets_the_stream_go_on() -> None:
    bench, stream, report, gate = subscribed()
    after = Work()
    bench.model.submit(stream, Callback(print, 1, False))
    bench.model.submit(stream, after)
    assert bench.next() is after
    assert [entry.user_data for entry in report.entries] == [1]
    assert gate.codes == [0]


def test_a_callback_that_blocks_holds_the_stream_until_it_returned() -> None:
    bench, stream, _report, _ = subscribed()
    after, callback = Work(), Callback(print, 1, True)
    bench.model.submit(stream, callback)
    bench.model.submit(stream, after)
    assert bench.next() is None
    assert bench.model.returned(callback)
    assert bench.next() is after


def test_unsubscribing_drops_waiting_callbacks_and_wakes_the_thread() -> None:
    bench, stream, report, _ = subscribed()
    bench.model.submit(stream, Callback(print, 1, True))
    bench.next()
    report.waiter = gate = Gate()
    bench.model.unsubscribe(stream)
    assert not report.entries
    assert gate.codes == [107012]
    assert stream.state is State.IDLE


def test_dropping_keeps_the_task_that_runs() -> None:
    bench, stream, gate = Bench(), Stream(), Gate()
    running, queued = Work(), Work()
    bench.model.submit(stream, running)
    bench.model.submit(stream, queued)
    stream.waiters.append((2, gate))
    assert bench.next() is running
    bench.model.drop(stream, 107023)
    assert gate.codes == [107023]
    bench.model.finish(running, None)
    assert bench.next() is None
    assert stream.completed == stream.submitted == 2


def test_dropping_a_parked_stream_forgets_what_it_waited_for() -> None:
    bench, event, stream, other = Bench(), Event(), Stream(), Stream()
    blocker = Work()
    bench.model.submit(other, blocker)
    bench.record(event, other)
    bench.wait(stream, event)
    bench.next()
    bench.next()
    bench.model.drop(stream, 107023)
    fresh = Work()
    bench.model.submit(stream, fresh)
    assert bench.next() is fresh
    bench.model.finish(blocker, None)
    assert bench.next() is None
    assert stream.queue[0] is fresh


def test_dropping_a_stream_that_waits_for_a_lane_leaves_the_lane() -> None:
    bench = Bench()
    first, second = (
        Work(lane=bench.model.compute, unit=ComputeUnit()),
        Work(lane=bench.model.compute, unit=ComputeUnit()),
    )
    busy, waiting = Stream(), Stream()
    bench.model.submit(busy, first)
    bench.model.submit(waiting, second)
    bench.next()
    bench.next()
    bench.model.drop(waiting, 107023)
    bench.model.finish(first, None)
    assert bench.next() is None
    assert bench.model.compute.active == 0
