"""A host thread that waits for a callback advances the device meanwhile, and nothing is left undone when it goes."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aioascend.emulator import codes
from aioascend.emulator.device_model import ComputeUnit, DeviceModel, Lane, Work
from aioascend.emulator.engine import Engine, HostWaiter
from aioascend.emulator.streams import Fault, Stream
from aioascend.emulator.timers import EARLY_S, stay_awake
from tests.emulator.kit import Driver
from tests.emulator.test_brief_runs import eventually


class Job(Work):
    """Work that notes the thread that does it, and the one that sees its end; `seconds` by the time profile."""

    __slots__ = ("ended", "ran", "seconds")

    def __init__(self, seconds: float = 0.0, lane: Lane | None = None, unit: ComputeUnit | None = None) -> None:
        super().__init__(unit is None, lane, unit)
        self.seconds, self.ran, self.ended = seconds, "", ""

    def duration(self, last: ComputeUnit | None) -> float:
        return self.seconds

    def run(self) -> Fault | None:
        self.ran = threading.current_thread().name
        return None

    def finished(self, model: DeviceModel) -> None:
        self.ended = threading.current_thread().name
        super().finished(model)


class Waiting:
    """A host thread that waits for `engine`."""

    def __init__(self, engine: Engine, milliseconds: int = -1, name: str = "host") -> None:
        self.engine = engine
        with engine.lock:
            self.waiter: HostWaiter = engine.waiter()
        self.thread = threading.Thread(target=self._run, args=(milliseconds,), name=name)
        self.thread.start()

    def _run(self, milliseconds: int) -> None:
        try:
            self.engine.help(self.waiter, milliseconds, lambda: True)
        except SystemExit:
            pass

    def helps(self) -> Waiting:
        assert eventually(lambda: self.engine._helper is self.waiter)
        return self

    def wake(self) -> None:
        with self.engine.lock:
            self.waiter.wake(codes.SUCCESS)

    def join(self) -> None:
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine("bench")
    yield made
    made.stop()
    made.wake_hosts(codes.SUCCESS)
    assert made.join(10)


@pytest.fixture
def timed() -> Iterator[Engine]:
    made = Engine("bench", timed=True)
    yield made
    made.stop()
    made.wake_hosts(codes.SUCCESS)
    assert made.join(10)


def submit(engine: Engine, *jobs: Job) -> Stream:
    stream = Stream()
    for job in jobs:
        engine.submit(stream, job, "test")
    return stream


def done(stream: Stream) -> bool:
    return stream.completed == stream.submitted


def parked(engine: Engine) -> bool:
    return len(engine._parked) == len(engine.threads)


def test_who_waits_does_short_work_that_others_submit(engine: Engine) -> None:
    assert eventually(lambda: parked(engine))
    host = Waiting(engine).helps()
    for _ in range(3):
        job = Job()
        stream = submit(engine, job)
        assert eventually(lambda stream=stream: done(stream))
        assert job.ran == job.ended == "host"
        host.helps()
    host.wake()
    host.join()


def test_long_work_is_done_by_the_threads_of_the_device(engine: Engine) -> None:
    assert eventually(lambda: parked(engine))
    host = Waiting(engine).helps()
    before, run, after = Job(), Job(lane=engine.model.compute, unit=ComputeUnit()), Job()
    stream = submit(engine, before, run, after)
    assert eventually(lambda: done(stream))
    assert run.ran.startswith("bench")
    host.wake()
    host.join()


def test_long_work_that_a_host_thread_hands_over_passes_by_who_waits(engine: Engine) -> None:
    assert eventually(lambda: parked(engine))
    host = Waiting(engine).helps()
    run, stream = Job(lane=engine.model.compute, unit=ComputeUnit()), Stream()
    with engine.lock:  # as a thread does that advances the model while it holds the GIL (`Engine.hold`)
        engine.model.submit(stream, run)
        engine._help()
    assert eventually(lambda: done(stream), 5)
    assert run.ran.startswith("bench")
    host.wake()
    host.join()


def test_who_is_woken_and_kicked_at_once_leaves_and_what_it_was_kicked_for_is_done(engine: Engine) -> None:
    assert eventually(lambda: parked(engine))
    for kick_first in (True, False):
        host = Waiting(engine).helps()
        job, stream = Job(), Stream()
        with engine.lock:
            engine.model.submit(stream, job)
            if kick_first:
                engine.kick()
            host.waiter.wake(codes.SUCCESS)
            if not kick_first:
                engine.kick()
        host.join()
        assert eventually(lambda stream=stream: done(stream))


def test_kicks_and_time_outs_that_meet_lose_nothing(engine: Engine) -> None:
    stop = threading.Event()

    def wait_again_and_again() -> None:
        while not stop.is_set():
            with engine.lock:
                waiter = engine.waiter()
            engine.help(waiter, 1, lambda: True)

    hosts = [threading.Thread(target=wait_again_and_again) for _ in range(2)]
    for host in hosts:
        host.start()
    try:
        limit = time.monotonic() + 1.5
        while time.monotonic() < limit:
            streams = [submit(engine, Job(), Job(lane=engine.model.compute, unit=ComputeUnit())) for _ in range(3)]
            assert eventually(lambda streams=streams: all(map(done, streams)))
    finally:
        stop.set()
        for host in hosts:
            host.join(10)


def test_who_waits_sees_the_end_of_what_goes_on_alone(timed: Engine) -> None:
    host = Waiting(timed).helps()
    first, second = Job(0.03), Job(0.03)
    stream = submit(timed, first, second)
    assert eventually(lambda: done(stream))
    assert second.ended == "host"
    host.wake()
    host.join()


def test_who_leaves_before_the_end_hands_its_alarm_on(timed: Engine) -> None:
    host = Waiting(timed, 60).helps()
    stream = submit(timed, Job(0.02), Job(0.2))
    host.join()
    assert not done(stream)
    assert eventually(lambda: done(stream))


def test_who_is_thrown_out_of_its_wait_hands_its_alarm_on(timed: Engine) -> None:
    host = Waiting(timed).helps()
    stream = submit(timed, Job(0.02), Job(0.2), Job(0.01))
    ident = host.thread.ident
    assert ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(SystemExit))
    host.join()  # at the latest when the first deadline has come
    assert eventually(lambda: done(stream))


def test_of_several_that_wait_one_helps_and_all_are_woken(engine: Engine) -> None:
    first = Waiting(engine, name="first").helps()
    second = Waiting(engine, name="second")
    job = Job()
    stream = submit(engine, job)
    assert eventually(lambda: done(stream))
    for host in (first, second):
        host.wake()
        host.join()
    assert engine._helper is None


def test_a_device_that_stops_lets_the_helper_go(engine: Engine) -> None:
    host = Waiting(engine).helps()
    engine.stop()
    engine.wake_hosts(codes.SOCKET_CLOSE)
    host.join()


class Reporting:
    """A thread in `process_report`, subscribed to a stream."""

    def __init__(self, npu: Driver, acl: Any, milliseconds: int = 10_000) -> None:
        self.acl, self.process = acl, npu.emulator._process
        context, _ = acl.rt.get_context()
        self.stream, _ = acl.rt.create_stream()
        self.raised: list[BaseException] = []
        begin = threading.Event()

        def report() -> None:
            acl.rt.set_context(context)
            begin.wait(10)
            try:
                acl.rt.process_report(milliseconds)
            except BaseException as error:
                self.raised.append(error)

        self.thread = threading.Thread(target=report, name="report")
        self.thread.start()
        assert acl.rt.subscribe_report(self.thread.ident, self.stream) == 0
        begin.set()
        ident = self.thread.ident
        assert ident is not None
        self.ident = ident
        assert eventually(lambda: self.process.reports[ident].waiter is not None)
        self.engine: Engine = self.process.report_devices[ident].engine

    def hit(self) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(SystemExit))

    def end(self) -> None:
        self.acl.rt.launch_callback(lambda _: None, 0, 0, self.stream)
        self.thread.join(10)
        assert not self.thread.is_alive()
        assert self.acl.rt.unsubscribe_report(self.ident, self.stream) == 0


def test_a_program_that_wants_to_be_told_of_failures_is_told_on_a_thread_of_the_device(npu: Driver, acl: Any) -> None:
    reporting = Reporting(npu, acl)
    assert eventually(lambda: reporting.engine._helper is not None)
    told: list[str] = []
    assert acl.rt.set_exception_info_callback(lambda _: told.append(threading.current_thread().name)) == 0
    npu.emulator.faults.fail_task("copy", 507015)
    address, _ = npu.pinned(np.zeros(16, np.float32))
    device, _ = acl.rt.malloc(64, 0)
    stream, _ = acl.rt.create_stream()
    assert acl.rt.memcpy_async(device, 64, address, 64, 1, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 507015
    assert len(told) == 1
    assert told[0] != "report"
    assert reporting.engine._helper is None
    reporting.end()


def test_who_is_hit_while_it_waits_leaves_the_device_well(npu: Driver, acl: Any) -> None:
    reporting = Reporting(npu, acl)
    assert eventually(lambda: reporting.engine._helper is not None)
    reporting.hit()
    acl.rt.launch_callback(lambda _: None, 0, 0, reporting.stream)
    reporting.thread.join(10)
    assert isinstance(reporting.raised[0], SystemExit)
    stream, _ = acl.rt.create_stream()
    address, _ = npu.pinned(np.zeros(16, np.float32))
    device, _ = acl.rt.malloc(64, 0)
    assert acl.rt.memcpy_async(device, 64, address, 64, 1, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.rt.unsubscribe_report(reporting.ident, reporting.stream) == 0


def test_who_is_hit_in_the_middle_of_a_step_costs_the_device_and_nobody_waits_for_ever(
    npu: Driver, acl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporting = Reporting(npu, acl)
    assert eventually(lambda: reporting.engine._helper is not None)
    real, name = DeviceModel.advance, threading.current_thread

    def interrupted(model: DeviceModel, now: float) -> Work | None:
        if name().name == "report" and model.ready:
            model.ready.popleft()
            raise SystemExit
        return real(model, now)

    monkeypatch.setattr(DeviceModel, "advance", interrupted)
    stream, _ = acl.rt.create_stream()
    address, _ = npu.pinned(np.zeros(1 << 18, np.float32))
    device, _ = acl.rt.malloc(1 << 20, 0)
    assert acl.rt.memcpy_async(device, 1 << 20, address, 1 << 20, 1, stream) == 0
    assert acl.rt.synchronize_stream_with_timeout(stream, 5000) == codes.LOST_HEARTBEAT
    reporting.thread.join(10)
    assert isinstance(reporting.raised[0], SystemExit)


def test_the_main_thread_does_not_help(npu: Driver, acl: Any) -> None:
    stream, _ = acl.rt.create_stream()
    assert acl.rt.subscribe_report(threading.get_ident(), stream) == 0
    engine = npu.emulator._process.report_devices[threading.get_ident()].engine
    seen: list[object] = []

    def look() -> None:
        assert eventually(lambda: npu.emulator._process.reports[main].waiter is not None)
        time.sleep(0.02)
        seen.append(engine._helper)

    main = threading.get_ident()
    thread = threading.Thread(target=look)
    thread.start()
    assert acl.rt.process_report(300) == codes.REPORT_TIMEOUT
    thread.join(10)
    assert seen == [None]
    assert acl.rt.unsubscribe_report(main, stream) == 0


@pytest.mark.parametrize("others", [0, 1])
def test_who_waits_for_the_one_thing_to_come_wakes_up_early_to_be_there(others: int) -> None:
    engine = Engine("bench", clock=lambda: 100.0, timed=True)
    try:
        assert eventually(lambda: parked(engine))
        with engine.lock:
            engine.model.at(101.0, lambda: None)
            for _ in range(others):  # whoever advances the model has other things to do
                engine.model.at(102.0, lambda: None)
            waiter = engine.waiter()
            plan = engine._stand_ready(waiter, None, lambda: True)
            engine._step_back(waiter, 101.0)
        assert plan == (pytest.approx(1.0 - (0.0 if others else EARLY_S), abs=1e-9), 101.0)
    finally:
        engine.stop()
        assert engine.join(10)


def test_who_is_early_stays_awake_until_it_is_time() -> None:
    times = iter([1.0, 1.5, 2.0])
    assert not stay_awake(2.0, lambda: next(times), lambda: False)
    assert list(times) == []


def test_who_is_early_looks_up_when_called() -> None:
    asked: list[bool] = []

    def called() -> bool:
        asked.append(len(asked) == 2)
        return asked[-1]

    assert stay_awake(2.0, lambda: 1.0, called)
    assert asked == [False, False, True]


def test_a_thread_of_the_device_that_is_early_for_a_deadline_can_be_kicked_meanwhile(timed: Engine) -> None:
    assert eventually(lambda: parked(timed))
    for _ in range(200):
        first, second = Job(seconds=EARLY_S), Job()
        streams = [submit(timed, first)]  # whose end is so near that nobody sleeps
        streams.append(submit(timed, second))
        assert eventually(lambda streams=streams: all(done(stream) for stream in streams))
