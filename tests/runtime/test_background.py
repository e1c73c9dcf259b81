"""Threads for the slow steps of opening and closing, also where Ctrl-C comes while one is started."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from aioascend.runtime.background import _under_way, go_on, in_background, join_all, run_in_background, start_thread


def test_what_a_thread_raises_is_the_outcome() -> None:
    def fail() -> None:
        raise KeyboardInterrupt("inside")

    assert in_background("aioascend-test", lambda: 7).result(5) == 7
    with pytest.raises(KeyboardInterrupt, match="inside"):
        in_background("aioascend-test", fail).result(5)


def test_what_runs_in_the_background_is_waited_for_a_while() -> None:
    go = threading.Event()
    outcome = in_background("aioascend-test", lambda: go.wait(10))
    join_all(0.02)
    assert not outcome.done()
    go.set()
    join_all(10)
    assert outcome.done()


def test_a_start_that_was_interrupted_before_the_thread_ran_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    late: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        late.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    called: list[int] = []
    outcome: Future[None] = Future()
    with pytest.raises(KeyboardInterrupt):
        run_in_background("aioascend-test", lambda: called.append(1), outcome)
    assert isinstance(outcome.exception(0), KeyboardInterrupt)
    monkeypatch.undo()
    start(late[0])  # the thread comes all the same, when its waiter has been told that it does not
    late[0].join(5)
    assert called == []


def test_a_start_that_was_interrupted_when_the_thread_ran_already_goes_on_to_its_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start
    began = threading.Event()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        began.wait(5)
        raise KeyboardInterrupt

    def work() -> int:
        began.set()
        return 7

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    outcome: Future[int] = Future()
    with pytest.raises(KeyboardInterrupt):
        run_in_background("aioascend-test", work, outcome)
    assert outcome.result(5) == 7


def test_a_thread_whose_first_step_fails_does_not_run_and_says_why() -> None:
    ran: list[int] = []

    def enter() -> None:
        raise OSError("no context")

    with pytest.raises(OSError, match="no context"):
        start_thread("aioascend-test", enter, lambda: ran.append(1))
    thread = start_thread("aioascend-test", lambda: ran.append(2), lambda: ran.append(3))
    thread.join(5)
    assert ran == [2, 3]


def test_a_thread_that_has_not_been_started_yet_is_not_waited_for() -> None:
    thread = threading.Thread(target=lambda: None)
    _under_way.add(thread)
    try:
        join_all(10)
    finally:
        _under_way.discard(thread)
    assert thread.ident is None


def test_a_thread_goes_on_though_it_is_hit_again_while_it_tells_of_the_first() -> None:
    served, told = 0, list[BaseException]()

    def serve() -> None:
        nonlocal served
        served += 1
        if served == 1:
            raise SystemExit("first")

    def interrupted(error: BaseException) -> None:
        told.append(error)
        if len(told) == 1:
            raise KeyboardInterrupt("second")

    go_on(serve, interrupted)
    assert served == 2
    assert [str(error) for error in told] == ["first", "second"]
