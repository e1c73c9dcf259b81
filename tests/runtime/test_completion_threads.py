"""The threads that wait for completions, on a driver that does what it is told: failures, interruptions, ends."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aioascend.errors import AclError, DeviceLost, InvalidInput
from aioascend.runtime import completion as module
from aioascend.runtime.completion import Completion, make_completion

pytestmark = pytest.mark.logs_errors

STREAM = 7


def failure(code: int = 507000) -> AclError:
    kind = DeviceLost if code == 507899 else AclError
    return kind(code, "NAME", "a meaning", "acl.rt.process_report", "npu:0", None)


class Fake:
    """A driver whose waits take what they do from a queue: something to raise, something to call, or a value."""

    device = "npu:0"

    def __init__(self, *, ex_events: bool = True) -> None:
        self.has_ex_events = ex_events
        self.reports: queue.Queue[Any] = queue.Queue()
        self.waits: queue.Queue[Any] = queue.Queue()
        self.events: set[int] = set()
        self.created = 0
        self.refuse: set[str] = set()
        self._numbers = itertools.count(1)

    def set_context(self, context: int) -> None: ...

    def subscribe_report(self, ident: int, stream: int) -> None: ...

    def unsubscribe_report(self, ident: int, stream: int) -> None: ...

    def launch_callback(self, function: Callable[[int], None], token: int, stream: int) -> None:
        self.reports.put(lambda: function(token))

    def process_report(self, timeout_ms: int) -> None:
        self._do(self.reports)

    def synchronize_event(self, event: int, timeout_ms: int) -> bool:
        return bool(self._do(self.waits))

    def create_event(self, flags: int) -> int:
        self.created += 1
        event = next(self._numbers)
        self.events.add(event)
        return event

    def record_event(self, event: int, stream: int) -> None:
        if "record_event" in self.refuse:
            raise failure()

    def destroy_event(self, event: int) -> None:
        self.events.remove(event)
        if "destroy_event" in self.refuse:
            raise failure()

    def as_error(self, error: BaseException, call: str) -> AclError:
        return error if isinstance(error, AclError) else AclError(500000, "FAILURE", repr(error), call, "npu:0", None)

    def _do(self, what: queue.Queue[Any]) -> Any:
        try:
            item = what.get(timeout=0.005)
        except queue.Empty:
            return False
        if isinstance(item, BaseException):
            raise item
        return item() if callable(item) else item


class Told:
    """What was delivered, and which errors were told to everybody."""

    def __init__(self) -> None:
        self.tokens: list[tuple[int, AclError | None]] = []
        self.lost: list[AclError] = []

    def deliver(self, tokens: list[int], error: AclError | None) -> None:
        self.tokens += [(token, error) for token in tokens]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def made(fake: Fake, told: Told, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Completion]]:
    """Makes the completion of a way, and ends it after the test."""
    all_made: list[Completion] = []

    def make(way: str) -> Completion:
        monkeypatch.setenv("AIOASCEND_COMPLETION", way)
        one = make_completion(fake, 1, told.deliver, told.lost.append)  # type: ignore[arg-type]
        all_made.append(one)
        one.attach(STREAM)
        return one

    yield make
    for one in all_made:
        one.abandon()
        one.join(5)


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < limit, "it never came to hold"
        time.sleep(0.001)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "aioascend.runtime"]


def test_another_way_is_refused_by_name(made: Callable[[str], Completion]) -> None:
    with pytest.raises(InvalidInput, match=r"AIOASCEND_COMPLETION: wanted .* given 'smoke signals'"):
        made("smoke signals")


# -- reports ----------------------------------------------------------------------------------------------------------


def test_reports_that_fail_are_logged_once_and_told_to_everybody_at_the_fourth(
    fake: Fake, told: Told, made: Callable[[str], Completion], caplog: pytest.LogCaptureFixture
) -> None:
    completion = made("callback")
    for _ in range(4):
        assert not told.lost
        fake.reports.put(failure())
    until(lambda: len(told.lost) == 1)
    completion.arm(STREAM, 1)
    until(lambda: told.tokens == [(1, None)])
    assert told.lost[0].code == 507000
    assert len(messages(caplog)) == 1
    fake.reports.put(SystemError("a callback raised"))  # another row of failures
    until(lambda: len(messages(caplog)) == 2)
    assert len(told.lost) == 1


@pytest.mark.parametrize("error", [failure(507899), SystemExit("thrown into the thread")], ids=["lost", "exit"])
def test_a_lost_device_and_an_interruption_are_told_at_once(
    error: BaseException, fake: Fake, told: Told, made: Callable[[str], Completion]
) -> None:
    completion = made("callback")
    fake.reports.put(error)
    until(lambda: len(told.lost) == 1)
    completion.arm(STREAM, 1)
    until(lambda: told.tokens == [(1, None)])


class Gate:
    """A gate whose wait is interrupted once, as by an exception thrown into its thread."""

    def __init__(self, gate: threading.Event, before: Callable[[], None] = lambda: None) -> None:
        self._gate, self._before, self.interrupted = gate, before, False

    def wait(self) -> bool:
        if not self.interrupted:
            self.interrupted = True
            self._before()
            raise SystemExit("in the gate")
        return self._gate.wait()

    def set(self) -> None:
        self._gate.set()

    def clear(self) -> None:
        self._gate.clear()


def test_a_report_thread_that_is_interrupted_between_two_reports_goes_on(
    told: Told, made: Callable[[str], Completion], caplog: pytest.LogCaptureFixture
) -> None:
    completion: Any = made("callback")
    completion._gate = Gate(completion._gate)
    completion.detach(STREAM)  # while it has no stream its thread waits at the gate
    until(lambda: len(told.lost) == 1)  # a token may have gone with it
    completion.attach(STREAM)
    completion.arm(STREAM, 1)
    until(lambda: told.tokens == [(1, None)])
    assert ["was interrupted by SystemExit" in message for message in messages(caplog)] == [True]


def test_a_report_thread_that_is_interrupted_while_it_is_stopped_ends(
    told: Told, made: Callable[[str], Completion], caplog: pytest.LogCaptureFixture
) -> None:
    completion: Any = made("callback")
    completion._gate = Gate(completion._gate, completion.abandon)
    completion.detach(STREAM)
    completion.join(5)
    assert not completion._thread.is_alive()
    assert (told.lost, messages(caplog)) == ([], [])


def test_a_report_that_fails_when_its_thread_is_stopped_is_nobodys_concern(
    fake: Fake, told: Told, made: Callable[[str], Completion], caplog: pytest.LogCaptureFixture
) -> None:
    completion: Any = made("callback")

    def stop_and_fail() -> None:
        completion.abandon()
        raise failure(507899)

    fake.reports.put(stop_and_fail)
    completion.join(5)
    assert not completion._thread.is_alive()
    assert (told.lost, messages(caplog)) == ([], [])


def test_what_comes_while_the_thread_is_being_stopped_is_delivered_to_nobody(
    fake: Fake, told: Told, made: Callable[[str], Completion]
) -> None:
    completion: Any = made("callback")

    def come_and_stop() -> None:
        completion._function(1)
        completion.abandon()

    fake.reports.put(come_and_stop)
    completion.join(5)
    assert not completion._thread.is_alive()
    assert told.tokens == []


def test_a_report_thread_that_does_not_end_is_said(
    fake: Fake, made: Callable[[str], Completion], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_JOIN_S", 0.02)
    completion = made("callback")
    go, inside = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        go.wait(10)

    fake.reports.put(hang)
    assert inside.wait(5)
    completion.stop()
    assert messages(caplog) == ["the report thread of npu:0 has not ended"]
    go.set()


# -- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fake", [Fake(ex_events=True), Fake(ex_events=False)], ids=["ex", "old CANN"])
def test_events_are_used_again_where_they_may_be(fake: Fake, told: Told, made: Callable[[str], Completion]) -> None:
    completion = made("event")
    for token in (1, 2, 3):
        completion.arm(STREAM, token)
        fake.waits.put(False)  # a timeout
        fake.waits.put(True)
        until(lambda token=token: len(told.tokens) == token)  # type: ignore[misc]
        until(lambda: fake.has_ex_events or not fake.events)
    assert told.tokens == [(1, None), (2, None), (3, None)]
    assert fake.created == (1 if fake.has_ex_events else 3)
    completion.detach(STREAM)
    assert fake.events == set()


def test_a_wait_that_fails_is_delivered_with_what_it_failed_with(
    fake: Fake, told: Told, made: Callable[[str], Completion]
) -> None:
    completion = made("event")
    for token, error in enumerate((failure(), SystemError("no error of ours")), 1):
        completion.arm(STREAM, token)
        fake.waits.put(error)
        until(lambda token=token: len(told.tokens) == token)  # type: ignore[misc]
    assert [error.code for _, error in told.tokens if error is not None] == [507000, 500000]


def test_an_event_that_cannot_be_recorded_is_given_back_and_the_first_cause_told(
    fake: Fake, told: Told, made: Callable[[str], Completion], caplog: pytest.LogCaptureFixture
) -> None:
    completion = made("event")
    fake.refuse = {"record_event", "destroy_event"}
    with pytest.raises(AclError, match="507000"):
        completion.arm(STREAM, 1)
    assert fake.events == set()
    assert ["507000" in message for message in messages(caplog)] == [True]  # that of the clean-up
    fake.refuse = set()
    completion.arm(STREAM, 2)
    fake.waits.put(True)
    until(lambda: told.tokens == [(2, None)])


def test_an_event_thread_that_is_interrupted_delivers_what_it_was_at(
    fake: Fake, told: Told, made: Callable[[str], Completion], caplog: pytest.LogCaptureFixture
) -> None:
    completion = made("event")
    fake.waits.put(SystemExit("thrown into the thread"))
    fake.waits.put(True)
    completion.arm(STREAM, 1)
    until(lambda: told.tokens == [(1, None)])
    assert ["was interrupted by SystemExit" in message for message in messages(caplog)] == [True]


@pytest.mark.parametrize("last", [False, failure()], ids=["a timeout", "a failure"])
def test_an_abandoned_wait_ends_without_a_word_and_its_event_is_given_back(
    last: Any, fake: Fake, told: Told, made: Callable[[str], Completion]
) -> None:
    completion = made("event")
    waiting = threading.Event()

    def wait() -> Any:
        waiting.set()
        until(lambda: abandoned.is_set())
        if isinstance(last, Exception):
            raise last
        return last

    abandoned = threading.Event()
    fake.waits.put(wait)
    completion.arm(STREAM, 1)
    completion.arm(STREAM, 2)
    assert waiting.wait(5)
    completion.hurry()
    abandoned.set()
    completion.forget(STREAM)
    assert told.tokens == []
    assert fake.events == set()


def test_threads_left_behind_with_their_streams_end_with_the_completion(made: Callable[[str], Completion]) -> None:
    completion: Any = made("event")
    (waiter,) = completion._waiters.values()
    completion.stop()
    completion.join(5)
    assert not waiter._thread.is_alive()
