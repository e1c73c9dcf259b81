"""Streams: FIFO, asynchronous, waited for and asked (pyACL reference §6)."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver, doubler, gather


def test_a_new_stream_is_complete(npu: Driver) -> None:
    stream = npu.stream()
    assert npu.rt.stream_query(stream) == (0, 0)
    assert npu.rt.synchronize_stream(stream) == 0
    assert npu.rt.synchronize_stream_with_timeout(stream, 1) == 0


def test_stream_zero_is_the_context_s_own(npu: Driver) -> None:
    release = npu.hold(0)
    assert npu.rt.stream_query(0) == (1, 0)
    release()
    assert npu.rt.synchronize_stream(0) == 0
    npu.ok(npu.rt.create_context(0))
    assert npu.rt.stream_query(0) == (0, 0)


def test_a_queued_copy_reads_its_source_when_the_stream_gets_there(npu: Driver) -> None:
    stream = npu.stream()
    source, view = npu.pinned(np.zeros(8, np.int64))
    target = npu.device(64)
    release = npu.hold(stream)
    npu.ok(npu.rt.memcpy_async(target, 64, source, 64, 1, stream))
    view[:] = 7
    assert npu.rt.stream_query(stream) == (1, 0)
    release()
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.download(target, view).tolist() == [7] * 8


def test_tasks_of_a_stream_run_in_order(npu: Driver) -> None:
    stream = npu.stream()
    place, view = npu.pinned(np.zeros(1, np.int64))
    cells = [npu.upload(np.array([i], np.int64)) for i in range(200)]
    target = npu.device(8)
    release = npu.hold(stream)
    for cell in cells:
        npu.ok(npu.rt.memcpy_async(target, 8, cell, 8, 3, stream))
    npu.ok(npu.rt.memcpy_async(place, 8, target, 8, 2, stream))
    release()
    npu.ok(npu.rt.synchronize_stream(stream))
    assert view[0] == 199


def test_streams_do_not_wait_for_each_other(npu: Driver) -> None:
    first, second = npu.stream(), npu.stream()
    release = npu.hold(first)
    source, _ = npu.pinned(np.ones(4))
    npu.ok(npu.rt.memcpy_async(npu.device(32), 32, source, 32, 1, second))
    assert npu.rt.synchronize_stream_with_timeout(second, 5000) == 0
    assert npu.rt.stream_query(first) == (1, 0)
    release()


def test_waiting_too_long_gives_a_timeout_and_the_stream_goes_on(npu: Driver) -> None:
    stream = npu.stream()
    release = npu.hold(stream)
    assert npu.rt.synchronize_stream_with_timeout(stream, 10) == 507046
    assert "10 ms" in npu.acl.get_recent_err_msg()
    assert npu.rt.synchronize_device_with_timeout(10) == 507046
    release()
    assert npu.rt.synchronize_stream_with_timeout(stream, 5000) == 0
    assert npu.rt.synchronize_device() == 0


@pytest.mark.parametrize("timeout", [-2, -100])
def test_a_timeout_below_minus_one_is_refused(npu: Driver, timeout: int) -> None:
    assert npu.rt.synchronize_stream_with_timeout(npu.stream(), timeout) == 107000


def test_several_threads_may_wait_for_one_stream(npu: Driver) -> None:
    stream = npu.stream()
    release = npu.hold(stream)
    codes: list[int] = []

    def wait() -> None:
        npu.rt.set_context(npu.context)
        codes.append(npu.rt.synchronize_stream(stream))

    threads = [threading.Thread(target=wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    release()
    for thread in threads:
        thread.join(5)
    assert codes == [0] * 8


def test_synchronize_waits_only_for_what_was_submitted_before(npu: Driver) -> None:
    stream = npu.stream()
    release = npu.hold(stream)
    codes: list[int] = []

    def wait() -> None:
        npu.rt.set_context(npu.context)
        codes.append(npu.rt.synchronize_stream(stream))

    thread = threading.Thread(target=wait)
    thread.start()
    while not npu.emulator._process.devices[0].engine.hosts:  # type: ignore[union-attr]
        time.sleep(0.001)
    later = npu.hold(stream)
    release()
    thread.join(5)
    assert codes == [0]
    assert npu.rt.stream_query(stream) == (1, 0)
    later()


def test_a_failed_run_is_reported_once_and_the_stream_goes_on(npu: Driver) -> None:
    model, stream = npu.load(gather()), npu.stream()
    out = np.zeros(1, np.float32)
    bad, to, _ = npu.bind([np.array([9])], [out])
    good, also, (address,) = npu.bind([np.array([2])], [out])
    npu.ok(npu.mdl.execute_async(model, bad, to, stream))
    npu.ok(npu.mdl.execute_async(model, good, also, stream))
    assert npu.rt.synchronize_stream(stream) == 507011
    message = npu.acl.get_recent_err_msg()
    assert "indices element out of data bounds" in message
    assert npu.download(address, out)[0] == 30
    assert npu.rt.synchronize_stream(stream) == 0
    assert npu.rt.stream_query(stream) == (0, 0)


def test_a_failure_is_told_by_the_first_status_call_whatever_the_thread(npu: Driver) -> None:
    model, stream = npu.load(gather()), npu.stream()
    bad, to, _ = npu.bind([np.array([9])], [np.zeros(1, np.float32)])
    npu.ok(npu.mdl.execute_async(model, bad, to, stream))
    seen: list[object] = []

    def ask() -> None:
        npu.rt.set_context(npu.context)
        while (answer := npu.rt.stream_query(stream)) == (1, 0):
            time.sleep(0.001)
        seen.extend([answer[1], npu.acl.get_recent_err_msg()])

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(5)
    assert seen[0] == 507011
    assert "out of data bounds" in str(seen[1])
    assert npu.acl.get_recent_err_msg() is None
    assert npu.rt.stream_query(stream) == (0, 0)


def test_a_failure_stays_with_its_own_stream(npu: Driver) -> None:
    model, stream, other = npu.load(gather()), npu.stream(), npu.stream()
    bad, to, _ = npu.bind([np.array([9])], [np.zeros(1, np.float32)])
    npu.ok(npu.mdl.execute_async(model, bad, to, stream))
    assert npu.rt.synchronize_stream(other) == 0
    assert npu.rt.synchronize_device() == 0
    assert npu.rt.synchronize_stream(stream) == 507011


def test_a_stream_belongs_to_its_context(npu: Driver) -> None:
    stream = npu.stream()
    npu.ok(npu.rt.create_context(0))
    assert npu.rt.synchronize_stream(stream) == 107003
    assert npu.rt.stream_query(stream)[1] == 107003
    assert npu.rt.destroy_stream(stream) == 107003


def test_a_destroyed_stream_is_stale(npu: Driver) -> None:
    stream = npu.stream()
    npu.ok(npu.rt.destroy_stream(stream))
    assert npu.rt.synchronize_stream(stream) == 107017
    assert npu.rt.destroy_stream(stream) == 107017
    assert npu.rt.destroy_stream(0) == 100000


def test_destroying_a_stream_waits_for_its_work(npu: Driver) -> None:
    stream = npu.stream()
    source, view = npu.pinned(np.arange(1 << 20))
    target = npu.device(view.nbytes)
    for _ in range(4):
        npu.ok(npu.rt.memcpy_async(target, view.nbytes, source, view.nbytes, 1, stream))
    npu.ok(npu.rt.destroy_stream(stream))
    assert np.array_equal(npu.download(target, view), view)


def test_destroying_by_force_drops_the_queue(npu: Driver) -> None:
    stream = npu.stream()
    npu.hold(stream)
    target, source = npu.upload(np.zeros(1)), npu.upload(np.ones(1))
    npu.ok(npu.rt.memcpy_async(target, 8, source, 8, 3, stream))
    npu.ok(npu.rt.destroy_stream_force(stream))
    assert npu.download(target, np.zeros(1))[0] == 0


def test_aborting_a_stream_lets_its_waiters_go(npu: Driver) -> None:
    stream = npu.stream()
    npu.hold(stream)
    codes: list[int] = []

    def wait() -> None:
        npu.rt.set_context(npu.context)
        codes.append(npu.rt.synchronize_stream(stream))

    thread = threading.Thread(target=wait)
    thread.start()
    while not npu.emulator._process.devices[0].engine.hosts:  # type: ignore[union-attr]
        time.sleep(0.001)
    npu.ok(npu.rt.stream_abort(stream))
    thread.join(5)
    assert codes == [107023]
    assert npu.rt.stream_query(stream) == (0, 0)
    source, _ = npu.pinned(np.ones(1))
    npu.ok(npu.rt.memcpy_async(npu.device(8), 8, source, 8, 1, stream))
    npu.ok(npu.rt.synchronize_stream(stream))


def test_a_device_runs_out_of_streams() -> None:
    emulator = Emulator(Config(memory=1 << 20, streams=5))
    emulator.acl.init()
    npu = Driver(emulator)
    made = [npu.stream() for _ in range(4)]
    assert npu.rt.create_stream() == (0, 207008)
    assert npu.rt.get_stream_available_num() == (0, 0)
    npu.ok(npu.rt.destroy_stream(made[0]))
    assert npu.stream()
    emulator.shutdown()


@pytest.mark.parametrize("chip, limit", [("Ascend310P3", 1024), ("Ascend910B4", 1984), ("Ascend910A", 2048)])
def test_a_chip_has_its_number_of_streams(chip: str, limit: int) -> None:
    emulator = Emulator(Config(memory=1 << 20, soc_name=chip))
    emulator.acl.init()
    npu = Driver(emulator)
    assert npu.rt.get_stream_available_num() == (limit - 1, 0)
    emulator.shutdown()


def test_streams_take_a_priority_and_flags(npu: Driver) -> None:
    assert npu.ok(npu.rt.create_stream_with_config(0, 1))
    assert npu.rt.create_stream_with_config(8, 0) == (0, 107000)


def test_two_thousand_streams_need_no_two_thousand_threads() -> None:
    emulator = Emulator(Config(memory=1 << 20, streams=3000))
    emulator.acl.init()
    npu = Driver(emulator)
    before = threading.active_count()
    streams = [npu.stream() for _ in range(2000)]
    source, _ = npu.pinned(np.ones(8))
    target = npu.device(64)
    for stream in streams:
        npu.ok(npu.rt.memcpy_async(target, 64, source, 64, 1, stream))
    for stream in streams:
        npu.ok(npu.rt.synchronize_stream(stream))
    assert threading.active_count() == before
    emulator.shutdown()


def test_shutdown_lets_a_waiting_thread_go(machine: Emulator, npu: Driver) -> None:
    stream = npu.stream()
    npu.hold(stream)
    codes: list[int] = []

    def wait() -> None:
        npu.rt.set_context(npu.context)
        codes.append(npu.rt.synchronize_stream(stream))

    thread = threading.Thread(target=wait)
    thread.start()
    while not machine._process.devices[0].engine.hosts:  # type: ignore[union-attr]
        time.sleep(0.001)
    machine.shutdown()
    thread.join(5)
    assert codes == [507901]


def test_many_threads_and_streams_keep_their_copies_apart(npu: Driver) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        npu.rt.set_context(npu.context)
        stream = npu.stream()
        source, given = npu.pinned(np.zeros(64, np.int64))
        back, taken = npu.pinned(np.zeros(64, np.int64))
        middle = npu.device(512)
        for turn in range(50):
            given[:] = number * 1000 + turn
            npu.ok(npu.rt.memcpy_async(middle, 512, source, 512, 1, stream))
            npu.ok(npu.rt.memcpy_async(back, 512, middle, 512, 2, stream))
            npu.ok(npu.rt.synchronize_stream(stream))
            if not (taken == given).all():
                wrong.append(turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


def test_pipelined_runs_over_three_streams_give_each_its_own_answer(npu: Driver) -> None:
    model = npu.load(doubler((4,)))
    copy_in, compute, copy_out = npu.stream(), npu.stream(), npu.stream()
    places = []
    for _ in range(3):
        source, given = npu.pinned(np.zeros(4, np.float32))
        back, taken = npu.pinned(np.zeros(4, np.float32))
        din, dout = npu.device(16), npu.device(16)
        events = [npu.ok(npu.rt.create_event_ex_with_flag(1)) for _ in range(3)]
        places.append((source, given, back, taken, din, dout, npu.dataset((din, 16)), npu.dataset((dout, 16)), events))
    expected: dict[int, int] = {}
    for turn in range(300):
        source, given, back, taken, din, dout, inputs, outputs, (up, ran, down) = places[turn % 3]
        if turn >= 3:
            npu.ok(npu.rt.synchronize_event(down))
            assert (taken == 2 * expected[turn - 3]).all()
        given[:] = expected[turn] = turn
        npu.ok(npu.rt.memcpy_async(din, 16, source, 16, 1, copy_in))
        npu.ok(npu.rt.record_event(up, copy_in))
        npu.ok(npu.rt.stream_wait_event(compute, up))
        npu.ok(npu.mdl.execute_async(model, inputs, outputs, compute))
        npu.ok(npu.rt.record_event(ran, compute))
        npu.ok(npu.rt.stream_wait_event(copy_out, ran))
        npu.ok(npu.rt.memcpy_async(back, 16, dout, 16, 2, copy_out))
        npu.ok(npu.rt.record_event(down, copy_out))
    npu.ok(npu.rt.synchronize_device())


def test_a_stream_in_stop_mode_drops_what_follows_a_failure(npu: Driver) -> None:
    model, stream = npu.load(gather()), npu.stream()
    npu.ok(npu.rt.set_stream_failure_mode(stream, 1))
    assert npu.rt.set_stream_failure_mode(stream, 2) == 107000
    assert npu.rt.set_stream_failure_mode(stream, 0) == 107000  # once a stream
    bad, to, _ = npu.bind([np.array([9])], [np.zeros(1, np.float32)])
    source, target = npu.upload(np.ones(1)), npu.upload(np.zeros(1))
    release = npu.hold(stream)
    npu.ok(npu.mdl.execute_async(model, bad, to, stream))
    npu.ok(npu.rt.memcpy_async(target, 8, source, 8, 3, stream))
    release()
    assert npu.rt.synchronize_stream(stream) == 507011
    assert npu.download(target, np.zeros(1))[0] == 0


def test_a_failure_in_stop_mode_stops_the_context(npu: Driver) -> None:
    model, stream, other, idle = npu.load(gather()), npu.stream(), npu.stream(), npu.stream()
    npu.ok(npu.rt.set_stream_failure_mode(stream, 1))
    bad, to, _ = npu.bind([np.array([9])], [np.zeros(1, np.float32)])
    source, target = npu.upload(np.ones(1)), npu.upload(np.zeros(1))
    npu.hold(other)
    npu.ok(npu.rt.memcpy_async(target, 8, source, 8, 3, other))
    npu.ok(npu.mdl.execute_async(model, bad, to, stream))
    assert npu.rt.synchronize_stream(stream) == 507011
    assert npu.rt.synchronize_stream(other) == 507011
    assert npu.rt.synchronize_stream(idle) == 507011
    assert npu.download(target, np.zeros(1))[0] == 0


def test_a_stopped_context_stays_so_until_it_is_destroyed(npu: Driver) -> None:
    model, stream = npu.load(gather()), npu.stream()
    npu.ok(npu.rt.set_stream_failure_mode(stream, 1))
    event = npu.ok(npu.rt.create_event_with_flag(1))
    bad, to, _ = npu.bind([np.array([9])], [np.zeros(1, np.float32)])
    good, _, _ = npu.bind([np.array([1])], [])
    memory = npu.device(8)
    npu.ok(npu.mdl.execute_async(model, bad, to, stream))
    for one in (stream, npu.stream(), 0):
        assert npu.rt.synchronize_stream(stream) == 507011
        assert npu.rt.synchronize_stream(one) == 507011
        assert npu.rt.stream_query(one)[-1] == 507011
        assert npu.mdl.execute_async(model, good, to, one) == 507011
        assert npu.rt.memset_async(memory, 8, 0, 8, one) == 507011
        assert npu.rt.record_event(event, one) == 507011
    assert npu.mdl.execute(model, good, to) == 507011
    assert "stop mode" in npu.acl.get_recent_err_msg()
    npu.ok(npu.mdl.unload(model))  # what was refused is not queued
    npu.ok(npu.rt.destroy_stream(stream))
    npu.ok(npu.rt.destroy_context(npu.context))
    again = Driver(npu.emulator)
    stream = again.stream()
    again.ok(again.rt.memset_async(again.device(8), 8, 0, 8, stream))
    again.ok(again.rt.synchronize_stream(stream))


def small(depth: int, strict: bool = False) -> Driver:
    emulator = Emulator(Config(memory=64 << 20, stream_depth=depth, strict=strict))
    emulator.acl.init()
    return Driver(emulator)


def test_a_full_stream_lets_a_submission_wait(caplog: pytest.LogCaptureFixture) -> None:
    npu = small(4)
    stream, other, memory = npu.stream(), npu.stream(), npu.device(64)
    event = npu.ok(npu.rt.create_event_with_flag(1))
    npu.ok(npu.rt.stream_wait_event(stream, event))
    codes: list[int] = []

    def work() -> None:
        npu.rt.set_context(npu.context)
        for _ in range(8):
            code = npu.rt.memset_async(memory, 64, 1, 64, stream)
            codes.append(code)
        codes.append(npu.rt.record_event(event, stream))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.1)
    assert codes == [0, 0, 0]
    npu.ok(npu.rt.record_event(event, other))
    thread.join(5)
    assert codes == [0] * 9
    npu.ok(npu.rt.synchronize_stream(stream))
    # on hardware the thread that would record the event could not run
    assert {violation.rule for violation in npu.emulator.report().violations} == {"deadlock"}
    assert "has 4 tasks queued" in caplog.text
    npu.emulator.shutdown()


@pytest.mark.parametrize("way, code", [("destroy_stream_force", 107023), ("shutdown", 507901)])
def test_a_submission_that_waits_for_room_ends_with_its_stream(way: str, code: int) -> None:
    npu = small(2)
    stream, memory, codes = npu.stream(), npu.device(64), list[int]()
    npu.hold(stream)
    npu.ok(npu.rt.memset_async(memory, 64, 1, 64, stream))

    def work() -> None:
        npu.rt.set_context(npu.context)
        codes.append(npu.rt.memset_async(memory, 64, 1, 64, stream))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    if way == "shutdown":
        npu.emulator.shutdown()
    else:
        npu.ok(getattr(npu.rt, way)(stream))
    thread.join(5)
    assert codes == [code]
    npu.emulator.shutdown()


def test_in_strict_mode_a_full_stream_that_goes_on_takes_a_submission() -> None:
    npu = small(2, strict=True)
    stream, memory = npu.stream(), npu.device(1 << 20)
    for _ in range(50):
        npu.ok(npu.rt.memset_async(memory, 1 << 20, 1, 1 << 20, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.emulator.report().violations == ()
    npu.emulator.shutdown()


def test_a_full_stream_that_cannot_go_on_is_refused_in_strict_mode() -> None:
    npu = small(4, strict=True)
    stream, memory = npu.stream(), npu.device(64)
    release = npu.hold(stream)
    codes = [npu.rt.memset_async(memory, 64, 1, 64, stream) for _ in range(5)]
    event = npu.ok(npu.rt.create_event_with_flag(1))
    codes.append(npu.rt.record_event(event, stream))
    assert codes == [0, 0, 0, 507002, 507002, 507002]
    release()
    npu.ok(npu.rt.synchronize_stream(stream))
    npu.ok(npu.rt.free(memory))  # what was refused does not need it
    assert {violation.rule for violation in npu.emulator.report().violations} == {"deadlock"}
    npu.emulator.shutdown()


def test_a_depth_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="stream_depth must be at least 1"):
        Config(stream_depth=0)
