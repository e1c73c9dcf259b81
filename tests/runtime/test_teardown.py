"""Giving back what is in a context: every step happens, no wait is for ever, and what stays behind is said."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from aioascend.errors import AclError, DeviceLost, ExecutionFailed
from aioascend.runtime import teardown as teardowns
from aioascend.runtime.teardown import Teardown

STREAM = 7


def failure(call: str) -> AclError:
    return ExecutionFailed(507015, "ACL_ERROR_RT_AICORE_EXCEPTION", "an AI core failed", call, "npu:0", None)


class Streams:
    """A driver whose calls give what they are told to, and raise it where it is an error."""

    device = "npu:0"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append((name, args))
            answer = self.answers.get(name, True)
            if isinstance(answer, list):
                answer = answer.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        call.__name__ = name
        return call

    def as_error(self, error: BaseException, call: str) -> AclError:
        return ExecutionFailed(500000, "FAILURE", "failed", call, self.device, f"{type(error).__name__}: {error}")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def torn_down(driver: Streams, seconds: float | None = 5.0) -> Teardown:
    """Finish and destroy one stream."""
    teardown = Teardown(driver, seconds)  # type: ignore[arg-type]
    teardown.finish_stream(STREAM)
    teardown.destroy_stream(STREAM)
    return teardown


def test_a_step_that_fails_in_a_healthy_close_is_logged_and_the_next_happen(caplog: pytest.LogCaptureFixture) -> None:
    driver = Streams(synchronize_stream=[failure("acl.rt.synchronize_stream"), True])
    with caplog.at_level(logging.WARNING, "aioascend.runtime"):
        teardown = torn_down(driver, seconds=None)
    assert driver.calls == [*[("synchronize_stream", (STREAM, -1))] * 2, ("destroy_stream", (STREAM,))]
    (record,) = caplog.records
    assert record.getMessage().startswith("while closing: acl.rt.synchronize_stream")
    assert not teardown.notes


@pytest.mark.parametrize("kind", [SystemError, SystemExit])
@pytest.mark.parametrize("call", ["synchronize_stream", "abort_stream", "destroy_stream_by_force", "destroy_stream"])
def test_a_step_that_raises_what_is_no_error_of_ours_is_a_note_too(call: str, kind: type[BaseException]) -> None:
    answers: dict[str, Any] = {"abort_stream": False, "synchronize_stream": call == "destroy_stream"}
    teardown = torn_down(Streams(**{**answers, call: kind("returned a result")}))
    assert any(f"{kind.__name__}: returned a result" in note for note in teardown.notes)


def test_a_stream_that_is_done_in_time_is_destroyed_without_a_note() -> None:
    driver = Streams()
    teardown = torn_down(driver)
    assert driver.names == ["synchronize_stream", "destroy_stream"]
    (_, (stream, left)) = driver.calls[0]
    assert stream == STREAM
    assert 0 < left <= 5000
    assert (teardown.notes, teardown.stuck) == ([], set())


def test_what_the_tasks_of_a_dead_context_failed_with_is_a_note_and_the_stream_is_asked_again() -> None:
    driver = Streams(synchronize_stream=[failure("acl.rt.synchronize_stream"), True])
    teardown = torn_down(driver)
    assert driver.names == ["synchronize_stream", "synchronize_stream", "destroy_stream"]  # there is nothing to abort
    (note,) = teardown.notes
    assert "507015" in note
    assert not teardown.stuck


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_a_stream_that_answers_with_failures_only_is_not_taken_for_an_empty_one(seconds: float | None) -> None:
    driver = Streams(
        synchronize_stream=failure("acl.rt.synchronize_stream"), abort_stream=False, destroy_stream_by_force=False
    )
    teardown = torn_down(driver, seconds)
    assert driver.names == [*["synchronize_stream"] * 4, "abort_stream", "destroy_stream_by_force"]
    assert teardown.stuck == {STREAM}


def test_a_device_that_is_lost_is_not_asked_twice() -> None:
    gone = DeviceLost(507010, "ACL_ERROR_RT_LOST_HEARTBEAT", "it is gone", "acl.rt.synchronize_stream", "npu:0", None)
    driver = Streams(synchronize_stream=gone)
    teardown = torn_down(driver)
    assert driver.names == ["synchronize_stream", "destroy_stream"]  # it touches nothing any more
    assert not teardown.stuck


def test_a_stream_that_hangs_is_aborted_and_then_destroyed_like_any_other() -> None:
    driver = Streams(synchronize_stream=[False, True])
    teardown = torn_down(driver)
    assert driver.names == ["synchronize_stream", "abort_stream", "synchronize_stream", "destroy_stream"]
    assert (teardown.notes, teardown.stuck) == ([], set())


@pytest.mark.parametrize("aborts", [True, False], ids=["aborted", "destroyed by force"])
def test_once_a_stream_that_hung_is_gone_those_that_waited_behind_it_have_time(aborts: bool) -> None:
    driver = Streams(synchronize_stream=[False, True, True] if aborts else [False, True], abort_stream=aborts)
    teardown = torn_down(driver, seconds=0.0)
    teardown.finish_stream(STREAM + 1)
    (_, (_, first)), *_, (call, (behind, left)) = [one for one in driver.calls if one[0] == "synchronize_stream"]
    assert (call, behind, first) == ("synchronize_stream", STREAM + 1, 1)
    assert left > 100
    assert not teardown.stuck


def test_what_waited_is_given_its_time_once_however_many_streams_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(teardowns.time, "monotonic", lambda: now)
    driver = Streams(synchronize_stream=False, abort_stream=False)
    teardown = Teardown(driver, seconds=2.0)  # type: ignore[arg-type]
    for stream in range(10):
        teardown.finish_stream(stream)
        (_, (_, milliseconds)) = [one for one in driver.calls if one[0] == "synchronize_stream"][-1]
        now += milliseconds / 1000
        teardown.destroy_stream(stream)
    assert 100 + 2 < now < 100 + 2 + teardowns._BEHIND_S + 0.1
    assert not teardown.stuck


def test_a_healthy_close_waits_for_what_is_behind_a_stream_that_hung_without_a_limit() -> None:
    driver = Streams(synchronize_stream=[False, True, True])
    torn_down(driver, seconds=None).finish_stream(STREAM + 1)
    assert driver.calls[-1] == ("synchronize_stream", (STREAM + 1, -1))


def test_an_abort_that_fails_is_a_note_and_the_stream_is_destroyed_by_force() -> None:
    driver = Streams(synchronize_stream=False, abort_stream=failure("acl.rt.stream_abort"))
    teardown = torn_down(driver)
    assert driver.names == ["synchronize_stream", "abort_stream", "destroy_stream_by_force"]
    assert "acl.rt.stream_abort" in teardown.notes[0]
    assert not teardown.stuck


@pytest.mark.parametrize("aborts", [False, True], ids=["no abort", "an abort that does not help"])
@pytest.mark.parametrize(
    "by_force, notes, stuck",
    [
        (True, [], set()),
        (False, ["a stream of npu:0 that hangs was left behind, with what it uses"], {STREAM}),
        (failure("acl.rt.destroy_stream_force"), [str(failure("acl.rt.destroy_stream_force"))], set()),
    ],
)
def test_a_stream_that_cannot_be_aborted_is_destroyed_by_force_or_left_behind(
    aborts: bool, by_force: Any, notes: list[str], stuck: set[int]
) -> None:
    driver = Streams(synchronize_stream=False, abort_stream=aborts, destroy_stream_by_force=by_force)
    teardown = torn_down(driver)
    assert driver.names[-1] == "destroy_stream_by_force"
    assert "destroy_stream" not in driver.names
    assert teardown.notes == ["a stream of npu:0 still has work and cannot be aborted", *notes]
    assert teardown.stuck == stuck


def test_all_waits_of_a_teardown_share_one_limit() -> None:
    driver = Streams()
    teardown = Teardown(driver, 0.0)  # type: ignore[arg-type]
    teardown.finish_stream(STREAM)
    assert driver.calls == [("synchronize_stream", (STREAM, 1))]


def test_callbacks_that_a_dead_context_has_dropped_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(teardowns, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    asked = 0

    def arrived() -> bool:
        nonlocal asked
        asked += 1
        return False

    healthy = Teardown(Streams(), None)  # type: ignore[arg-type]
    healthy.wait_until(lambda: True)  # which has had them all
    for _ in range(2):
        before = asked
        healthy.wait_until(arrived)
        assert asked > before + 2  # each has its moment
    asked = 0
    teardown = Teardown(Streams(), 5.0)  # type: ignore[arg-type]
    teardown.wait_until(arrived)
    before = asked
    assert before > 1
    teardown.wait_until(arrived)
    assert asked <= before + 2  # the time is up for all of them together
    answers = iter([False, False, True])
    Teardown(Streams(), 5.0).wait_until(lambda: next(answers))  # type: ignore[arg-type]
    assert next(answers, None) is None
