"""Runs of a model that take less than waking a thread does: one thread goes from one to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aioascend.emulator import codes
from aioascend.emulator.device_model import ComputeUnit, Work
from aioascend.emulator.engine import Engine
from aioascend.emulator.streams import Event, Fault, Marker, Stream
from aioascend.emulator.tasks import Record, Wait


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether `condition` comes to hold."""
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.001)
    return condition()


class Clock:
    """A device's clock that goes on only where a run says so."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


class Run(Work):
    """A run that notes itself and the thread that does it, and takes `seconds` of the device's clock."""

    __slots__ = ("bench", "fault", "name", "seconds")

    def __init__(self, bench: Bench, name: str, seconds: float = 0.0, unit: ComputeUnit | None = None) -> None:
        super().__init__(unit is None, bench.engine.model.compute if unit is not None else None, unit)
        self.bench, self.name, self.seconds = bench, name, seconds
        self.fault: Fault | None = None

    def run(self) -> Fault | None:
        self.bench.ran.append((self.name, threading.current_thread().name))
        self.bench.clock.now += self.seconds
        return self.fault


class Bench:
    """An engine, and streams that are held until `let_go`."""

    def __init__(self, lanes: int = 1) -> None:
        self.clock = Clock()
        self.engine = Engine("bench", lanes, self.clock)
        self.ran: list[tuple[str, str]] = []
        self.unit = ComputeUnit()
        self.unit.brief = True
        self._event, self._marker = Event(), Marker()

    def held_stream(self) -> Stream:
        stream = Stream()
        self.engine.submit(stream, Wait(self._event, self._marker), "test")
        return stream

    def submit(self, stream: Stream, *tasks: Any) -> None:
        for task in tasks:
            self.engine.submit(stream, task, "test")

    def let_go(self, *streams: Stream) -> None:
        self.submit(Stream(), Record(self._event, self._marker))
        assert eventually(lambda: all(stream.completed == stream.submitted for stream in streams))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.engine.stop()
    assert made.engine.join(10)


def test_brief_runs_of_one_model_are_done_by_one_thread(bench: Bench) -> None:
    stream = bench.held_stream()
    bench.submit(stream, *[Run(bench, str(number), unit=bench.unit) for number in range(40)])
    bench.let_go(stream)
    assert [name for name, _ in bench.ran] == [str(number) for number in range(40)]
    assert len({thread for _, thread in bench.ran}) == 1


def test_other_streams_have_their_turn_between_brief_runs(bench: Bench) -> None:
    long, other = bench.held_stream(), bench.held_stream()
    bench.submit(long, *[Run(bench, "run", 400e-6, bench.unit) for _ in range(100)])
    bench.submit(other, Run(bench, "other"))
    bench.let_go(long, other)
    names = [name for name, _ in bench.ran]
    assert names.index("other") <= 3
    assert names.count("run") == 100


def test_a_brief_run_that_fails_fails_its_stream_and_the_next_one_runs(bench: Bench) -> None:
    stream, told = bench.held_stream(), []
    first, second = Run(bench, "first", unit=bench.unit), Run(bench, "second", unit=bench.unit)
    first.fault = Fault(codes.MODEL_EXECUTE, "it failed")

    def tell(work: Work, fault: Fault) -> None:
        # what the program does there may wait for another stream: another thread has to be free for it
        one = Stream()
        bench.submit(one, Run(bench, "within"))
        told.append((work, fault, eventually(lambda: one.completed == 1)))

    bench.engine.on_fault = tell
    bench.submit(stream, first, second)
    bench.let_go(stream)
    assert told == [(first, first.fault, True)]
    assert stream.take_fault() is first.fault
    assert [name for name, _ in bench.ran] == ["first", "within", "second"]


def test_whether_runs_are_brief_is_measured_again_and_again(bench: Bench) -> None:
    class Busy(Run):
        __slots__ = ()

        def run(self) -> Fault | None:
            total = 0
            for number in range(20_000):
                total += number
            return super().run()

    stream = bench.held_stream()
    bench.submit(stream, *[Busy(bench, "busy", unit=bench.unit) for _ in range(20)])
    bench.let_go(stream)
    assert not bench.unit.brief


def test_a_model_whose_runs_do_nothing_is_found_to_be_brief(bench: Bench) -> None:
    bench.unit.brief = False
    stream = bench.held_stream()
    bench.submit(stream, *[Run(bench, "idle", unit=bench.unit) for _ in range(200)])
    bench.let_go(stream)
    assert bench.unit.brief


def test_runs_that_may_go_on_at_once_do() -> None:
    bench = Bench(lanes=2)
    both = threading.Barrier(2, timeout=30)

    class Meeting(Run):
        __slots__ = ()

        def run(self) -> Fault | None:
            both.wait()
            return super().run()

    units = [ComputeUnit(), ComputeUnit()]
    streams = [bench.held_stream(), bench.held_stream()]
    for stream, unit in zip(streams, units, strict=True):
        unit.brief = True
        bench.submit(stream, Meeting(bench, "meeting", unit=unit))
    bench.let_go(*streams)
    assert len(bench.ran) == 2
    bench.engine.stop()
    assert bench.engine.join(10)
