"""Time profiles: lanes with clocks of their own, absolute deadlines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator, Profile
from aioascend.emulator.device_model import ComputeUnit, DeviceModel, Lane, Work
from aioascend.emulator.streams import Event, Marker, Stream
from aioascend.emulator.tasks import Record, Wait

from .kit import Driver, doubler


class Timed(Work):
    """Work that takes so many seconds by the profile, more when its lane did something else before."""

    __slots__ = ("seconds", "switch")

    def __init__(self, seconds: float, lane: Lane | None = None, unit: ComputeUnit | None = None) -> None:
        super().__init__(lane=lane, unit=unit)
        self.seconds = seconds
        self.switch = 0.0

    def duration(self, last: ComputeUnit | None) -> float:
        return self.seconds + (self.switch if last is not None and last is not self.unit else 0.0)


class Simulation:
    """Drives a timed model by jumping from deadline to deadline; work itself takes no time."""

    def __init__(self, lanes: int = 1) -> None:
        self.now = 0.0
        self.model = DeviceModel(lambda: self.now, lanes, timed=True)

    def submit(self, stream: Stream, *tasks: Any) -> None:
        for task in tasks:
            self.model.submit(stream, task)

    def settle(self, late: float = 0.0) -> None:
        """Run until nothing is left to do, every wake-up `late` by so much."""
        while True:
            while (work := self.model.advance(self.now)) is not None:
                self.model.finish(work, None, self.now)
            deadline = self.model.next_deadline()
            if deadline is None:
                return
            self.now = max(self.now, deadline) + late

    def marker(self, stream: Stream) -> Marker:
        event, marker = Event(), Marker()
        self.submit(stream, Record(event, marker))
        return marker


def test_work_ends_at_its_deadline() -> None:
    simulation, stream = Simulation(), Stream()
    simulation.submit(stream, Timed(2.0))
    end = simulation.marker(stream)
    simulation.settle()
    assert end.time == pytest.approx(2.0)


def test_late_wake_ups_do_not_add_up() -> None:
    simulation, stream = Simulation(), Stream()
    simulation.submit(stream, *[Timed(1.0, simulation.model.compute, ComputeUnit()) for _ in range(100)])
    end = simulation.marker(stream)
    simulation.settle(late=0.3)
    assert end.time == pytest.approx(100.0)


def test_one_lane_serves_its_streams_one_after_the_other() -> None:
    simulation = Simulation()
    ends = []
    for _ in range(3):
        stream = Stream()
        simulation.submit(stream, Timed(1.0, simulation.model.compute, ComputeUnit()))
        ends.append(simulation.marker(stream))
    simulation.settle(late=0.01)
    assert [end.time for end in ends] == pytest.approx([1.0, 2.0, 3.0])


def test_two_lanes_serve_two_streams_at_once() -> None:
    simulation = Simulation(lanes=2)
    ends = []
    for _ in range(4):
        stream = Stream()
        simulation.submit(stream, Timed(1.0, simulation.model.compute, ComputeUnit()))
        ends.append(simulation.marker(stream))
    simulation.settle()
    assert [end.time for end in ends] == pytest.approx([1.0, 1.0, 2.0, 2.0])


def test_copying_in_computing_and_copying_out_overlap() -> None:
    simulation = Simulation()
    model = simulation.model
    copy_in, compute, copy_out = Stream(), Stream(), Stream()
    unit = ComputeUnit()
    for _ in range(10):
        simulation.submit(copy_in, Timed(1.0, model.copies["h2d"]))
        up, event = simulation.marker(copy_in), Event()
        simulation.submit(compute, Wait(event, up), Timed(2.0, model.compute, unit))
        ran = simulation.marker(compute)
        simulation.submit(copy_out, Wait(event, ran), Timed(1.0, model.copies["d2h"]))
    end = simulation.marker(copy_out)
    simulation.settle(late=0.1)
    assert end.time == pytest.approx(1 + 10 * 2 + 1)


def test_switching_models_costs_extra() -> None:
    simulation, stream = Simulation(), Stream()
    first, second = ComputeUnit(), ComputeUnit()
    for unit in (first, first, second, second, first):
        task = Timed(1.0, simulation.model.compute, unit)
        task.switch = 0.5
        simulation.submit(stream, task)
    end = simulation.marker(stream)
    simulation.settle()
    assert end.time == pytest.approx(5 + 2 * 0.5)


def test_a_stream_that_was_idle_starts_when_it_gets_work() -> None:
    simulation, stream = Simulation(), Stream()
    simulation.now = 7.0
    simulation.submit(stream, Timed(1.0))
    end = simulation.marker(stream)
    simulation.settle()
    assert end.time == pytest.approx(8.0)


def test_dropped_work_leaves_its_lane_when_it_ends() -> None:
    simulation, stream = Simulation(), Stream()
    lane = simulation.model.compute
    simulation.submit(stream, Timed(1.0, lane, ComputeUnit()), Timed(1.0, lane, ComputeUnit()))
    work = simulation.model.advance(0.0)
    assert work is not None
    simulation.model.finish(work, None, 0.0)
    simulation.model.drop(stream, 107023)
    assert lane.active == 1
    simulation.settle()
    assert lane.active == 0


PROFILE = Profile(
    pinned=1e9,
    pageable=2e8,
    on_device=1e10,
    copy_latency=1e-3,
    compute={"kit": 0.02},
    launch=1e-4,
    malloc=1e-3,
    parse=0.02,
    load_bandwidth=1e9,
)


@pytest.fixture
def npu() -> Iterator[Driver]:
    emulator = Emulator(Config(memory=64 << 20, profile=PROFILE))
    emulator.acl.init()
    yield Driver(emulator)
    emulator.shutdown()


def elapsed(npu: Driver, action: Any) -> float:
    """Device seconds between two events around what `action` puts on a stream."""
    stream = npu.stream()
    start, end = (npu.ok(npu.rt.create_event_ex_with_flag(9)) for _ in range(2))
    npu.ok(npu.rt.record_event(start, stream))
    action(stream)
    npu.ok(npu.rt.record_event(end, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    milliseconds: float = npu.ok(npu.rt.event_elapsed_time(start, end))
    return milliseconds / 1e3


def quickest(npu: Driver, action: Any) -> float:
    """The least of three: what is more than the profile's time is the machine's."""
    return min(elapsed(npu, action) for _ in range(3))


def test_a_run_takes_the_time_of_its_model(npu: Driver) -> None:
    loaded = npu.load(doubler())
    x = np.ones((2, 3), np.float32)
    given, taken, (address,) = npu.bind([x], [x])

    def runs(stream: int) -> None:
        for _ in range(5):
            npu.ok(npu.mdl.execute_async(loaded, given, taken, stream))

    assert 0.099 < quickest(npu, runs) < 0.2
    assert (npu.download(address, x) == 2).all()


def test_a_pinned_copy_takes_latency_and_bandwidth(npu: Driver) -> None:
    source, view = npu.pinned(np.ones(20_000_000, np.uint8))
    target = npu.device(view.nbytes)
    seconds = quickest(npu, lambda s: npu.ok(npu.rt.memcpy_async(target, view.nbytes, source, view.nbytes, 1, s)))
    assert 0.0209 < seconds < 0.2


def test_calls_take_their_time_on_the_host(npu: Driver) -> None:
    start = time.perf_counter()
    npu.load(doubler())
    assert time.perf_counter() - start >= 0.02
    start = time.perf_counter()
    for _ in range(5):
        npu.device(64)
    assert time.perf_counter() - start >= 0.005
    data = np.ones(4_000_000, np.uint8)
    target = npu.device(data.nbytes)
    start = time.perf_counter()
    npu.ok(npu.rt.memcpy(target, data.nbytes, data.ctypes.data, data.nbytes, 1))
    assert time.perf_counter() - start >= 0.02


def test_a_profile_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('name = "310P"\npinned = 1e10\nlaunch = 5e-6\n[compute]\nresnet = 1e-3\n"yolo*" = 5e-3\n')
    profile = Profile.from_file(str(path))
    assert (profile.name, profile.run("resnet"), profile.run("yolov8"), profile.run("x")) == ("310P", 1e-3, 5e-3, 0.0)
    path.write_text("bandwith = 1")
    with pytest.raises(ValueError, match=r"bandwith.*there are.*pinned"):
        Profile.from_file(str(path))
    path.write_text("= 1")
    with pytest.raises(ValueError, match=r"p\.toml"):
        Profile.from_file(str(path))
    with pytest.raises(ValueError, match="negative"):
        Profile(launch=-1)


@pytest.mark.parametrize(
    "text, message",
    [
        ('compute_default = "x"', "compute_default must be a number, 'x'"),
        ("compute = 3", "compute must be a table"),
        ('compute = { a = "1" }', r"compute\.a must be a number"),
        ("[compute]\nyolo.v5 = 1e-3", r"compute\.yolo is a table.*quoted"),
        ("name = 4", "name must be a text"),
        ("hold_gil = 1", "hold_gil must be true or false"),
        ("launch = true", "launch must be a number"),
        ("malloc = nan", "malloc must be finite"),
        ("pinned = [1]", "pinned must be a number"),
    ],
)
def test_a_wrong_type_in_a_profile_is_told_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"p\.toml: {message}"):
        Profile.from_file(str(path))


def test_every_submission_takes_its_time_on_the_host() -> None:
    emulator = Emulator(Config(memory=64 << 20, profile=Profile(launch=2e-3)))
    emulator.acl.init()
    npu = Driver(emulator)
    rt, op = npu.rt, npu.acl.op
    stream, address = npu.stream(), npu.device(64)
    event, legacy = npu.ok(rt.create_event_ex_with_flag(1)), npu.ok(rt.create_event_with_flag(1))
    buffer, shape = npu.acl.create_data_buffer(address, 64), npu.acl.create_tensor_desc(0, [16], 2)
    npu.ok(rt.subscribe_report(threading.get_ident(), stream))
    operands = ("Add", [shape, shape], [buffer, buffer], [shape], [buffer], op.create_attr(), stream)
    submissions: tuple[Callable[[], Any], ...] = (
        lambda: rt.memset_async(address, 64, 0, 64, stream),
        lambda: rt.record_event(event, stream),
        lambda: rt.stream_wait_event(stream, event),
        lambda: rt.record_event(legacy, stream),
        lambda: rt.reset_event(legacy, stream),
        lambda: op.execute(*operands),
        lambda: op.execute_v2(*operands),
        lambda: rt.launch_callback(id, None, 0, stream),
    )
    for submit in submissions:
        start = time.perf_counter()
        npu.ok(submit())
        assert time.perf_counter() - start >= 2e-3
    npu.ok(rt.process_report(1000))
    npu.ok(rt.synchronize_stream(stream))
    emulator.shutdown()


@pytest.mark.skipif(not Path("/proc/self/timerslack_ns").exists(), reason="no /proc/<thread>/timerslack_ns here")
@pytest.mark.parametrize("profile, slack", [(Profile(compute_default=0.001), "1"), (None, None)])
def test_the_threads_of_a_device_with_a_time_profile_do_not_oversleep(
    profile: Profile | None, slack: str | None
) -> None:
    slack = slack or Path("/proc/self/timerslack_ns").read_text().strip()  # what others have
    emulator = Emulator(Config(profile=profile))
    try:
        emulator.acl.init()
        npu = Driver(emulator)
        npu.ok(npu.rt.synchronize_stream(npu.stream()))
        ids = [thread.native_id for thread in emulator.threads]
        assert ids
        found = lambda: {Path(f"/proc/{one}/timerslack_ns").read_text().strip() for one in ids}  # noqa: E731
        end = time.monotonic() + 5
        while found() != {slack} and time.monotonic() < end:  # they may not have come so far
            time.sleep(0.001)
        assert found() == {slack}
    finally:
        emulator.shutdown()
