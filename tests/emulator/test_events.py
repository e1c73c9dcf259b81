"""Events: each flavour by its own rules (pyACL reference §7)."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver

SYNC, PROGRESS, TIME_LINE = 1, 2, 8


def plain(npu: Driver) -> int:
    event: int = npu.ok(npu.rt.create_event())
    return event


def legacy(npu: Driver, flags: int = SYNC) -> int:
    event: int = npu.ok(npu.rt.create_event_with_flag(flags))
    return event


def ex(npu: Driver, flags: int = SYNC) -> int:
    event: int = npu.ok(npu.rt.create_event_ex_with_flag(flags))
    return event


FLAVOURS = pytest.mark.parametrize("make", [plain, legacy, ex])


@FLAVOURS
def test_a_wait_holds_a_stream_until_the_record(npu: Driver, make: object) -> None:
    event = make(npu)  # type: ignore[operator]
    first, second = npu.stream(), npu.stream()
    release = npu.hold(first)
    npu.ok(npu.rt.record_event(event, first))
    npu.ok(npu.rt.stream_wait_event(second, event))
    assert npu.rt.stream_query(second) == (1, 0)
    assert npu.rt.query_event_status(event) == (0, 0)
    release()
    npu.ok(npu.rt.synchronize_stream(second))
    assert npu.rt.query_event_status(event) == (1, 0)


def test_a_wait_before_any_record(npu: Driver) -> None:
    stream = npu.stream()
    assert npu.rt.stream_wait_event(stream, plain(npu)) == 107000
    assert npu.rt.stream_wait_event(stream, ex(npu)) == 0
    npu.ok(npu.rt.synchronize_stream(stream))
    event = legacy(npu)
    assert npu.rt.stream_wait_event(stream, event) == 0
    assert npu.rt.synchronize_stream_with_timeout(stream, 10) == 507046
    npu.ok(npu.rt.record_event(event, npu.stream()))
    assert npu.rt.synchronize_stream_with_timeout(stream, 5000) == 0


def test_asking_before_any_record(npu: Driver) -> None:
    assert npu.rt.query_event_status(plain(npu)) == (0, 0)
    assert npu.rt.query_event_status(legacy(npu)) == (0, 0)
    assert npu.rt.query_event_status(ex(npu)) == (1, 0)
    assert npu.rt.query_event(plain(npu)) == (0, 0)
    assert npu.rt.query_event(legacy(npu)) == (0, 0)
    assert npu.rt.query_event(ex(npu))[1] == 207000


@FLAVOURS
def test_synchronising_before_any_record_returns_at_once(npu: Driver, make: object) -> None:
    assert npu.rt.synchronize_event(make(npu)) == 0  # type: ignore[operator]


def test_the_two_status_enums_are_opposite(npu: Driver) -> None:
    event, stream = plain(npu), npu.stream()
    npu.ok(npu.rt.record_event(event, stream))
    npu.ok(npu.rt.synchronize_event(event))
    assert npu.rt.query_event_status(event) == (1, 0)
    assert npu.rt.query_event(event) == (0, 0)
    assert npu.rt.stream_query(stream) == (0, 0)


@pytest.mark.parametrize("make", [plain, ex])
def test_a_later_record_does_not_move_an_earlier_wait(npu: Driver, make: object) -> None:
    event = make(npu)  # type: ignore[operator]
    first, second, third = npu.stream(), npu.stream(), npu.stream()
    npu.ok(npu.rt.record_event(event, first))
    npu.ok(npu.rt.stream_wait_event(second, event))
    release = npu.hold(third)
    npu.ok(npu.rt.record_event(event, third))
    assert npu.rt.synchronize_stream_with_timeout(second, 5000) == 0
    assert npu.rt.query_event_status(event) == (0, 0)
    release()


def test_a_legacy_event_stays_up_until_it_is_reset(npu: Driver) -> None:
    event, recording, waiting = legacy(npu), npu.stream(), npu.stream()
    npu.ok(npu.rt.record_event(event, recording))
    npu.ok(npu.rt.synchronize_stream(recording))
    npu.ok(npu.rt.stream_wait_event(waiting, event))
    npu.ok(npu.rt.stream_wait_event(waiting, event))
    assert npu.rt.synchronize_stream_with_timeout(waiting, 5000) == 0
    npu.ok(npu.rt.reset_event(event, waiting))
    npu.ok(npu.rt.stream_wait_event(waiting, event))
    assert npu.rt.synchronize_stream_with_timeout(waiting, 10) == 507046
    assert npu.rt.query_event_status(event) == (0, 0)
    npu.ok(npu.rt.record_event(event, recording))
    assert npu.rt.synchronize_stream_with_timeout(waiting, 5000) == 0


def test_record_wait_reset_is_a_cycle(npu: Driver) -> None:
    event, recording, waiting = legacy(npu), npu.stream(), npu.stream()
    for _ in range(50):
        npu.ok(npu.rt.record_event(event, recording))
        npu.ok(npu.rt.stream_wait_event(waiting, event))
        npu.ok(npu.rt.reset_event(event, waiting))
        npu.ok(npu.rt.synchronize_stream(waiting))


def test_an_ex_event_refuses_the_legacy_calls(npu: Driver) -> None:
    event = ex(npu)
    assert npu.rt.reset_event(event, npu.stream()) == 207000
    assert npu.rt.query_event(event)[1] == 207000
    assert npu.rt.query_event_wait_status(event)[1] == 207000


def test_the_wait_side_of_a_legacy_event(npu: Driver) -> None:
    event, stream = legacy(npu), npu.stream()
    assert npu.rt.query_event_wait_status(event) == (0, 0)
    npu.ok(npu.rt.stream_wait_event(stream, event))
    assert npu.rt.query_event_wait_status(event) == (1, 0)
    npu.ok(npu.rt.record_event(event, npu.stream()))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.rt.query_event_wait_status(event) == (0, 0)


@pytest.mark.parametrize("flag", [0, 0x80, 0x1000])
def test_flags_must_be_known(npu: Driver, flag: int) -> None:
    assert npu.rt.create_event_with_flag(flag) == (0, 107000)
    assert npu.rt.create_event_ex_with_flag(flag) == (0, 107000)


def test_waiting_needs_the_sync_flag(npu: Driver) -> None:
    event = ex(npu, PROGRESS)
    npu.ok(npu.rt.record_event(event, npu.stream()))
    assert npu.rt.stream_wait_event(npu.stream(), event) == 207000


def test_synchronising_times_out(npu: Driver) -> None:
    event, stream = ex(npu), npu.stream()
    release = npu.hold(stream)
    npu.ok(npu.rt.record_event(event, stream))
    assert npu.rt.synchronize_event_with_timeout(event, 10) == 507047
    assert npu.rt.synchronize_event_with_timeout(event, 0) == 107000
    release()
    assert npu.rt.synchronize_event_with_timeout(event, 5000) == 0


def test_several_threads_may_wait_for_one_event(npu: Driver) -> None:
    event, stream = ex(npu), npu.stream()
    release = npu.hold(stream)
    npu.ok(npu.rt.record_event(event, stream))
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(npu.rt.synchronize_event(event))) for _ in range(4)]
    for thread in threads:
        thread.start()
    release()
    for thread in threads:
        thread.join(5)
    assert codes == [0] * 4


def test_time_between_two_records(npu: Driver) -> None:
    start, end, stream = ex(npu, SYNC | TIME_LINE), ex(npu, SYNC | TIME_LINE), npu.stream()
    assert npu.rt.event_elapsed_time(start, end) == (0.0, 507000)
    npu.ok(npu.rt.record_event(start, stream))
    npu.ok(npu.rt.synchronize_event(start))
    release = npu.hold(stream)
    npu.ok(npu.rt.record_event(end, stream))
    assert npu.rt.event_elapsed_time(start, end) == (0.0, 107006)
    time.sleep(0.02)
    release()
    npu.ok(npu.rt.synchronize_event(end))
    elapsed = npu.ok(npu.rt.event_elapsed_time(start, end))
    assert elapsed >= 19
    assert npu.rt.event_elapsed_time(end, start)[1] == 107007
    first, last = (npu.ok(npu.rt.event_get_timestamp(event)) for event in (start, end))
    assert abs((last - first) / 1000 - elapsed) < 0.01


def test_timing_needs_the_time_line_flag(npu: Driver) -> None:
    event, stream = ex(npu), npu.stream()
    npu.ok(npu.rt.record_event(event, stream))
    npu.ok(npu.rt.synchronize_event(event))
    assert npu.rt.event_elapsed_time(event, event)[1] == 107006


def test_destroying_an_event_does_not_disturb_queued_work(npu: Driver) -> None:
    event, first, second = ex(npu), npu.stream(), npu.stream()
    release = npu.hold(first)
    npu.ok(npu.rt.record_event(event, first))
    npu.ok(npu.rt.stream_wait_event(second, event))
    npu.ok(npu.rt.destroy_event(event))
    assert npu.rt.destroy_event(event) == 107017
    assert npu.rt.record_event(event, first) == 107017
    release()
    assert npu.rt.synchronize_stream_with_timeout(second, 5000) == 0


def test_event_and_stream_must_be_of_one_context(npu: Driver) -> None:
    event = ex(npu)
    npu.ok(npu.rt.create_context(0))
    assert npu.rt.record_event(event, npu.stream()) == 107003
    assert npu.rt.record_event(0, npu.stream()) == 100000


def test_a_record_dropped_with_its_stream_lets_its_waiters_go(npu: Driver) -> None:
    event, first, second = ex(npu), npu.stream(), npu.stream()
    npu.hold(first)
    npu.ok(npu.rt.record_event(event, first))
    npu.ok(npu.rt.stream_wait_event(second, event))
    npu.ok(npu.rt.destroy_stream_force(first))
    assert npu.rt.synchronize_stream_with_timeout(second, 5000) == 0


def test_a_device_runs_out_of_legacy_events() -> None:
    emulator = Emulator(Config(memory=1 << 20, events=2))
    emulator.acl.init()
    npu = Driver(emulator)
    first = legacy(npu)
    legacy(npu)
    assert npu.rt.create_event_with_flag(SYNC) == (0, 207007)
    assert ex(npu)
    npu.ok(npu.rt.destroy_event(first))
    assert legacy(npu)
    emulator.shutdown()


def test_events_order_a_copy_between_streams(npu: Driver) -> None:
    event, first, second = ex(npu), npu.stream(), npu.stream()
    source, _ = npu.pinned(np.full(4, 5.0))
    back, taken = npu.pinned(np.zeros(4))
    middle = npu.upload(np.zeros(4))
    release = npu.hold(first)
    npu.ok(npu.rt.memcpy_async(middle, 32, source, 32, 1, first))
    npu.ok(npu.rt.record_event(event, first))
    npu.ok(npu.rt.stream_wait_event(second, event))
    npu.ok(npu.rt.memcpy_async(back, 32, middle, 32, 2, second))
    release()
    npu.ok(npu.rt.synchronize_stream(second))
    assert taken.tolist() == [5.0] * 4
