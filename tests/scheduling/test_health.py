"""What becomes of a device after a fault, decided without a device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioascend.scheduling.health import Health, HealthState, Severity, Step


def test_a_failed_task_is_no_concern_of_the_device() -> None:
    health = Health()
    assert health.fault(Severity.TASK, 0.0, 0) is None
    assert health.state is HealthState.HEALTHY


def test_a_dead_context_is_rebuilt_once_however_many_see_it() -> None:
    health = Health()
    assert health.fault(Severity.CONTEXT, 0.0, 0) is Step.REBUILD
    assert health.fault(Severity.CONTEXT, 0.1, 0) is None
    assert health.fault(Severity.DEVICE, 0.1, 0) is None  # the rebuild will find that out
    assert health.ask() is None
    health.rebuilt()
    assert (health.state, health.rebuilds) == (HealthState.HEALTHY, 1)


def test_a_lost_device_is_probed_at_growing_intervals_until_it_answers() -> None:
    health = Health(first=1.0, longest=4.0)
    assert health.fault(Severity.DEVICE, 10.0, 0) is Step.QUARANTINE
    now, waits = 10.0, []
    for _ in range(5):
        assert health.next_probe is not None
        waits.append(health.next_probe - now)
        assert health.due(health.next_probe - 0.001) is None
        now = health.next_probe
        assert health.due(now) is Step.PROBE
        assert health.due(now) is None
        assert health.failed(now) is Step.QUARANTINE
    assert waits == [1, 2, 4, 4, 4]
    assert health.ask() is Step.PROBE
    health.answered()
    assert health.serves
    health.rebuilt()
    assert health.state is HealthState.HEALTHY


def test_a_hung_stream_is_aborted_or_the_device_counts_as_lost() -> None:
    health = Health()
    assert health.stalled() is Step.ABORT
    assert health.stalled() is None
    assert health.aborted(True, 0.0) is None
    assert health.state is HealthState.HEALTHY
    health.stalled()
    assert health.aborted(False, 0.0) is Step.QUARANTINE


def test_a_device_on_which_nothing_works_any_more_counts_as_lost() -> None:
    health = Health(patience=3)
    for _ in range(3):
        assert health.fault(Severity.CONTEXT, 0.0, 7) is Step.REBUILD
        health.rebuilt()
    assert health.fault(Severity.CONTEXT, 0.0, 7) is Step.QUARANTINE
    health.due(1.0)
    health.rebuilt()
    assert health.fault(Severity.CONTEXT, 2.0, 8) is Step.REBUILD  # something has worked since


def test_success_brings_the_interval_of_the_probes_back_to_the_first() -> None:
    health = Health(first=1.0, longest=8.0)
    for worked, wait in ((0, 1.0), (0, 2.0), (5, 1.0)):
        assert health.fault(Severity.DEVICE, 10.0, worked) is Step.QUARANTINE
        assert health.next_probe == 10.0 + wait
        assert health.due(20.0) is Step.PROBE
        health.answered()
        health.rebuilt()


def test_the_outcome_of_what_is_not_under_way_any_more_changes_nothing() -> None:
    health = Health()
    health.answered()
    health.rebuilt()
    assert health.failed(0.0) is None
    assert health.aborted(False, 0.0) is None
    assert (health.state, health.rebuilds) == (HealthState.HEALTHY, 0)
    health.stalled()
    assert health.fault(Severity.CONTEXT, 0.0, 0) is Step.REBUILD  # the context died while its stream was aborted
    for worked in (True, False):
        assert health.aborted(worked, 0.0) is None
    assert health.state is HealthState.REBUILDING
    health.answered()
    assert health.state is HealthState.REBUILDING


def test_a_rebuild_that_waits_for_what_hangs_has_it_aborted_first() -> None:
    health = Health()
    assert health.ask() is Step.REBUILD
    assert health.stalled() is None  # it is under way
    assert health.stalled(draining=True) is Step.ABORT
    assert health.aborted(True, 0.0) is None
    assert health.ask() is Step.REBUILD


EVENTS = st.sampled_from(["task", "context", "device", "stalled", "aborted", "not aborted", "ask", "due", "answered",
                          "rebuilt", "failed", "work", "wait"])  # fmt: skip


@given(st.lists(EVENTS, max_size=60))
def test_whatever_happens_the_device_is_on_its_way_to_health(events: list[str]) -> None:
    """Probes stay bounded, one thing is done at a time, and from every state a good outcome leads back to health."""
    health = Health(first=1.0, longest=8.0, patience=4)
    now, worked = 0.0, 0
    doing: Step | None = None
    for event in events:
        before = health.state
        step = None
        if event in ("task", "context", "device"):
            step = health.fault(Severity[event.upper()], now, worked)
        elif event == "stalled":
            step = health.stalled()
        elif event in ("aborted", "not aborted") and doing is Step.ABORT:
            step, doing = health.aborted(event == "aborted", now), None
        elif event == "ask":
            step = health.ask()
        elif event == "due":
            step = health.due(now)
        elif event == "answered" and doing is Step.PROBE:
            health.answered()
        elif event == "rebuilt" and doing in (Step.REBUILD, Step.PROBE):
            health.rebuilt()
            doing = None
        elif event == "failed" and doing in (Step.REBUILD, Step.PROBE):
            step, doing = health.failed(now), None
        elif event == "work" and health.state is HealthState.HEALTHY:
            worked += 1
        elif event == "wait":
            now += 3.0
        if step in (Step.REBUILD, Step.PROBE):
            assert doing in (None, Step.ABORT), "two rebuilds at a time"
        if step is not None:
            doing = None if step is Step.QUARANTINE else step
        if event == "task":
            assert health.state is before
        if health.state is HealthState.LOST:
            assert health.next_probe is not None
            assert health.next_probe - now <= 8.0
            assert doing is None
        if health.state in (HealthState.REBUILDING, HealthState.PROBING):
            assert doing in (Step.REBUILD, Step.PROBE)
    if health.state is HealthState.SUSPECT:
        health.aborted(True, now)
    if health.state is HealthState.LOST:
        assert health.due(now + 8.0) is Step.PROBE
    if health.state is not HealthState.HEALTHY:
        health.rebuilt()
    assert health.state is HealthState.HEALTHY


@pytest.mark.parametrize("state,serves", [(Severity.CONTEXT, True), (Severity.DEVICE, False)])
def test_requests_wait_for_a_rebuild_and_not_for_a_lost_device(state: Severity, serves: bool) -> None:
    health = Health()
    health.fault(state, 0.0, 0)
    assert health.serves is serves
