"""Accesses without an order are told with both lines, however fast the machine was; what is in order is not."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator, Profile, Violation

from .kit import Driver, ReportThread, doubler

SIZE = 24
X = np.arange(6, dtype=np.float32).reshape(2, 3)
H2D, D2H = 1, 2
SOURCE = Path(__file__).read_text().splitlines()


@pytest.fixture
def start() -> Iterator[Callable[..., Rig]]:
    """Makes an emulator that notes races and goes on, unless told otherwise."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Rig:
            emulator = Emulator(Config(**{"devices": 2, "memory": 256 << 20, "races": True, **settings}))
            stack.callback(emulator.shutdown)
            emulator.acl.init()
            return Rig(emulator)

        yield make


@pytest.fixture
def rig(start: Callable[..., Rig]) -> Rig:
    return start()


class Rig(Driver):
    """A model between pinned memory and pinned memory, and three streams."""

    def __init__(self, emulator: Emulator) -> None:
        super().__init__(emulator)
        self.host_in, self.x = self.pinned(X)
        self.host_out, self.y = self.pinned(np.zeros_like(X))
        self.model = self.load(doubler())
        self.device_in, self.device_out = self.device(SIZE), self.device(SIZE)
        self.inputs, self.outputs = self.dataset((self.device_in, SIZE)), self.dataset((self.device_out, SIZE))
        self.h2d, self.compute, self.d2h = (self.stream() for _ in range(3))

    def event(self, make: str = "create_event_ex_with_flag") -> int:
        event: int = self.ok(getattr(self.rt, make)(*() if make == "create_event" else (9,)))
        return event

    def link(self, event: int, one: int, other: int) -> None:
        self.ok(self.rt.record_event(event, one))
        self.ok(self.rt.stream_wait_event(other, event))

    def copy_in(self, stream: int) -> int:
        code: int = self.rt.memcpy_async(self.device_in, SIZE, self.host_in, SIZE, H2D, stream)  # copies in
        return code

    def run_on(self, stream: int) -> int:
        code: int = self.mdl.execute_async(self.model, self.inputs, self.outputs, stream)  # runs
        return code

    def copy_out(self, stream: int) -> int:
        code: int = self.rt.memcpy_async(self.host_out, SIZE, self.device_out, SIZE, D2H, stream)  # copies out
        return code

    def found(self) -> list[Violation]:
        self.rt.synchronize_device()
        return list(self.emulator.report().violations)

    def rules(self) -> list[str]:
        return [violation.rule for violation in self.found()]


def told(violation: Violation, first: str, second: str) -> None:
    """Both lines are named, and these are pieces of them."""
    lines = [SOURCE[int(number) - 1] for number in re.findall(r"test_races\.py:(\d+)", violation.text)]
    assert first in lines[0], violation.text
    assert second in lines[1], violation.text


# -- each planted fault ---------------------------------------------------------------------------------------------


def test_the_three_stream_pipeline_is_in_order(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))
    rig.link(rig.event(), rig.h2d, rig.compute)
    rig.ok(rig.run_on(rig.compute))
    rig.link(rig.event(), rig.compute, rig.d2h)
    rig.ok(rig.copy_out(rig.d2h))
    rig.ok(rig.rt.synchronize_stream(rig.d2h))
    assert rig.acl.util.ptr_to_bytes(rig.host_out, SIZE) == (X + X).tobytes()
    assert rig.found() == []


def test_a_missing_wait(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))
    time.sleep(0.02)  # long done, and still nothing says so
    rig.ok(rig.run_on(rig.compute))
    (race,) = rig.found()
    assert race.rule == "race"
    told(race, "# copies in", "# runs")
    assert f"stream {rig.h2d:#x}'s write by acl.rt.memcpy_async" in race.text
    assert f"stream {rig.compute:#x}'s read by acl.mdl.execute_async" in race.text
    assert f"record an event on stream {rig.h2d:#x} after the first and let stream {rig.compute:#x} wait" in race.text


def test_a_wait_for_the_wrong_event(rig: Rig) -> None:
    right, wrong = rig.event(), rig.event()
    rig.ok(rig.rt.record_event(wrong, rig.d2h))
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.rt.record_event(right, rig.h2d))
    rig.ok(rig.rt.stream_wait_event(rig.compute, wrong))
    rig.ok(rig.run_on(rig.compute))
    (race,) = rig.found()
    told(race, "# copies in", "# runs")
    assert f"waits for event {wrong:#x}, but that was recorded on stream {rig.d2h:#x}" in race.text
    assert f"event {right:#x} was recorded on stream {rig.h2d:#x} after the first" in race.text


def test_a_record_before_the_copy(rig: Rig) -> None:
    event = rig.event()
    rig.link(event, rig.h2d, rig.compute)
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.run_on(rig.compute))
    (race,) = rig.found()
    told(race, "# copies in", "# runs")
    assert f"the record of event {event:#x}" in race.text
    assert "comes before the first" in race.text


def test_a_record_on_the_wrong_stream(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))
    rig.link(rig.event(), rig.compute, rig.compute)
    rig.ok(rig.run_on(rig.compute))
    assert rig.rules() == ["race"]


def test_a_wait_before_the_first_record_of_a_modern_event(rig: Rig) -> None:
    event = rig.event()
    rig.ok(rig.rt.stream_wait_event(rig.compute, event))
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.rt.record_event(event, rig.h2d))
    rig.ok(rig.run_on(rig.compute))
    (race,) = rig.found()
    told(race, "# copies in", "# runs")
    assert f"the wait for event {event:#x}" in race.text
    assert "does nothing, as that had no record then" in race.text


def test_the_next_run_overwrites_an_output_that_is_being_copied_out(rig: Rig) -> None:
    rig.ok(rig.run_on(rig.compute))
    rig.link(rig.event(), rig.compute, rig.d2h)
    rig.ok(rig.copy_out(rig.d2h))
    rig.ok(rig.run_on(rig.compute))
    (race,) = rig.found()
    told(race, "# copies out", "# runs")
    assert "read by acl.rt.memcpy_async" in race.text


def test_a_stage_buffer_that_is_filled_again_too_early(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))
    rig.x[...] = 7  # whether the copy was faster or not
    (changed,) = rig.found()
    assert changed.rule == "changed-while-queued"
    told(changed, "# copies in", "synchronize_device()")  # where the host could have known it first


def test_a_copy_that_went_wrong_is_told_although_nobody_waited_for_it(start: Callable[..., Rig]) -> None:
    rig = start(profile=Profile(copy_latency=0.4))
    for _ in range(2):
        rig.ok(rig.copy_in(rig.h2d))
    rig.x[...] = 7
    deadline = time.monotonic() + 10
    while not (found := rig.emulator.report().violations):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (changed,) = found
    assert "the host has not waited for it" in changed.text


def test_a_stage_buffer_is_free_when_an_event_says_so(rig: Rig) -> None:
    event = rig.event()
    for value in range(20):
        rig.x[...] = value
        rig.ok(rig.copy_in(rig.h2d))
        rig.ok(rig.rt.record_event(event, rig.h2d))
        while rig.ok(rig.rt.query_event_status(event)) != 1:
            time.sleep(0.001)
    assert rig.found() == []


def test_a_large_stage_buffer_that_is_filled_again_too_early(rig: Rig) -> None:
    frame = np.zeros((3, 1080, 1920), np.uint8)
    address, view = rig.pinned(frame)
    target = rig.device(frame.nbytes)
    rig.ok(rig.rt.memcpy_async(target, frame.nbytes, address, frame.nbytes, H2D, rig.h2d))
    view[:, 400:600, 100:1000] = 9
    assert rig.rules() == ["changed-while-queued"]


def test_an_input_that_is_overwritten_while_it_is_queued(start: Callable[..., Rig]) -> None:
    rig = start(profile=Profile(copy_latency=0.4))
    other = rig.device(SIZE)
    rig.ok(rig.rt.memcpy_async(other, SIZE, rig.host_out, SIZE, H2D, rig.h2d))
    rig.ok(rig.copy_in(rig.h2d))  # waits behind the other
    rig.x[...] = 7
    (changed,) = rig.found()
    assert changed.rule == "changed-while-queued"
    told(changed, "# copies in", "synchronize_device()")
    assert "before it was" in changed.text


def test_an_output_that_is_read_before_its_copy(start: Callable[..., Rig]) -> None:
    rig = start(profile=Profile(copy_latency=0.4))
    rig.ok(rig.rt.memcpy_async(rig.device(SIZE), SIZE, rig.host_in, SIZE, H2D, rig.d2h))
    rig.ok(rig.run_on(rig.d2h))
    rig.ok(rig.copy_out(rig.d2h))
    assert np.isnan(rig.y).all()  # the host's own read: nobody sees it, but it sees this
    rig.acl.util.ptr_to_bytes(rig.host_out, SIZE)  # reads too early
    (race,) = rig.found()
    told(race, "# copies out", "# reads too early")
    assert "the host's read by acl.util.ptr_to_bytes" in race.text
    assert (rig.y == X + X).all() or (rig.y == 0).all()


def test_memory_that_is_freed_after_work_that_nobody_waited_for(rig: Rig) -> None:
    spare = rig.device(SIZE)
    rig.ok(rig.rt.memset_async(spare, SIZE, 0, SIZE, rig.h2d))
    time.sleep(0.02)
    rig.ok(rig.rt.free(spare))  # frees
    (race,) = rig.found()
    told(race, "memset_async", "# frees")
    assert "the host's free by acl.rt.free" in race.text


def test_two_threads_with_a_stream_each(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))

    def other() -> None:
        rig.ok(rig.rt.set_context(rig.context))
        rig.ok(rig.run_on(rig.compute))

    thread = threading.Thread(target=other)  # begins long after the copy was submitted, which is no order on a device
    thread.start()
    thread.join()
    (race,) = rig.found()
    told(race, "# copies in", "# runs")


def test_what_one_thread_has_waited_for_counts_for_all(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))

    def waits() -> None:
        rig.ok(rig.rt.set_context(rig.context))
        rig.ok(rig.rt.synchronize_stream(rig.h2d))

    thread = threading.Thread(target=waits)
    thread.start()
    thread.join()
    rig.ok(rig.run_on(rig.compute))
    assert rig.found() == []


def test_both_partners_of_an_access_are_told(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.copy_out(rig.d2h))
    rig.ok(rig.run_on(rig.compute))
    races = rig.found()
    assert len(races) == 2
    assert {violation.where for violation in races} == {races[0].where}
    assert {"# copies in" in SOURCE[int(re.findall(r"py:(\d+)", one.text)[0]) - 1] for one in races} == {True, False}


def test_memory_that_is_freed_while_it_is_queued_names_what_needs_it(start: Callable[..., Rig]) -> None:
    """Whether the copy was still queued decides the rule, and not what is told."""
    for free, place in (("free", "device_in"), ("free_host", "host_in")):
        rig = start(strict=True)
        gate = rig.ok(rig.rt.create_event_with_flag(1))
        rig.ok(rig.rt.stream_wait_event(rig.h2d, gate))
        rig.ok(rig.copy_in(rig.h2d))
        assert getattr(rig.rt, free)(getattr(rig, place)) == 107000  # frees
        rig.ok(rig.rt.record_event(gate, rig.d2h))
        (found,) = rig.found()
        assert found.rule == "free-in-use"
        assert "# frees" in SOURCE[int(re.findall(r"test_races\.py:(\d+)", found.where)[0]) - 1]
        assert "# copies in" in SOURCE[int(re.findall(r"test_races\.py:(\d+)", found.text)[0]) - 1]
        assert "let the host wait first until stream" in found.text


# -- in strict mode -------------------------------------------------------------------------------------------------


def test_strict_mode_refuses_what_would_race(start: Callable[..., Rig]) -> None:
    rig = start(strict=True, races=None)
    rig.ok(rig.copy_in(rig.h2d))
    assert rig.run_on(rig.compute) == 107000
    assert "record an event" in rig.acl.get_recent_err_msg()
    assert rig.rt.free(rig.device_in) == 107000
    assert rig.rt.memset(rig.device_in, SIZE, 0, SIZE) == 107000
    assert rig.rt.memcpy(rig.device_in, SIZE, rig.host_out, SIZE, H2D) == 107000
    rig.link(rig.event(), rig.h2d, rig.compute)
    rig.ok(rig.run_on(rig.compute))  # with the edge it goes
    rig.ok(rig.rt.synchronize_stream(rig.compute))
    rig.ok(rig.rt.free(rig.device_in))
    rules = rig.rules()
    assert rules[0] == "race"
    assert rules[1] in ("race", "free-in-use")  # whether the copy was still queued
    assert rules[2:] == ["race"] * 2


def test_races_are_looked_for_in_strict_mode_unless_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Config(strict=True).finds_races
    assert not Config().finds_races
    assert not Config(strict=True, races=False).finds_races
    monkeypatch.setenv("AIOASCEND_EMULATOR_RACES", "1")
    assert Config.from_env().finds_races
    monkeypatch.setenv("AIOASCEND_EMULATOR_RACES", "0")
    assert not Config.from_env(strict=True).finds_races


def test_nobody_listens_when_races_are_not_looked_for(start: Callable[..., Rig]) -> None:
    rig = start(races=False)
    assert rig.emulator.host_access is None
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.run_on(rig.compute))
    assert rig.found() == []


# -- what puts in order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["create_event", "create_event_with_flag", "create_event_ex_with_flag"])
def test_events_of_every_flavour_put_in_order(rig: Rig, make: str) -> None:
    event = rig.event(make)
    for _ in range(5):
        rig.ok(rig.copy_in(rig.h2d))
        rig.link(event, rig.h2d, rig.compute)
        if "ex" not in make:
            rig.ok(rig.rt.reset_event(event, rig.compute))
        rig.ok(rig.run_on(rig.compute))
        rig.ok(rig.rt.synchronize_stream(rig.compute))
    assert rig.found() == []


def test_a_legacy_event_that_is_not_reset_orders_once(rig: Rig) -> None:
    event = rig.event("create_event_with_flag")
    for _ in range(2):
        rig.ok(rig.copy_in(rig.h2d))
        rig.link(event, rig.h2d, rig.compute)
        rig.ok(rig.run_on(rig.compute))
        rig.ok(rig.rt.synchronize_stream(rig.compute))
    assert rig.rules() == ["race"]


def test_an_event_that_is_recorded_again_leaves_earlier_waits_alone(rig: Rig) -> None:
    event = rig.event()
    rig.ok(rig.copy_in(rig.h2d))
    rig.link(event, rig.h2d, rig.compute)
    rig.ok(rig.rt.record_event(event, rig.d2h))
    rig.ok(rig.run_on(rig.compute))
    assert rig.found() == []


LEARNING = ["synchronize_event", "query_event_status", "event_elapsed_time"]
OLDER = [*LEARNING, "query_event", "query_event_wait_status"]


@pytest.mark.parametrize(
    "make, learn",
    [
        *[("create_event", learn) for learn in OLDER],
        *[("create_event_with_flag", learn) for learn in OLDER],
        *[("create_event_ex_with_flag", learn) for learn in LEARNING],
    ],
)
def test_the_host_learns_from_events(rig: Rig, make: str, learn: str) -> None:
    event = rig.event(make)
    rig.ok(rig.copy_in(rig.h2d))
    rig.link(event, rig.h2d, rig.d2h)
    deadline = time.monotonic() + 10

    def until(done: Callable[[], bool]) -> None:
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    if learn == "synchronize_event":
        rig.ok(rig.rt.synchronize_event(event))
    elif learn == "event_elapsed_time":
        until(lambda: rig.rt.event_elapsed_time(event, event)[1] == 0)
    else:
        done = 1 if learn == "query_event_status" else 0
        until(lambda: rig.ok(getattr(rig.rt, learn)(event)) == done)
    rig.ok(rig.run_on(rig.compute))
    assert rig.found() == []


@pytest.mark.parametrize("learn", ["synchronize_stream", "stream_query", "synchronize_device", "destroy_stream"])
def test_the_host_learns_from_streams(rig: Rig, learn: str) -> None:
    rig.ok(rig.copy_in(rig.h2d))
    if learn == "stream_query":
        while rig.ok(rig.rt.stream_query(rig.h2d)):
            time.sleep(0.001)
    else:
        rig.ok(getattr(rig.rt, learn)(*() if learn == "synchronize_device" else (rig.h2d,)))
    rig.ok(rig.run_on(rig.compute))
    assert rig.found() == []


def test_asking_a_stream_that_is_not_done_teaches_nothing(start: Callable[..., Rig]) -> None:
    rig = start()
    release = rig.hold(rig.h2d)
    rig.ok(rig.copy_in(rig.h2d))
    assert rig.ok(rig.rt.stream_query(rig.h2d)) == 1
    rig.ok(rig.run_on(rig.compute))
    release()
    assert rig.rules() == ["race"]


def test_a_synchronous_run_comes_after_what_the_host_knows_only(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.mdl.execute(rig.model, rig.inputs, rig.outputs))
    assert rig.rules() == ["race"]
    rig.ok(rig.mdl.execute(rig.model, rig.inputs, rig.outputs))
    rig.ok(rig.copy_out(rig.d2h))
    assert rig.rules() == ["race"]


def test_the_default_stream_is_in_no_order_with_others(rig: Rig) -> None:
    rig.ok(rig.copy_in(0))
    rig.ok(rig.run_on(rig.compute))
    (race,) = rig.found()
    assert "the default stream's write" in race.text


# -- callbacks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def reports(rig: Rig) -> Iterator[ReportThread]:
    thread = ReportThread(rig)
    rig.ok(rig.rt.subscribe_report(thread.ident, rig.d2h))
    thread.start()
    yield thread
    rig.rt.synchronize_stream(rig.d2h)
    rig.ok(rig.rt.unsubscribe_report(thread.ident, rig.d2h))
    thread.close()


def test_a_callback_tells_the_host(rig: Rig, reports: ReportThread) -> None:
    called = threading.Event()
    rig.ok(rig.copy_in(rig.d2h))
    rig.ok(rig.run_on(rig.d2h))
    rig.ok(rig.copy_out(rig.d2h))
    rig.ok(rig.rt.launch_callback(lambda data: called.set(), None, 0, rig.d2h))
    assert called.wait(10)
    assert rig.acl.util.ptr_to_bytes(rig.host_out, SIZE) == (X + X).tobytes()
    assert rig.found() == []


def test_a_callback_that_holds_its_stream_may_fill_what_the_stream_copies_next(rig: Rig, reports: ReportThread) -> None:
    def fill(data: object) -> None:
        rig.emulator.host_access(rig.host_in, SIZE, True)
        rig.x[...] = 5

    rig.ok(rig.rt.launch_callback(fill, None, 1, rig.d2h))
    rig.ok(rig.copy_in(rig.d2h))
    rig.ok(rig.run_on(rig.d2h))
    rig.ok(rig.copy_out(rig.d2h))
    rig.ok(rig.rt.synchronize_stream(rig.d2h))
    assert rig.found() == []
    assert (rig.y == 10).all()


def test_a_callback_that_does_not_hold_its_stream_may_not(rig: Rig, reports: ReportThread) -> None:
    filled = threading.Event()
    gate = threading.Event()

    def fill(data: object) -> None:
        gate.wait(10)
        rig.emulator.host_access(rig.host_in, SIZE, True)  # announces
        filled.set()

    rig.ok(rig.rt.launch_callback(fill, None, 0, rig.d2h))
    rig.ok(rig.copy_in(rig.d2h))
    gate.set()
    assert filled.wait(10)
    (race,) = rig.found()
    told(race, "# copies in", "# announces")


# -- which bytes ----------------------------------------------------------------------------------------------------


def test_parts_of_one_block_are_apart(rig: Rig) -> None:
    block = rig.device(4096)
    rig.ok(rig.rt.memset_async(block, 100, 0, 100, rig.h2d))
    rig.ok(rig.rt.memset_async(block + 100, 100, 0, 100, rig.d2h))
    assert rig.found() == []
    rig.ok(rig.rt.memset_async(block + 300, 100, 0, 100, rig.h2d))
    rig.ok(rig.rt.memset_async(block + 399, 100, 0, 100, rig.d2h))
    (race,) = rig.found()
    assert f"(1 bytes at {block + 399:#x}" in race.text


def test_readers_need_no_order(rig: Rig) -> None:
    for stream in (rig.h2d, rig.compute, rig.d2h):
        rig.ok(rig.rt.memcpy_async(rig.device(SIZE), SIZE, rig.host_in, SIZE, H2D, stream))
        rig.ok(rig.rt.memcpy_async(rig.device(SIZE), SIZE, rig.device_in, SIZE, 3, stream))
    assert rig.found() == []


def test_memory_that_is_allocated_again_has_no_past(start: Callable[..., Rig]) -> None:
    rig = start(strict=True)
    starts = set()
    for stream in (rig.h2d, rig.d2h, rig.compute, rig.h2d):
        address = rig.device(SIZE)
        starts.add(address)
        rig.ok(rig.rt.memset_async(address, SIZE, 1, SIZE, stream))
        rig.ok(rig.rt.synchronize_stream(stream))
        rig.ok(rig.rt.free(address))
    assert len(starts) == 1
    assert rig.found() == []


def test_operators_read_and_write(rig: Rig) -> None:
    floats = rig.acl.create_tensor_desc(0, [6], 2)
    source, target = (rig.acl.create_data_buffer(one, SIZE) for one in (rig.device_in, rig.device_out))
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.acl.op.cast(floats, source, floats, target, 0, rig.compute))
    rig.ok(rig.copy_out(rig.d2h))
    assert [violation.call for violation in rig.found()] == ["acl.op.execute", "acl.rt.memcpy_async"]


def test_a_gear_is_not_chosen_while_a_run_reads_the_last_one(start: Callable[..., Rig]) -> None:
    rig = start()
    model = rig.load(rig.emulator.compile(doubler(("n", 3)), gears={"batch": [1, 2]}))
    gear = rig.device(64)
    inputs, outputs = rig.dataset((rig.device_in, SIZE), (gear, 64)), rig.dataset((rig.device_out, SIZE))
    for batch in (1, 2):
        rig.mdl.set_dynamic_batch_size(model, inputs, 1, batch)
        rig.mdl.execute_async(model, inputs, outputs, rig.compute)
    assert "race" in rig.rules()


# -- ends of things -------------------------------------------------------------------------------------------------


def test_work_of_an_aborted_stream_never_happened(start: Callable[..., Rig]) -> None:
    rig = start(profile=Profile(copy_latency=0.4), soc_name="Ascend910B4")
    rig.ok(rig.rt.memcpy_async(rig.device(SIZE), SIZE, rig.host_out, SIZE, H2D, rig.h2d))
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.rt.stream_abort(rig.h2d))
    rig.x[...] = 3
    rig.ok(rig.run_on(rig.compute))
    assert rig.found() == []


def test_nothing_runs_on_a_lost_device(rig: Rig) -> None:
    rig.ok(rig.copy_in(rig.h2d))
    rig.emulator.faults.lose_device(0)
    rig.rt.free(rig.device_in)
    rig.rt.free_host(rig.host_in)
    assert [rule for rule in rig.rules() if rule in ("race", "changed-while-queued")] == []


def test_a_reset_device_begins_anew(start: Callable[..., Rig]) -> None:
    rig = start()
    rig.ok(rig.copy_in(rig.h2d))
    rig.ok(rig.rt.destroy_context(rig.context))
    rig.rt.free(rig.device_in)
    rig.ok(rig.rt.free_host(rig.host_in))
    assert "race" not in [violation.rule for violation in rig.emulator.report().violations]
