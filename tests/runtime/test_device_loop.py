"""The device thread's loop: what is posted runs or is refused, whatever happens on the thread."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.driver import Backend, DeviceName
from aioascend.emulator import Emulator
from aioascend.runtime.core import DeviceCore
from aioascend.runtime.device_loop import DeviceLoop
from aioascend.testing import StubDriver
from tests import kit
from tests.session.test_under_faults import Books

pytestmark = pytest.mark.logs_errors


class Broken:
    """What the loop has told of posts that were not done to their end."""

    def __init__(self) -> None:
        self.told: list[tuple[BaseException, Any]] = []

    def __call__(self, error: BaseException, argument: Any) -> None:
        self.told.append((error, argument))


@pytest.fixture
def broken() -> Broken:
    return Broken()


@pytest.fixture
def loop(broken: Broken) -> Iterator[DeviceLoop]:
    loop = DeviceLoop("aioascend-test", lambda: None, broken)
    loop.start()
    yield loop
    if not loop._closed:
        loop.stop()
    loop.join(5)


def fail(kind: type[BaseException]) -> Callable[[Any], None]:
    def post(argument: Any) -> None:
        raise kind("in a post")

    return post


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit])
def test_a_post_that_raises_is_logged_and_told_and_the_next_run(
    kind: type[BaseException], loop: DeviceLoop, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    loop.post(fail(kind), "argument")
    assert loop.call(lambda: 7).result(5) == 7
    ((error, argument),) = broken.told
    assert isinstance(error, kind)
    assert argument == "argument"
    assert messages(caplog, logging.ERROR) == ["unexpected error on a device thread"]


def test_work_for_what_is_closed_is_dropped_with_no_more_than_a_debug_line(
    loop: DeviceLoop, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "aioascend.runtime"):
        loop.post(fail(aioascend.SessionClosed), None)
        assert loop.call(lambda: 7).result(5) == 7
    assert broken.told == []
    assert messages(caplog, logging.INFO) == []
    assert messages(caplog, logging.DEBUG) == ["work for a device that is closed was dropped"]


def test_a_call_gives_what_its_function_raises_to_who_waits(loop: DeviceLoop, broken: Broken) -> None:
    with pytest.raises(SystemExit):
        loop.call(lambda: sys.exit(1)).result(5)
    assert broken.told == []


def test_a_thread_that_is_interrupted_between_two_posts_goes_on(
    loop: DeviceLoop, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    assert loop._loop is not None
    loop._loop.call_soon_threadsafe(fail(SystemExit), None)
    limit = time.monotonic() + 5
    while not broken.told:
        assert time.monotonic() < limit
        time.sleep(0.001)
    assert loop.call(lambda: 7).result(5) == 7
    assert [type(error) for error, _ in broken.told] == [SystemExit]
    assert "aioascend-test was interrupted by SystemExit('in a post') and goes on" in messages(caplog, logging.ERROR)


def test_what_was_accepted_runs_although_the_loop_has_stopped_and_what_comes_later_is_refused(loop: DeviceLoop) -> None:
    ran: list[int] = []

    def stop_and_post() -> None:
        assert loop._loop is not None
        loop._loop.stop()
        loop._armed = True  # another thread has posted: its drain stands behind the stop
        loop.post(ran.append, 1)

    loop.call(stop_and_post).result(5)
    loop.join(5)
    assert ran == [1]
    with pytest.raises(aioascend.SessionClosed, match="aioascend-test is closed"):
        loop.post(ran.append, 2)
    loop.abandon()  # there is nothing to end any more
    assert ran == [1]


def test_what_comes_in_after_the_last_burst_is_found_in_the_threads_last_look(loop: DeviceLoop) -> None:
    ran: list[int] = []

    def stop_and_post() -> None:
        assert loop._loop is not None
        loop._loop.stop()
        loop._armed = True  # its drain stands behind the stop
        loop.post(ran.append, 1)

    assert loop._loop is not None
    loop._loop.call_soon_threadsafe(stop_and_post)  # not in a burst, which would look again itself
    loop.join(5)
    assert ran == [1]


def test_two_posts_that_find_the_thread_asleep_wake_it_once(loop: DeviceLoop) -> None:
    loop.call(lambda: None).result(5)
    loop._armed = True  # by the other one, in this moment
    loop._arm((print, "mine"))
    loop._armed = False
    assert loop.call(lambda: 7).result(5) == 7


def test_what_is_posted_to_an_abandoned_thread_does_not_run(loop: DeviceLoop) -> None:
    begun, go, ran = threading.Event(), threading.Event(), []

    def block() -> bool:
        begun.set()
        return go.wait(10)

    blocked = loop.call(block)
    assert begun.wait(10)
    loop.abandon()
    assert loop._loop is not None
    loop.post(ran.append, 1)
    go.set()
    loop.join(5)
    assert blocked.result(0)
    assert ran == []


def test_news_are_worked_off_where_they_come_in_with_everything_that_was_posted(loop: DeviceLoop) -> None:
    threads: list[tuple[str, threading.Thread]] = []

    def note(what: str) -> None:
        threads.append((what, threading.current_thread()))

    settled = threading.Event()
    loop.serve([(note, "first"), (note, "second"), (lambda _: loop.settle(settled.set), None)])
    here = threading.current_thread()
    assert threads == [("first", here), ("second", here)]
    assert settled.is_set()
    assert loop.call(threading.current_thread).result(5) is not here


def test_news_that_come_in_the_middle_of_a_burst_are_left_to_who_is_at_it(loop: DeviceLoop) -> None:
    busy, go, done = threading.Event(), threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        busy.set()
        assert go.wait(10)

    loop.post(hold, None)
    assert busy.wait(5)
    threads: list[threading.Thread] = []
    loop.serve([(lambda _: threads.append(threading.current_thread()), None), (lambda _: done.set(), None)])
    assert threads == []
    go.set()
    assert done.wait(5)
    assert threads == [loop._thread]


def test_no_post_is_left_behind_when_many_threads_bring_news_and_post(loop: DeviceLoop) -> None:
    ran: list[int] = []
    running = threading.Lock()

    def run(number: int) -> None:
        assert running.acquire(blocking=False)  # one at a time
        ran.append(number)
        running.release()

    def bring(begin: int) -> None:
        for number in range(begin, begin + 200):
            if number % 2:
                loop.post(run, number)
            else:
                loop.serve([(run, number)])

    threads = [threading.Thread(target=bring, args=(begin,)) for begin in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loop.call(lambda: None).result(5)
    assert sorted(ran) == [number for begin in (0, 1000, 2000) for number in range(begin, begin + 200)]


def test_a_thread_that_is_interrupted_while_it_works_off_its_news_leaves_the_rest_to_the_devices(
    loop: DeviceLoop, broken: Broken, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    burst, done = loop._burst, threading.Event()

    def interrupted() -> None:
        monkeypatch.setattr(loop, "_burst", burst)
        raise SystemExit("thrown into the thread")

    monkeypatch.setattr(loop, "_burst", interrupted)
    loop.serve([(lambda _: done.set(), None)])
    assert done.wait(5)
    assert [type(error) for error, _ in broken.told] == [SystemExit]
    assert "aioascend-test was interrupted by SystemExit('thrown into the thread') and goes on" in messages(
        caplog, logging.ERROR
    )


def test_an_interruption_after_the_threads_end_arms_nothing(loop: DeviceLoop, broken: Broken) -> None:
    loop.stop()
    loop._interrupted(SystemExit("late"))
    assert [type(error) for error, _ in broken.told] == [SystemExit]
    assert not loop._armed


def test_after_the_threads_end_news_are_refused_and_so_is_a_post_unless_it_was_still_found(loop: DeviceLoop) -> None:
    loop.stop()
    ran: list[int] = []
    for refused in (lambda: loop.serve([(ran.append, 1)]), lambda: loop.post(ran.append, 2), lambda: loop.enter()):
        with pytest.raises(aioascend.SessionClosed, match="aioascend-test is closed"):
            refused()
    assert not loop._inbox
    loop._arm((ran.append, 3))  # which has run, as the thread has found it in its last look
    assert ran == []


def test_the_thread_itself_enters_the_device_again(broken: Broken) -> None:
    entered: list[threading.Thread] = []
    failing = False

    def enter() -> None:
        if failing:
            raise ZeroDivisionError
        entered.append(threading.current_thread())

    loop = DeviceLoop("aioascend-test", enter, broken)
    loop.start()
    loop.enter().result(5)
    assert entered == [loop._thread] * 2
    failing = True
    with pytest.raises(ZeroDivisionError):
        loop.enter().result(5)
    loop.stop()


def test_a_loop_that_was_never_started_has_nothing_to_end() -> None:
    loop = DeviceLoop("aioascend-test", lambda: None)
    loop.stop()
    loop.abandon()
    loop.join(0)
    with pytest.raises(aioascend.SessionClosed, match="is closed"):
        loop.post(print, 1)


def test_a_device_that_was_never_opened_has_nothing_to_abandon_and_takes_no_more_calls() -> None:
    core = DeviceCore(DeviceName("npu", 0), Backend("npu", StubDriver().acl))
    core.abandon()
    core.join_abandoned(0)
    for submit in (core.control, core.copy):
        with pytest.raises(aioascend.SessionClosed, match="npu:0 is closed"):
            submit(print)


def test_a_completion_that_comes_for_a_closed_device_is_said_unless_the_interpreter_exits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = DeviceCore(DeviceName("npu", 0), Backend("npu", StubDriver().acl))
    core._deliver([1], None)
    assert messages(caplog, logging.ERROR) == ["a completion of npu:0 was lost"]
    core.abandoned = True
    core._deliver([2], None)
    assert len(messages(caplog, logging.ERROR)) == 1


async def test_without_uvloop_the_loop_is_asyncios(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    async with aioascend.Session(kit.add(1)) as session:
        assert type(session._pipeline._core._device._loop).__module__.startswith("asyncio.")  # type: ignore[union-attr]
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


async def test_a_session_that_cannot_take_part_in_rebuilds_gives_everything_back(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(emulator)

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    async with aioascend.Session(kit.add(2)) as other:
        monkeypatch.setattr(type(other._pipeline._core.recovery), "join", interrupted)  # type: ignore[union-attr]
        with pytest.raises(KeyboardInterrupt):
            await aioascend.Session(kit.add(1)).open()
        monkeypatch.undo()
        assert (await other.infer(np.zeros(4, np.float32)))[0][0] == 2
    books.assert_balanced()


def test_in_a_forked_child_everything_is_refused_before_any_lock_is_taken() -> None:
    core = DeviceCore(DeviceName("npu", 0), Backend("npu", StubDriver().acl))
    core.mark_forked(lambda: aioascend.ForkedProcess("this process was forked"))
    with core._device._lock:  # held by another thread of the parent, for ever
        for refused in (
            lambda: core.control(print), lambda: core.post(print, None), lambda: core.call(print),
            lambda: core._device.serve([(print, None)]),
        ):  # fmt: skip
            with pytest.raises(aioascend.ForkedProcess, match="was forked"):
                refused()


def test_who_waits_for_the_thread_to_enter_again_is_told_though_it_was_interrupted_meanwhile(
    loop: DeviceLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_enter_again", lambda: None)  # what the interruption hits
        outcome = loop.enter()
        assert loop.call(lambda: 7).result(5) == 7
    assert not outcome.done()
    loop._interrupted(SystemExit("thrown into the thread"))
    assert outcome.result(5) is None


def test_an_entry_that_fails_is_told_to_who_waits() -> None:
    errors: list[Exception] = []

    def enter() -> None:
        if errors:
            raise errors[0]

    loop = DeviceLoop("aioascend-test", enter)
    loop.start()
    errors.append(ZeroDivisionError("in enter"))
    with pytest.raises(ZeroDivisionError, match="in enter"):
        loop.enter().result(5)
    loop.stop()


def test_what_was_to_be_done_later_is_dropped_when_the_thread_has_ended(loop: DeviceLoop) -> None:
    loop.stop()
    loop.later(0.0, lambda: None)


def test_an_abandoned_thread_fails_without_a_word(
    loop: DeviceLoop, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    loop.abandon()
    loop.join(5)
    loop._failed(ZeroDivisionError("in a post"), None)
    loop._interrupted(SystemExit("thrown into the thread"))
    assert broken.told == []
    assert messages(caplog, logging.INFO) == []


@pytest.mark.parametrize("fails", [False, True])
def test_who_was_told_that_the_thread_has_entered_before_it_was_interrupted_is_not_told_again(fails: bool) -> None:
    entered: list[bool] = []

    def enter() -> None:
        entered.append(True)
        if fails and len(entered) == 2:
            raise ZeroDivisionError("in enter")

    loop = DeviceLoop("aioascend-test", enter)
    loop.start()
    told: Future[None] = Future()
    told.set_result(None)
    loop._entries.append(told)  # where the interruption has left it
    assert loop.enter().result(5) is None
    assert (len(entered), told.result(0)) == (3, None)
    loop.stop()
