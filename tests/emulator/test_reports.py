"""Callbacks run in order on the subscribed thread (pyACL reference §9)."""

from __future__ import annotations

import _thread
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver, ReportThread

ME = threading.get_ident
ROOT = Path(__file__).parents[2]


@pytest.fixture
def reports(npu: Driver) -> Iterator[ReportThread]:
    thread = ReportThread(npu)
    yield thread
    thread.close()


def drain(npu: Driver) -> None:
    while npu.rt.process_report(1) == 0:
        pass


def test_a_callback_gets_its_one_argument_on_the_subscribed_thread(npu: Driver, reports: ReportThread) -> None:
    stream, seen, done = npu.stream(), [], threading.Event()

    def callback(data: object) -> None:
        seen.append((data, threading.get_ident()))
        done.set()

    npu.ok(npu.rt.subscribe_report(reports.ident, stream))
    reports.start()
    npu.ok(npu.rt.launch_callback(callback, ["a", 1], 0, stream))
    assert done.wait(5)
    assert seen == [(["a", 1], reports.ident)]
    npu.ok(npu.rt.unsubscribe_report(reports.ident, stream))


def test_callbacks_of_a_stream_come_in_order(npu: Driver, reports: ReportThread) -> None:
    stream, seen = npu.stream(), []
    npu.ok(npu.rt.subscribe_report(reports.ident, stream))
    reports.start()
    for number in range(500):
        npu.ok(npu.rt.launch_callback(seen.append, number, number % 2, stream))
    npu.ok(npu.rt.launch_callback(seen.append, 500, 1, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert seen == list(range(501))


def test_one_call_runs_everything_that_waits(npu: Driver) -> None:
    stream, seen = npu.stream(), []
    npu.ok(npu.rt.subscribe_report(ME(), stream))
    for number in range(5):
        npu.ok(npu.rt.launch_callback(seen.append, number, 0, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.rt.process_report(1000) == 0
    assert seen == [0, 1, 2, 3, 4]
    assert npu.rt.process_report(1) == 507012


def test_codes_of_a_thread_without_subscription(npu: Driver) -> None:
    assert npu.rt.process_report(1) == 107012
    stream = npu.stream()
    npu.ok(npu.rt.subscribe_report(ME(), stream))
    assert npu.rt.process_report(5) == 507012
    assert npu.rt.process_report(0) == 100000
    assert npu.rt.process_report(-2) == 100000
    npu.ok(npu.rt.unsubscribe_report(ME(), stream))
    assert npu.rt.process_report(5) == 107012


def test_codes_of_subscribing(npu: Driver) -> None:
    stream = npu.stream()
    assert npu.rt.unsubscribe_report(ME(), stream) == 107012
    npu.ok(npu.rt.subscribe_report(ME(), stream))
    assert npu.rt.subscribe_report(ME(), stream) == 107011
    assert npu.rt.unsubscribe_report(ME(), npu.stream()) == 107011
    assert npu.rt.launch_callback(print, None, 0, npu.stream()) == 107015
    assert npu.rt.launch_callback(print, None, 2, stream) == 100000
    npu.ok(npu.rt.create_context(1))
    assert npu.rt.subscribe_report(ME(), npu.stream()) == 107012
    assert npu.rt.subscribe_report(ME(), stream) == 107003
    npu.ok(npu.rt.set_context(npu.context))
    npu.ok(npu.rt.unsubscribe_report(ME(), stream))


def test_the_default_stream_may_be_subscribed(npu: Driver) -> None:
    seen: list[int] = []
    npu.ok(npu.rt.subscribe_report(ME(), 0))
    npu.ok(npu.rt.launch_callback(seen.append, 1, 0, 0))
    assert npu.rt.process_report(1000) == 0
    assert seen == [1]


def test_a_function_that_is_none_is_a_type_error(npu: Driver) -> None:
    with pytest.raises(TypeError, match="callable"):
        npu.rt.launch_callback(5, None, 0, npu.stream())
    with pytest.raises(TypeError, match="4 positional"):
        npu.rt.launch_callback(print, 0, npu.stream())


def test_a_blocking_callback_holds_its_stream(npu: Driver) -> None:
    stream = npu.stream()
    npu.ok(npu.rt.subscribe_report(ME(), stream))
    npu.ok(npu.rt.launch_callback(id, None, 1, stream))
    assert npu.rt.synchronize_stream_with_timeout(stream, 10) == 507046
    drain(npu)
    assert npu.rt.synchronize_stream_with_timeout(stream, 5000) == 0


def test_a_callback_that_does_not_block_is_no_part_of_synchronising(npu: Driver) -> None:
    stream, seen = npu.stream(), []
    npu.ok(npu.rt.subscribe_report(ME(), stream))
    npu.ok(npu.rt.launch_callback(seen.append, 1, 0, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert seen == []
    drain(npu)
    assert seen == [1]


def test_a_callback_waits_for_the_work_before_it(npu: Driver, reports: ReportThread) -> None:
    stream, done = npu.stream(), threading.Event()
    npu.ok(npu.rt.subscribe_report(reports.ident, stream))
    reports.start()
    release = npu.hold(stream)
    npu.ok(npu.rt.launch_callback(lambda _: done.set(), None, 0, stream))
    assert not done.wait(0.02)
    release()
    assert done.wait(5)


def test_one_thread_serves_many_streams(npu: Driver, reports: ReportThread) -> None:
    streams, seen = [npu.stream() for _ in range(20)], []
    for stream in streams:
        npu.ok(npu.rt.subscribe_report(reports.ident, stream))
    reports.start()
    for turn in range(10):
        for number, stream in enumerate(streams):
            npu.ok(npu.rt.launch_callback(seen.append, (number, turn), 1, stream))
    npu.ok(npu.rt.synchronize_device())
    for number in range(20):
        assert [turn for who, turn in seen if who == number] == list(range(10))


def test_a_waiting_thread_wakes_when_its_last_subscription_ends(npu: Driver, reports: ReportThread) -> None:
    stream = npu.stream()
    npu.ok(npu.rt.subscribe_report(reports.ident, stream))
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(npu.rt.process_report(-1)))
    thread.start()
    assert thread.ident is not None
    other = npu.stream()
    thread.join(5)
    assert codes == [107012]
    began = threading.Event()

    def wait() -> None:
        began.wait()
        codes.append(npu.rt.process_report(-1))

    thread = threading.Thread(target=wait)
    thread.start()
    assert thread.ident is not None
    npu.ok(npu.rt.subscribe_report(thread.ident, other))
    began.set()
    while not npu.emulator._process.devices[0].engine.hosts:  # type: ignore[union-attr]
        time.sleep(0.001)
    npu.ok(npu.rt.unsubscribe_report(thread.ident, other))
    thread.join(5)
    assert codes == [107012, 107012]


def test_an_exception_in_a_callback_is_a_system_error_and_frees_the_stream(
    npu: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    stream, seen = npu.stream(), []
    npu.ok(npu.rt.subscribe_report(ME(), stream))

    def broken(_: object) -> None:
        raise ValueError("broken")

    npu.ok(npu.rt.launch_callback(broken, None, 1, stream))
    npu.ok(npu.rt.launch_callback(seen.append, 2, 1, stream))
    with caplog.at_level(logging.ERROR, "aioascend.emulator"), pytest.raises(SystemError) as caught:
        npu.rt.process_report(1000)
    assert isinstance(caught.value.__cause__, ValueError)
    (record,) = caplog.records
    assert "in broken" in record.getMessage()
    assert 'raise ValueError("broken")' in caplog.text
    (violation,) = npu.emulator.report().violations
    assert (violation.rule, violation.call) == ("callback-raised", "acl.rt.process_report")
    assert "ValueError: broken" in violation.text
    assert violation.where.endswith("in broken")
    assert npu.rt.process_report(1000) == 0
    assert seen == [2]
    npu.ok(npu.rt.synchronize_stream(stream))


def test_unsubscribing_drops_what_was_not_run_and_frees_the_stream(npu: Driver) -> None:
    stream, seen = npu.stream(), []
    npu.ok(npu.rt.subscribe_report(ME(), stream))
    npu.ok(npu.rt.launch_callback(seen.append, 1, 1, stream))
    assert npu.rt.synchronize_stream_with_timeout(stream, 5) == 507046
    npu.ok(npu.rt.unsubscribe_report(ME(), stream))
    assert npu.rt.synchronize_stream_with_timeout(stream, 5000) == 0
    assert seen == []


def test_unsubscribing_waits_for_a_callback_in_progress(npu: Driver, reports: ReportThread) -> None:
    stream, order, running, go_on = npu.stream(), [], threading.Event(), threading.Event()

    def callback(_: object) -> None:
        running.set()
        go_on.wait(5)
        order.append("callback")

    npu.ok(npu.rt.subscribe_report(reports.ident, stream))
    reports.start()
    npu.ok(npu.rt.launch_callback(callback, None, 0, stream))
    assert running.wait(5)
    threading.Timer(0.02, go_on.set).start()
    npu.ok(npu.rt.unsubscribe_report(reports.ident, stream))
    order.append("unsubscribed")
    assert order == ["callback", "unsubscribed"]


def test_a_destroyed_stream_is_unsubscribed(npu: Driver) -> None:
    stream = npu.stream()
    npu.ok(npu.rt.subscribe_report(ME(), stream))
    npu.ok(npu.rt.destroy_stream(stream))
    assert npu.rt.process_report(5) == 107012


def test_shutdown_wakes_a_report_thread(machine: Emulator, npu: Driver) -> None:
    stream, codes, began = npu.stream(), [], threading.Event()

    def wait() -> None:
        began.wait()
        codes.append(npu.rt.process_report(-1))

    thread = threading.Thread(target=wait)
    thread.start()
    assert thread.ident is not None
    npu.ok(npu.rt.subscribe_report(thread.ident, stream))
    began.set()
    while not machine._process.devices[0].engine.hosts:  # type: ignore[union-attr]
        time.sleep(0.001)
    machine.shutdown()
    thread.join(5)
    assert codes == [107012]


def test_threads_of_acl_util(npu: Driver) -> None:
    stream, seen, end = npu.stream(), [], threading.Event()

    def loop(arguments: list[Any]) -> None:
        context, stop = arguments
        npu.rt.set_context(context)
        while not stop.is_set():
            npu.rt.process_report(5)

    thread, code = npu.acl.util.start_thread(loop, [npu.context, end])
    assert code == 0
    npu.ok(npu.rt.subscribe_report(thread, stream))
    npu.ok(npu.rt.launch_callback(seen.append, 1, 1, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    npu.ok(npu.rt.unsubscribe_report(thread, stream))
    end.set()
    assert npu.acl.util.stop_thread(thread) == 0
    assert npu.acl.util.stop_thread(thread) != 0
    assert seen == [1]


def test_a_thread_of_acl_util_that_raised(caplog: pytest.LogCaptureFixture) -> None:
    acl: Any = Emulator().acl

    def broken() -> None:
        raise ValueError("broken")

    thread, _ = acl.util.start_thread(broken, None)
    waited = time.monotonic()
    while "broken" not in caplog.text and time.monotonic() < waited + 5:
        time.sleep(0.001)
    assert 'raise ValueError("broken")' in caplog.text
    with pytest.raises(RuntimeError, match="broken"):
        acl.util.stop_thread(thread)


@pytest.fixture
def strict() -> Iterator[Driver]:
    emulator = Emulator(Config(memory=64 << 20, strict=True))
    emulator.acl.init()
    yield Driver(emulator)
    emulator.shutdown()


def rules(npu: Driver) -> list[str]:
    return [violation.rule for violation in npu.emulator.report().violations]


def test_unsubscribing_before_callbacks_ran_is_reported_with_their_number(npu: Driver, strict: Driver) -> None:
    for one, code in ((npu, 0), (strict, 107000)):
        one.rt.set_context(one.context)
        stream = one.stream()
        one.ok(one.rt.subscribe_report(ME(), stream))
        for block in (0, 1, 0):  # run up to the second: the third is not reached
            one.ok(one.rt.launch_callback(id, None, block, stream))
        assert one.rt.unsubscribe_report(ME(), stream) == code
        assert rules(one) == ["callback-dropped"]
        assert "before 3 callbacks" in one.emulator.report().violations[0].text
        one.ok(one.rt.destroy_stream(stream))
    assert rules(strict) == ["callback-dropped"]


def test_unsubscribing_in_the_last_callback_drops_nothing(strict: Driver) -> None:
    stream, codes = strict.stream(), list[int]()
    strict.ok(strict.rt.subscribe_report(ME(), stream))
    end = lambda _: codes.append(strict.rt.unsubscribe_report(ME(), stream))  # noqa: E731
    strict.ok(strict.rt.launch_callback(end, None, 1, stream))
    assert strict.rt.process_report(1000) == 0
    assert codes == [0]
    assert rules(strict) == []


@pytest.mark.parametrize("way", ["stream", "context"])
def test_what_is_destroyed_before_callbacks_ran_is_reported(npu: Driver, way: str) -> None:
    stream = npu.stream()
    npu.ok(npu.rt.subscribe_report(ME(), stream))
    npu.ok(npu.rt.launch_callback(id, None, 0, stream))
    if way == "stream":
        npu.ok(npu.rt.destroy_stream(stream))
    else:
        npu.ok(npu.rt.destroy_context(npu.context))
    assert sorted(rules(npu)) == ["callback-dropped", "teardown-order"]


def test_subscribing_a_thread_that_there_is_not(npu: Driver, strict: Driver) -> None:
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    for one, code in ((npu, 0), (strict, 100000)):
        one.rt.set_context(one.context)
        assert one.rt.subscribe_report(4242, one.stream()) == code
        assert one.rt.subscribe_report(threading.get_native_id(), one.stream()) == code
        assert set(rules(one)) == {"no-such-thread"}
        texts = [violation.text for violation in one.emulator.report().violations]
        assert ["native id" in text for text in texts] == [False, True]


def test_a_thread_without_a_thread_object_may_be_subscribed(strict: Driver) -> None:
    go_on = threading.Event()
    thread = _thread.start_new_thread(go_on.wait, ())
    stream = strict.stream()
    strict.ok(strict.rt.subscribe_report(thread, stream))
    strict.ok(strict.rt.unsubscribe_report(thread, stream))
    go_on.set()
    assert rules(strict) == []


# A collection at each place of the call in turn, with something to collect that CPython has to find among all threads.
COLLECTING = """
import _thread, gc, os, threading, time
from aioascend.emulator import Emulator
acl = Emulator().acl
acl.init()
acl.rt.create_context(0)
stream, _ = acl.rt.create_stream()
class Litter:
    pass
def wait(begun):
    begun.release()
    time.sleep(60)
for place in range(40):
    begun = [_thread.allocate_lock() for _ in range(8)]
    for lock in begun:
        lock.acquire()
    threads = [_thread.start_new_thread(wait, (lock,)) for lock in begun]  # whose frames nobody has asked for yet
    for lock in begun:
        lock.acquire()
    gc.collect()
    gc.disable()
    litter = Litter()
    litter.itself, litter.local = litter, threading.local()
    del litter
    gc.set_threshold(gc.get_count()[0] + place)
    gc.enable()
    assert acl.rt.subscribe_report(threads[-1], stream) == 0
    gc.disable()
    assert acl.rt.unsubscribe_report(threads[-1], stream) == 0
print("through", flush=True)
os._exit(0)
"""


def test_a_garbage_collection_in_the_middle_of_a_subscription_ends() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", COLLECTING], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert ended.stdout == "through\n", ended.stderr
