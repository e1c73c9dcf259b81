"""Calls that on hardware never return are found before they wait (reference §3)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator, Profile, gil
from aioascend.emulator.device_model import DeviceModel, Task, Work
from aioascend.emulator.streams import Event, Flavour, Marker, ReportQueue, Stream
from aioascend.emulator.tasks import Callback, LegacyWait, Record, Reset, Wait
from aioascend.emulator.wait_graph import HostWait, never_returns

from .kit import Driver, ReportThread, doubler


class Bench:
    """A strict device with a stream that a blocking callback holds, as its report thread has not looked yet."""

    def __init__(self, **settings: Any) -> None:
        emulator = Emulator(Config(devices=2, memory=64 << 20, **{"strict": True, **settings}))
        emulator.acl.init()
        self.npu = Driver(emulator)
        self.rt = self.npu.rt
        self.report = ReportThread(self.npu)
        self.stream = self.npu.stream()
        self.npu.ok(self.rt.subscribe_report(self.report.ident, self.stream))
        self.ran: list[Any] = []

    def callback(self, block: int = 1, function: Callable[[Any], Any] | None = None) -> None:
        self.npu.ok(self.rt.launch_callback(function or self.ran.append, None, block, self.stream))

    def follower(self, event: int | None = None) -> int:
        """Another stream, that waits for an event which the stream of the callback records after it."""
        event = self.npu.ok(self.rt.create_event_ex_with_flag(1)) if event is None else event
        other = self.npu.stream()
        self.npu.ok(self.rt.record_event(event, self.stream))
        self.npu.ok(self.rt.stream_wait_event(other, event))
        return other

    @property
    def findings(self) -> list[str]:
        return [str(one) for one in self.npu.emulator.report().violations if one.rule == "deadlock"]

    def close(self) -> None:
        self.report.start()
        self.npu.ok(self.rt.synchronize_device())
        self.report.close()
        self.npu.emulator.shutdown()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def pageable(bench: Bench) -> int:
    data = np.ones(64, np.uint8)
    code: int = bench.rt.memcpy_async(bench.npu.device(64), 64, data.ctypes.data, 64, 1, bench.stream)
    return code


CALLS: dict[str, Callable[[Bench], int]] = {
    "acl.rt.memcpy_async": pageable,
    "acl.rt.destroy_stream": lambda bench: bench.rt.destroy_stream(bench.stream),
    "acl.rt.destroy_context": lambda bench: bench.rt.destroy_context(bench.npu.context),
    "acl.rt.reset_device": lambda bench: bench.rt.reset_device(0),
    "acl.rt.synchronize_device_with_timeout": lambda bench: bench.rt.synchronize_device_with_timeout(-1),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_holds_the_gil_does_not_wait_for_a_blocking_callback(bench: Bench, call: str) -> None:
    bench.callback()
    code = CALLS[call](bench)
    assert code == 107019
    (finding,) = bench.findings
    for words in (
        f"{call} waits with the GIL held",
        f"stream {bench.stream:#x} is held by a blocking callback launched at ",
        f"its function needs the GIL on thread {bench.report.ident}",
        f"Call acl.rt.synchronize_stream on stream {bench.stream:#x} first: it releases the GIL",
        "test_deadlocks.py",
    ):
        assert words in finding


@pytest.mark.parametrize("call", CALLS)
def test_synchronising_first_is_right(bench: Bench, call: str) -> None:
    bench.callback()
    bench.report.start()
    bench.npu.ok(bench.rt.synchronize_stream(bench.stream))
    CALLS[call](bench)
    assert bench.findings == []
    bench.npu = Driver(bench.npu.emulator)


def test_a_callback_that_does_not_block_holds_up_nobody(bench: Bench) -> None:
    bench.callback(block=0)
    bench.npu.ok(bench.rt.synchronize_device_with_timeout(-1))
    assert bench.findings == []


def test_a_wait_with_a_limit_ends(bench: Bench) -> None:
    bench.callback()
    assert bench.rt.synchronize_device_with_timeout(10) == 507046
    assert bench.rt.synchronize_stream_with_timeout(bench.stream, 10) == 507046
    assert bench.findings == []


def test_the_c_library_releases_the_gil(bench: Bench) -> None:
    bench.callback()
    bench.report.start()
    with gil.released():
        bench.npu.ok(bench.rt.synchronize_device_with_timeout(-1))
    assert bench.findings == []


def test_a_stream_that_waits_for_the_one_with_the_callback(bench: Bench) -> None:
    bench.callback()
    other = bench.follower()
    third = bench.npu.stream()
    event = bench.npu.ok(bench.rt.create_event())
    bench.npu.ok(bench.rt.record_event(event, other))
    bench.npu.ok(bench.rt.stream_wait_event(third, event))
    assert bench.rt.destroy_stream(third) == 107019
    (finding,) = bench.findings
    assert f"stream {third:#x} waits for event {event:#x}, which stream {other:#x} has yet to record; " in finding
    assert f"which stream {bench.stream:#x} has yet to record; stream {bench.stream:#x} is held by" in finding


def test_work_before_the_callback_can_be_waited_for(bench: Bench) -> None:
    event = bench.npu.ok(bench.rt.create_event_ex_with_flag(1))
    other = bench.npu.stream()
    release = bench.npu.hold(bench.stream)
    bench.npu.ok(bench.rt.record_event(event, bench.stream))
    bench.npu.ok(bench.rt.stream_wait_event(other, event))
    bench.callback()
    release()
    bench.npu.ok(bench.rt.destroy_stream(other))
    assert bench.findings == []


def test_a_legacy_event_that_nothing_records(bench: Bench) -> None:
    stream = bench.npu.stream()
    release = bench.npu.hold(stream)
    assert bench.rt.destroy_stream(stream) == 107019
    (finding,) = bench.findings
    assert "which nothing that is queued records, and who would record it needs the GIL" in finding
    assert "Record the event first" in finding
    release()
    bench.npu.ok(bench.rt.destroy_stream(stream))


def test_a_legacy_event_is_as_good_as_its_resets(bench: Bench) -> None:
    event, stream = bench.npu.ok(bench.rt.create_event_with_flag(1)), bench.npu.stream()
    bench.npu.ok(bench.rt.record_event(event, bench.stream))
    bench.npu.ok(bench.rt.synchronize_stream(bench.stream))
    for call in (bench.rt.stream_wait_event, lambda stream, event: bench.rt.reset_event(event, stream)):
        bench.npu.ok(call(stream, event))
    bench.npu.ok(bench.rt.stream_wait_event(stream, event))
    assert bench.rt.destroy_stream(stream) == 107019
    while bench.npu.ok(bench.rt.query_event_status(event)):
        time.sleep(0.001)  # a record before the reset would be lost
    bench.npu.ok(bench.rt.record_event(event, bench.stream))
    bench.npu.ok(bench.rt.destroy_stream(stream))
    assert len(bench.findings) == 1


def test_a_callback_in_progress_is_waited_for_by_unsubscribing(bench: Bench) -> None:
    entered, leave = threading.Event(), threading.Event()

    def function(_: Any) -> None:
        entered.set()
        leave.wait(10)

    bench.callback(block=0, function=function)
    bench.report.start()
    assert entered.wait(10)
    assert bench.rt.unsubscribe_report(bench.report.ident, bench.stream) == 107019
    (finding,) = bench.findings
    assert "acl.rt.unsubscribe_report waits with the GIL held for a callback launched at " in finding
    assert "Wait first until process_report has returned from it" in finding
    threading.Timer(0.05, leave.set).start()
    with gil.released():
        bench.npu.ok(bench.rt.unsubscribe_report(bench.report.ident, bench.stream))
    assert leave.is_set()


def test_the_report_thread_itself_must_not_wait(bench: Bench) -> None:
    rt, npu = bench.rt, bench.npu
    codes: list[int] = []

    def work() -> None:
        rt.set_context(npu.context)
        stream = npu.stream()
        event = npu.ok(rt.create_event_ex_with_flag(1))
        npu.ok(rt.subscribe_report(threading.get_ident(), stream))
        npu.ok(rt.launch_callback(bench.ran.append, None, 1, stream))
        npu.ok(rt.record_event(event, stream))
        codes.append(rt.synchronize_stream(stream))
        codes.append(rt.synchronize_event(event))
        npu.ok(rt.process_report(1000))
        codes.append(rt.synchronize_stream(stream))
        npu.ok(rt.unsubscribe_report(threading.get_ident(), stream))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert codes == [107019, 107019, 0]
    first, second = bench.findings
    assert "acl.rt.synchronize_stream waits for stream" in first
    assert "the thread that waits has to run it" in first
    assert "Wait on another thread" in first
    assert "acl.rt.synchronize_event waits for an event" in second


def test_a_report_thread_that_has_ended_runs_no_callback(bench: Bench) -> None:
    rt, npu = bench.rt, bench.npu
    gone = ReportThread(npu)
    stream = npu.stream()
    npu.ok(rt.subscribe_report(gone.ident, stream))
    npu.ok(rt.launch_callback(bench.ran.append, None, 1, stream))
    gone.close()
    # the thread took no callback with it: it had been told to end before it was told to begin
    if not bench.ran:
        assert rt.synchronize_stream(stream) == 107019
        assert f"thread {gone.ident}, which has to run it, has ended" in bench.findings[0]
    npu.emulator._process.streams[stream].report.owner = None
    rt.unsubscribe_report(gone.ident, stream)


def test_two_report_threads_that_wait_for_each_other(bench: Bench) -> None:
    rt, npu = bench.rt, bench.npu
    streams, idents = [npu.stream(), npu.stream()], [0, 0]
    ready, launched = threading.Barrier(3), threading.Barrier(3)
    codes: list[int] = []

    def work(mine: int) -> None:
        rt.set_context(npu.context)
        idents[mine] = threading.get_ident()
        ready.wait(10)
        launched.wait(10)
        codes.append(rt.synchronize_stream(streams[1 - mine]))
        rt.process_report(1000)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in (0, 1)]
    for thread in threads:
        thread.start()
    ready.wait(10)
    for ident, stream in zip(idents, streams, strict=True):
        npu.ok(rt.subscribe_report(ident, stream))
        npu.ok(rt.launch_callback(bench.ran.append, None, 1, stream))
    launched.wait(10)
    for thread in threads:
        thread.join(10)
    # the one that came second was refused, and ran what the first one waited for
    assert sorted(codes) == [0, 107019]
    (finding,) = bench.findings
    assert "which has to run it, waits in acl.rt.synchronize_stream for what cannot come" in finding
    for ident, stream in zip(idents, streams, strict=True):
        npu.ok(rt.unsubscribe_report(ident, stream))


def test_a_full_stream_behind_a_blocking_callback_takes_nothing() -> None:
    bench = Bench(stream_depth=4)
    bench.callback()
    memory = bench.npu.device(64)
    codes = [bench.rt.memset_async(memory, 64, 1, 64, bench.stream) for _ in range(4)]
    assert codes == [0, 0, 0, 507002]
    (finding,) = bench.findings
    assert f"acl.rt.memset_async waits with the GIL held for room on stream {bench.stream:#x}" in finding
    assert "which has 4 tasks queued" in finding
    bench.report.start()
    # releases the GIL, so that the callback can run
    event = bench.npu.ok(bench.rt.create_event_ex_with_flag(1))
    bench.npu.ok(bench.rt.record_event(event, bench.npu.stream()))
    bench.npu.ok(bench.rt.stream_wait_event(bench.stream, event))
    assert len(bench.findings) == 1
    bench.close()


def test_a_synchronous_run_on_a_stream_that_a_callback_holds(bench: Bench) -> None:
    npu, mdl = bench.npu, bench.npu.mdl
    model = npu.load(doubler())
    x = np.ones((2, 3), np.float32)
    given, taken, _ = npu.bind([x], [x])
    config = mdl.create_exec_config_handle()
    bench.callback()
    assert mdl.execute_v2(model, given, taken, bench.stream, config) == 107019
    npu.ok(mdl.execute(model, given, taken))
    assert len(bench.findings) == 1
    bench.report.start()
    npu.ok(bench.rt.synchronize_stream(bench.stream))
    npu.ok(mdl.execute_v2(model, given, taken, bench.stream, config))
    assert len(bench.findings) == 1


def test_a_record_waits_for_an_event_id_and_not_for_ever() -> None:
    bench = Bench(events=8)
    rt, npu = bench.rt, bench.npu
    event = npu.ok(rt.create_event_ex_with_flag(1))
    big, stream = npu.device(8 << 20), npu.stream()
    for _ in range(30):
        npu.ok(rt.memset_async(big, 8 << 20, 1, 8 << 20, stream))
        npu.ok(rt.record_event(event, stream))
    npu.ok(rt.synchronize_stream(stream))
    assert bench.findings == []
    bench.callback()
    codes = [rt.record_event(event, bench.stream) for _ in range(9)]
    assert codes == [0] * 8 + [207007]
    (finding,) = bench.findings
    assert "acl.rt.record_event waits with the GIL held for one of the 8 event ids: " in finding
    assert f"stream {bench.stream:#x} is held by a blocking callback" in finding
    bench.report.start()
    npu.ok(rt.synchronize_stream(bench.stream))
    for _ in range(8):
        npu.ok(rt.create_event_with_flag(1))
    assert rt.record_event(event, stream) == 207007  # the other kind has them all
    assert len(bench.findings) == 1
    bench.close()


@pytest.mark.parametrize("hold", [False, True])
def test_without_strict_mode_it_is_noted_once_and_carried_out(hold: bool) -> None:
    bench = Bench(strict=False, profile=Profile(hold_gil=hold))
    bench.report.start()
    release = bench.npu.hold(bench.stream)
    bench.callback()
    threading.Timer(0.05, release_from(bench, release)).start()
    for _ in range(2):
        bench.npu.ok(bench.rt.synchronize_device_with_timeout(-1))
    assert bench.ran == [None]
    assert len(bench.findings) == 1
    bench.close()


def release_from(bench: Bench, release: Callable[[], None]) -> Callable[[], None]:
    def work() -> None:
        bench.rt.set_context(bench.npu.context)
        release()

    return work


class Nothing(Work):
    """Work that is done at once."""

    __slots__ = ()


def some_queues(rng: random.Random, resets: bool) -> tuple[DeviceModel, list[Stream]]:
    """Streams with random queues, begun as far as a random order took them."""
    model = DeviceModel(time.perf_counter)
    streams = [Stream(handle) for handle in range(1, 5)]
    report = ReportQueue(1)
    for stream in streams:
        stream.report = report
    events = [Event(flavour=Flavour.EX) for _ in range(3)]
    legacy = [Event(flavour=Flavour.LEGACY) for _ in range(3)]
    for _ in range(rng.randrange(30)):
        stream, event, flag = rng.choice(streams), rng.choice(events), rng.choice(legacy)
        task: Task
        kind = rng.choice(["work", "record", "wait", "raise", "flag", "call", "block", "reset" if resets else "work"])
        if kind == "record":
            event.marker = Marker()
            task = Record(event, event.marker)
        elif kind == "wait" and event.marker is not None:
            task = Wait(event, event.marker)
        elif kind == "raise":
            flag.marker = Marker()
            task = Record(flag, flag.marker)
        elif kind == "flag":
            task = LegacyWait(flag)
        elif kind == "reset":
            task = Reset(flag)
        elif kind in ("call", "block"):
            task = Callback(id, None, kind == "block" and rng.random() < 0.3)
        else:
            task = Nothing()
        model.submit(stream, task)
        if rng.random() < 0.3:
            settle(model, rng)
    return model, streams


def settle(model: DeviceModel, rng: random.Random) -> None:
    """Do what can be done, as long as no callback can run."""
    ready = list(model.ready)
    rng.shuffle(ready)
    model.ready.clear()
    model.ready.extend(ready)
    while (work := model.advance(0.0)) is not None:
        model.finish(work, None)


@pytest.mark.parametrize("resets", [False, True])
def test_what_is_found_never_happens_and_what_is_not_does(resets: bool) -> None:
    stuck = 0
    for seed in range(1500):
        rng = random.Random(seed)
        model, streams = some_queues(rng, resets)
        found = {
            stream: never_returns(HostWait("f", 0, True, ((stream, stream.submitted),)), streams, {})
            for stream in streams
        }
        settle(model, rng)
        for stream in streams:
            ended = stream.completed == stream.submitted
            stuck += not ended
            if ended:
                assert found[stream] is None, (seed, stream, found[stream])
            elif not resets:
                # with resets another order might have done it
                assert found[stream] is not None, (seed, stream)
    assert stuck > 500
