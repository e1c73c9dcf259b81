"""Who holds the GIL: pyACL's functions by the table of the reference, the C library's never."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator, Profile, gil

from ..driver.reference import section
from .kit import Driver, ReportThread, doubler, slow


def test_the_table_of_released_functions_is_the_references() -> None:
    row = next(line for line in section(3).splitlines() if line.startswith("| **Released**"))
    listed = {f"acl.{name}" for name in re.findall(r"`([a-z]+\.[a-z_]+)`", row)}
    assert len(listed) == 9
    assert listed == gil.RELEASED


def test_calls_by_the_c_door_hold_nothing() -> None:
    elsewhere: list[bool] = []
    with gil.released():
        with gil.released():
            assert not gil.holds("acl.rt.destroy_stream")
        assert not gil.holds("acl.rt.destroy_stream")
        other = threading.Thread(target=lambda: elsewhere.append(gil.holds("acl.rt.destroy_stream")))
        other.start()
        other.join()
    assert elsewhere == [True]
    assert gil.holds("acl.rt.destroy_stream")
    assert not gil.holds("acl.rt.synchronize_stream")


class Ticker:
    """A thread that ticks every millisecond, when it may run."""

    def __init__(self) -> None:
        self.ticks: list[float] = []
        self._end = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end:
            self.ticks.append(time.perf_counter())
            time.sleep(0.001)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end = True
        self._thread.join()

    def watch(self, call: Callable[[], Any]) -> tuple[int, float]:
        """How often it ticks during `call`, and its longest silence then in seconds."""
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        inside = [tick for tick in self.ticks if start < tick < end]
        edges = [start, *inside, end]
        return len(inside), max(after - before for before, after in itertools.pairwise(edges))


TIME = 0.2


@pytest.fixture
def ticker() -> Iterator[Ticker]:
    with Ticker() as ticker:
        yield ticker


@pytest.fixture
def machine() -> Iterator[Callable[..., Driver]]:
    """Makes a device with a profile that holds the GIL."""
    made: list[Emulator] = []

    def make(**times: Any) -> Driver:
        made.append(Emulator(Config(memory=64 << 20, profile=Profile(hold_gil=True, **times))))
        made[-1].acl.init()
        return Driver(made[-1])

    yield make
    for one in made:
        one.shutdown()


Make = Callable[..., Driver]
Prepared = Callable[[], Any]


def run_on(npu: Driver) -> tuple[int, int, int]:
    """What `execute` takes."""
    x = np.ones((2, 3), np.float32)
    given, taken, _ = npu.bind([x], [x])
    return npu.load(doubler()), given, taken


def subscribed(npu: Driver) -> tuple[int, int]:
    stream = npu.stream()
    npu.ok(npu.rt.subscribe_report(threading.get_ident(), stream))
    return threading.get_ident(), stream


def memory(npu: Driver) -> tuple[int, int, int, int, int]:
    data = np.ones(1_000_000, np.uint8)
    npu.keep.append(data)
    return npu.device(data.nbytes), data.nbytes, data.ctypes.data, data.nbytes, 1


# what a call takes by itself, and how to come to make it
BY_THEMSELVES: dict[str, tuple[dict[str, float], Callable[[Driver], tuple[Any, ...]]]] = {
    "acl.rt.set_device": ({}, lambda npu: (0,)),
    "acl.rt.reset_device": ({}, lambda npu: (npu.rt.set_device(0),)),
    "acl.rt.create_context": ({}, lambda npu: (0,)),
    "acl.rt.destroy_context": ({}, lambda npu: (npu.ok(npu.rt.create_context(0)),)),
    "acl.rt.destroy_stream": ({}, lambda npu: (npu.stream(),)),
    "acl.rt.unsubscribe_report": ({}, subscribed),
    "acl.rt.malloc": ({"malloc_bandwidth": 1e6 / TIME}, lambda npu: (1_000_000, 0)),
    "acl.rt.malloc_host": ({"malloc_bandwidth": 1e6 / TIME}, lambda npu: (1_000_000,)),
    "acl.rt.free": ({}, lambda npu: (npu.device(64),)),
    "acl.rt.memcpy": ({"pageable": 1e6 / TIME}, memory),
    "acl.rt.record_event": ({"launch": TIME}, lambda npu: (npu.ok(npu.rt.create_event()), 0)),
    "acl.rt.launch_callback": ({"launch": TIME}, lambda npu: (id, None, 0, subscribed(npu)[1])),
    "acl.mdl.load_from_mem": ({"parse": TIME}, lambda npu: (npu.acl.util.bytes_to_ptr(doubler()), len(doubler()))),
    "acl.mdl.unload": ({}, lambda npu: (npu.load(doubler()),)),
    "acl.finalize": ({}, lambda npu: ()),
}


def function(npu: Driver, name: str) -> Any:
    found: Any = npu
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", BY_THEMSELVES)
def test_a_call_holds_the_gil_for_its_time_and_the_c_librarys_does_not(
    machine: Make, ticker: Ticker, name: str
) -> None:
    times, prepare = BY_THEMSELVES[name]
    npu = machine(**(times or {"calls": {name: TIME}}))
    arguments = prepare(npu)
    call = function(npu, name)
    _, silence = ticker.watch(lambda: npu.ok(call(*arguments)))
    # real loading lets the GIL go, the rest of the time does not
    assert silence >= (0.3 if name == "acl.mdl.load_from_mem" else 0.9) * TIME
    npu = machine(**(times or {"calls": {name: TIME}}))
    arguments = prepare(npu)
    call = function(npu, name)
    with gil.released():
        ticks, _ = ticker.watch(lambda: npu.ok(call(*arguments)))
    assert ticks >= 5


def queued(npu: Driver, runs: int) -> int:
    """A stream with runs that take `TIME` together."""
    stream, (model, given, taken) = npu.stream(), run_on(npu)
    for _ in range(runs):
        npu.ok(npu.mdl.execute_async(model, given, taken, stream))
    return stream


def recorded(npu: Driver) -> int:
    stream, event = queued(npu, 1), npu.ok(npu.rt.create_event())
    npu.ok(npu.rt.record_event(event, stream))
    return int(event)


# what waits for the device, and how to come to it
WAITS: dict[str, Callable[[Driver], tuple[Any, ...]]] = {
    "acl.rt.destroy_stream": lambda npu: (queued(npu, 1),),
    "acl.rt.destroy_context": lambda npu: (queued(npu, 1), npu.context)[1:],
    "acl.rt.reset_device": lambda npu: (queued(npu, 1), 0)[1:],
    "acl.rt.synchronize_device_with_timeout": lambda npu: (queued(npu, 1), 60_000)[1:],
    "acl.rt.memcpy_async": lambda npu: (*memory(npu), queued(npu, 1)),
    "acl.mdl.execute": run_on,
    "acl.mdl.execute_v2": lambda npu: (*run_on(npu), 0, npu.mdl.create_exec_config_handle()),
    "acl.rt.record_event": lambda npu: (npu.ok(npu.rt.create_event()), queued(npu, 1)),
}
RELEASED: dict[str, Callable[[Driver], tuple[Any, ...]]] = {
    "acl.rt.synchronize_stream": lambda npu: (queued(npu, 1),),
    "acl.rt.synchronize_stream_with_timeout": lambda npu: (queued(npu, 1), 60_000),
    "acl.rt.synchronize_device": lambda npu: (queued(npu, 1),),
    "acl.rt.synchronize_event": lambda npu: (recorded(npu),),
    "acl.rt.synchronize_event_with_timeout": lambda npu: (recorded(npu), 60_000),
    "acl.rt.process_report": lambda npu: (subscribed(npu), int(TIME * 1000))[1:],
    "acl.rt.stream_wait_event": lambda npu: (queued(npu, 1), npu.ok(npu.rt.create_event_with_flag(1))),
    "acl.util.start_thread": lambda npu: (id, None),
    "acl.util.stop_thread": lambda npu: (npu.ok(npu.acl.util.start_thread(time.sleep, TIME)),),
}


@pytest.fixture
def slow_device() -> Iterator[Callable[[str], Driver]]:
    """Makes a device whose runs take `TIME`."""
    made: list[Emulator] = []

    def make(function: str) -> Driver:
        # these two come upon a full stream
        depth = 1 if function in ("acl.rt.record_event", "acl.rt.stream_wait_event") else 100
        profile = Profile(hold_gil=True, compute_default=TIME, calls={"acl.util.start_thread": TIME})
        made.append(Emulator(Config(memory=64 << 20, stream_depth=depth, profile=profile)))
        made[-1].acl.init()
        return Driver(made[-1])

    yield make
    for one in made:
        one.shutdown()


@pytest.mark.parametrize("name", WAITS)
def test_a_call_that_waits_for_the_device_holds_the_gil_meanwhile(
    slow_device: Callable[[str], Driver], ticker: Ticker, name: str
) -> None:
    npu = slow_device(name)
    arguments = WAITS[name](npu)
    _, silence = ticker.watch(lambda: npu.ok(function(npu, name)(*arguments)))
    assert silence >= 0.6 * TIME  # what was queued had begun before
    npu = slow_device(name)
    arguments = WAITS[name](npu)
    with gil.released():
        ticks, _ = ticker.watch(lambda: npu.ok(function(npu, name)(*arguments)))
    assert ticks >= 5


def test_every_function_of_the_table_is_tried() -> None:
    assert set(RELEASED) == gil.RELEASED
    assert all(gil.holds(name) for name in {*BY_THEMSELVES, *WAITS})


@pytest.mark.parametrize("name", RELEASED)
def test_the_nine_release_the_gil(slow_device: Callable[[str], Driver], ticker: Ticker, name: str) -> None:
    npu = slow_device(name)
    arguments = RELEASED[name](npu)
    ticks, _ = ticker.watch(lambda: function(npu, name)(*arguments))
    assert ticks >= 5


def test_the_gil_is_kept_from_task_to_task(machine: Make, ticker: Ticker) -> None:
    npu = machine(copy_latency=TIME / 50)
    (target, view), stream = npu.pinned(np.ones(64, np.uint8)), npu.stream()
    address = npu.device(64)
    for _ in range(50):
        npu.ok(npu.rt.memcpy_async(address, 64, target, 64, 1, stream))
    _, silence = ticker.watch(lambda: npu.ok(npu.rt.destroy_stream(stream)))
    assert silence >= 0.5 * TIME
    assert view.all()


def test_real_compute_goes_on_while_the_gil_is_held(machine: Make) -> None:
    npu = machine(compute_default=0.05)
    model = npu.load(slow(100))
    x = np.ones((500, 500), np.float32)
    given, taken, (address,) = npu.bind([x], [x])
    npu.ok(npu.mdl.execute(model, given, taken))
    assert (npu.download(address, x) == x).all()


def test_a_limited_wait_for_a_callback_holds_the_gil_to_its_end(machine: Make, ticker: Ticker) -> None:
    npu = machine()
    report = ReportThread(npu)
    stream, ran = npu.stream(), list[int]()
    npu.ok(npu.rt.subscribe_report(report.ident, stream))
    npu.ok(npu.rt.launch_callback(ran.append, 1, 1, stream))
    report.start()
    results: list[int] = []
    _, silence = ticker.watch(lambda: results.append(npu.rt.synchronize_device_with_timeout(int(TIME * 1000))))
    # the callback was run before the call, or not at all meanwhile
    assert results == [0] or (results == [507046] and silence >= 0.9 * TIME)
    npu.ok(npu.rt.synchronize_stream(stream))
    assert ran == [1]
    report.close()


def test_a_time_for_a_function_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no function of the emulator is called acl\.rt\.mallok"):
        Emulator(Config(profile=Profile(calls={"acl.rt.mallok": 1.0})))
