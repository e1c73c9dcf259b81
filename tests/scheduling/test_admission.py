"""The queue of a session: who is let in, who is copied in, who is launched, who is too late."""

from __future__ import annotations

from typing import Any

import pytest

from aioascend.scheduling.admission import Admission, QueueFull, Stale, Where

OPTIONS = {"lanes": 1, "depth": 2, "staging": 2, "outlets": 3, "max_waiting": 4, "max_waiting_bytes": 1 << 20}


def queue(**changes: int) -> Admission[int]:
    return Admission(**{**OPTIONS, **changes})


def stage_all(admission: Admission[int], now: float = 0.0) -> list[tuple[int, int]]:
    """Copy in whatever can be copied in and launch whatever can be launched; the launches."""
    launched = []
    while decision := admission.decide(now):
        launched += decision.launch
        for item in decision.stage:
            admission.staged(item)
    return launched


def run(admission: Admission[int], item: int, start: float, seconds: float, **options: Any) -> None:
    """One item from its offer to its end, alone on the device for `seconds`."""
    admission.offer(item, patient=True, pinned=True, **options)
    assert stage_all(admission, start) == [(item, 0)]
    admission.finished(item, start + seconds)
    admission.drained(item)


def test_items_are_staged_and_launched_in_the_order_of_their_arrival() -> None:
    admission = queue()
    for item in (1, 2, 3):
        admission.offer(item)
    assert admission.decide(0).stage == [1, 2]
    assert (admission.staging, admission.copying) == (2, 2)
    admission.staged(2)
    assert (admission.staging, admission.copying) == (2, 1)
    assert admission.decide(0).launch == []  # 1 came first
    admission.staged(1)
    assert admission.decide(0).launch == [(1, 0), (2, 0)]


def test_the_urgent_are_staged_first() -> None:
    admission = queue(staging=1)
    for item, priority in ((1, 0), (2, 0), (3, -1), (4, 1)):
        admission.offer(item, priority=priority)
    order = []
    while decision := admission.decide(0):
        order += decision.stage
        for item in decision.stage:
            admission.withdraw(item)
            admission.staged(item)
            admission.staging_freed()
    assert order == [3, 1, 2, 4]


def test_what_is_in_pinned_memory_already_goes_before_an_urgent_newcomer() -> None:
    admission = queue(depth=1, outlets=2)
    for item in (1, 2, 3, 4):
        admission.offer(item)
    launched = stage_all(admission)
    assert launched == [(1, 0)]
    admission.offer(5, priority=-1)
    for item in (1, 2, 5):
        admission.staging_freed()
        admission.finished(item, 1.0)
        admission.drained(item)
        launched += stage_all(admission)
    assert launched == [(1, 0), (2, 0), (5, 0), (3, 0)]


def test_no_more_run_than_the_depth_allows() -> None:
    admission = queue(staging=5)
    for item in range(5):
        admission.offer(item, patient=True)
    assert [item for item, _ in stage_all(admission)] == [0, 1]
    admission.finished(0, now=1.0)
    assert [item for item, _ in admission.decide(1).launch] == [2]


def test_a_result_that_is_still_copied_out_keeps_its_pinned_outputs() -> None:
    admission = queue(staging=5, outlets=2)
    for item in range(3):
        admission.offer(item)
    assert len(stage_all(admission)) == 2
    admission.finished(0, now=1.0)
    assert not admission.decide(1)  # a place is free, an output buffer is not
    admission.drained(0)
    assert admission.decide(1).launch == [(2, 0)]


def test_a_freed_staging_buffer_takes_the_next() -> None:
    admission = queue(staging=1)
    admission.offer(1)
    admission.offer(2)
    assert admission.decide(0).stage == [1]
    admission.staged(1)
    assert admission.decide(0).stage == []
    admission.staging_freed()
    assert admission.decide(0).stage == [2]


def test_the_lane_with_the_fewest_running_gets_the_next() -> None:
    admission = queue(lanes=2, staging=4)
    for item in range(4):
        admission.offer(item)
    assert [lane for _, lane in stage_all(admission)] == [0, 1, 0, 1]


def test_a_full_queue_refuses_the_impatient_and_keeps_the_patient() -> None:
    admission = queue(max_waiting=1, staging=1)
    admission.offer(1)
    admission.decide(0)
    admission.offer(2)
    with pytest.raises(QueueFull) as refused:
        admission.offer(3)
    assert refused.value.waiting == 1
    assert refused.value.retry_after is None  # nothing has finished yet: no estimate is made up
    admission.offer(4, patient=True)
    assert admission.pending() == [1, 2, 4]


def test_bytes_bound_the_queue_as_numbers_do() -> None:
    admission = queue(max_waiting=100, max_waiting_bytes=1000, staging=1)
    admission.offer(1, nbytes=600)
    admission.decide(0)
    admission.offer(2, nbytes=600)
    admission.offer(3, nbytes=400)
    with pytest.raises(QueueFull) as refused:
        admission.offer(4, nbytes=1)
    assert refused.value.waiting_bytes == 1000
    admission.offer(5, nbytes=10_000, patient=True)  # its producer waits, and so holds one at a time
    admission.offer(6, nbytes=0)
    assert admission.withdraw(2) is Where.WAITING
    admission.offer(7, nbytes=600)
    assert admission.waiting_bytes == 1000


def test_what_can_be_staged_at_once_does_not_wait() -> None:
    admission = queue(max_waiting=0, max_waiting_bytes=0, staging=2)
    admission.offer(1, nbytes=10)
    admission.offer(2, nbytes=10)
    with pytest.raises(QueueFull):
        admission.offer(3, nbytes=10)
    assert admission.decide(0).stage == [1, 2]
    with pytest.raises(QueueFull):
        admission.offer(3, nbytes=10)
    assert admission.waiting_bytes == 0


def test_patient_items_take_no_room_from_the_impatient() -> None:
    admission = queue(max_waiting=2, staging=0)
    for item in range(100):
        admission.offer(item, patient=True)
    admission.offer(100)
    admission.offer(101)
    with pytest.raises(QueueFull):
        admission.offer(102)
    assert admission.withdraw(100) is Where.WAITING
    admission.offer(102)
    assert admission.pending() == [*range(100), 101, 102]


def test_a_held_lane_gets_nothing() -> None:
    admission = queue(lanes=2, staging=4)
    admission.hold(0, True)
    for item in range(3):
        admission.offer(item)
    assert stage_all(admission) == [(0, 1), (1, 1)]
    admission.hold(0, False)
    assert admission.decide(0).launch == [(2, 0)]


# -- the retry estimate -----------------------------------------------------------------------------------------------


def test_the_retry_estimate_is_the_pace_times_what_stands_before_it() -> None:
    admission = queue(max_waiting=2, depth=1, staging=1, outlets=2)
    for item in range(4):
        run(admission, item, start=item, seconds=0.5)
    for item, priority in ((10, 0), (11, 0), (12, 5)):
        admission.offer(item, priority=priority)
    assert [admission.retry_after(priority) for priority in (-1, 0, 5)] == pytest.approx([0.5, 1.0, 1.5])
    with pytest.raises(QueueFull) as refused:
        admission.offer(13)
    assert refused.value.retry_after == pytest.approx(1.0)


def test_a_pause_between_requests_is_no_slowness() -> None:
    admission = queue()
    run(admission, 1, start=0, seconds=0.1)
    run(admission, 2, start=3600, seconds=0.1)
    assert admission.retry_after() == pytest.approx(0.1)


# -- deadlines --------------------------------------------------------------------------------------------------------


def test_who_is_too_late_is_handed_back_and_never_launched() -> None:
    admission = queue(staging=1, depth=1)
    for item, deadline in ((1, None), (2, 5.0), (3, 4.0), (4, None)):
        admission.offer(item, deadline=deadline)
    assert stage_all(admission, 0.0) == [(1, 0)]
    admission.staging_freed()
    assert admission.decide(3.9).stage == [2]
    decision = admission.decide(4.0)
    assert (decision.expired, decision.stage) == ([(3, Where.WAITING)], [])
    assert admission.decide(5.0).expired == [(2, Where.STAGING)]
    assert admission.staged(2) is False
    admission.staging_freed()
    assert admission.decide(5.0).stage == [4]


def test_a_staged_item_can_be_too_late_too() -> None:
    admission = queue(depth=1)
    admission.offer(1)
    admission.offer(2, deadline=5.0)
    stage_all(admission, 0.0)
    assert admission.decide(6.0).expired == [(2, Where.STAGED)]
    assert admission.withdraw(2) is Where.ELSEWHERE


def test_what_was_offered_too_late_is_never_staged() -> None:
    admission = queue()
    admission.offer(1, deadline=1.0)
    assert admission.decide(2.0).expired == [(1, Where.WAITING)]
    assert admission.idle


def test_a_running_item_has_no_deadline_any_more() -> None:
    admission = queue()
    admission.offer(1, deadline=1.0, pinned=True)
    assert admission.decide(0.0).launch == [(1, 0)]
    assert not admission.decide(2.0)


def test_on_a_busy_device_an_item_with_less_time_left_than_any_run_took_is_too_late() -> None:
    """Else in lasting overload the device would spend itself on requests that time out while they run."""
    admission = queue(depth=1, outlets=2)
    for item in range(32):
        run(admission, item, start=item, seconds=0.5)
    admission.offer(100, pinned=True, deadline=100.1)
    assert admission.decide(100.0).launch == [(100, 0)]  # an idle device: there is nothing to lose by trying
    admission.offer(101, pinned=True, deadline=100.6)
    assert not admission.decide(100.05).expired
    assert admission.decide(100.2).expired == [(101, Where.STAGED)]
    admission.offer(102, pinned=True, deadline=100.6)
    admission.offer(103, pinned=True)
    admission.finished(100, 100.5)
    admission.drained(100)
    decision = admission.decide(100.5)  # idle again, but there is better to do
    assert decision.launch == [(103, 0)]
    assert [item for item, _ in decision.expired] == [102]


def test_in_lasting_overload_what_the_device_does_is_in_time() -> None:
    """Twice as many callers as the device can serve, each with a limit of one second."""
    admission = queue(depth=1, staging=1, outlets=2, max_waiting=1000)
    service, limit = 0.1, 1.0
    offered = in_time = late = 0
    running: int | None = None
    free_at = next_offer = now = 0.0
    while now < 60:
        if next_offer <= now:
            admission.offer(offered, pinned=True, deadline=now + limit)
            offered += 1
            next_offer += service / 2
        if running is not None and free_at <= now:
            admission.finished(running, now)
            admission.drained(running)
            born = running * service / 2
            in_time, late = (in_time + 1, late) if now - born <= limit + 1e-9 else (in_time, late + 1)
            running = None
        for item, _ in stage_all(admission, now):
            running, free_at = item, now + service
        now = min(next_offer, free_at if running is not None else next_offer)
    assert late < 40  # before the pace was known
    assert in_time > 500  # of about 600 that the device can do in that time


# -- cancelling, and what does not fit --------------------------------------------------------------------------------


def test_items_in_pinned_memory_of_their_own_need_no_staging_buffer() -> None:
    admission = queue(staging=1)
    admission.offer(1)
    admission.offer(2, pinned=True)
    decision = admission.decide(0)
    assert decision.stage == [1]
    assert decision.launch == []  # 2 is ready, but 1 came first
    admission.staged(1)
    assert admission.decide(0).launch == [(1, 0), (2, 0)]


def test_items_in_pinned_memory_of_their_own_count_like_any_other() -> None:
    admission = queue(staging=2, depth=1, outlets=1, max_waiting=1)
    # On the device, out of the queue, waiting, and those that buffers are free for.
    for item in range(1 + 2 + 1 + 2):
        admission.offer(item, pinned=True)
        admission.decide(0)
    with pytest.raises(QueueFull):
        admission.offer(100, pinned=True)
    assert admission.running == 1


def test_a_withdrawn_item_is_never_launched_wherever_it_was() -> None:
    admission = queue(staging=2)
    for item in (1, 2, 3):
        admission.offer(item, deadline=9.0)
    assert admission.decide(0).stage == [1, 2]
    admission.staged(1)
    assert admission.withdraw(1) is Where.STAGED
    assert admission.withdraw(2) is Where.STAGING
    assert admission.withdraw(3) is Where.WAITING
    assert admission.staged(2) is False
    assert admission.withdraw(1) is Where.ELSEWHERE
    assert not admission.decide(10.0)
    assert admission.idle


def test_an_item_that_is_run_out_of_turn_takes_a_buffer_and_a_place_like_any_other() -> None:
    admission = queue(depth=1, staging=2, outlets=1)
    admission.seize(100, 0, now=0.0)
    assert not admission.idle
    assert (admission.running, admission.draining) == (1, 0)
    for item in (1, 2):
        admission.offer(item)
    assert admission.decide(0.0).stage == [1]  # the other buffer is taken
    admission.staged(1)
    assert not admission.decide(0.0)  # and the place
    with pytest.raises(Stale, match="100 was offered twice"):
        admission.offer(100)
    assert admission.launched() == [100]
    assert admission.knows(100)
    admission.finished(100, 1.0)
    assert admission.knows(100)
    assert (admission.running, admission.draining) == (0, 1)
    assert not admission.decide(1.0)  # its output buffer is in use
    admission.drained(100)
    assert not admission.knows(100)
    assert [admission.knows(item) for item in (1, 2, 3)] == [True, True, False]
    admission.staging_freed()
    decision = admission.decide(1.0)
    assert (decision.stage, decision.launch) == ([2], [(1, 0)])


def test_what_is_told_of_an_item_that_is_not_there_fails_loudly() -> None:
    admission = queue()
    admission.offer(1)
    with pytest.raises(Stale, match="1 was offered twice"):
        admission.offer(1)
    with pytest.raises(Stale, match="1 is not being copied in"):
        admission.staged(1)
    with pytest.raises(Stale, match="1 is not running"):
        admission.finished(1, 0.0)
    stage_all(admission)
    with pytest.raises(Stale, match="1 was offered twice"):
        admission.offer(1)
    with pytest.raises(Stale, match="1 is not being copied in"):
        admission.staging_failed(1)
    with pytest.raises(Stale, match="1 holds no outputs"):
        admission.drained(1)
    admission.finished(1, 1.0)
    with pytest.raises(Stale, match="1 is not running"):
        admission.finished(1, 1.0)
    admission.drained(1)
    with pytest.raises(Stale, match="1 holds no outputs"):
        admission.drained(1)
    assert admission.idle


def test_ten_thousand_waiting_callers_cost_no_more_each_than_ten() -> None:
    """Counts what a decision touches: a walk over those who wait would touch all of them."""
    touched = 0

    class Item:
        def __hash__(self) -> int:
            nonlocal touched
            touched += 1
            return id(self)

    def cost(count: int) -> float:
        nonlocal touched
        admission: Admission[Item] = Admission(**{**OPTIONS, "max_waiting": 20_000})
        items = [Item() for _ in range(count)]
        for number, item in enumerate(items):
            admission.offer(item, priority=number % 3, deadline=1e6 + number)
        touched = 0
        for item in items[5:]:
            admission.withdraw(item)
        for _ in range(20):
            admission.decide(0.0)
        return touched / count

    assert cost(10_000) < 2 * cost(1000)


def test_there_may_be_more_places_or_fewer_from_now_on() -> None:
    admission = queue(depth=1, staging=2, outlets=2)
    for item in range(6):
        admission.offer(item, patient=True)
    assert stage_all(admission) == [(0, 0)]
    admission.resize(depth=3, staging=4, outlets=4)
    assert stage_all(admission) == [(1, 0), (2, 0)]
    assert (admission.running, admission.staging, admission.waiting) == (3, 1, 2)
    for item in (0, 1, 2):
        admission.finished(item, 1.0)
        admission.drained(item)
    with pytest.raises(Stale, match="1 items are in staging buffers, of which 2 are to be taken away"):
        admission.resize(depth=1, staging=2, outlets=2)
    admission.withdraw(3)
    for _ in range(4):
        admission.staging_freed()
    admission.resize(depth=1, staging=2, outlets=2)
    assert stage_all(admission) == [(4, 0)]
    assert (admission.running, admission.staging) == (1, 1)


def test_pinned_memory_of_its_own_is_counted_by_the_same_bound() -> None:
    admission = queue(depth=1, staging=1, outlets=2)
    admission.resize(depth=1, staging=2, outlets=2)
    for item in range(4):
        admission.offer(item, pinned=True)
    assert stage_all(admission) == [(0, 0)]
    assert (admission.staging, admission.waiting) == (2, 1)


def test_whatever_an_interrupted_step_has_left_of_an_item_can_be_forgotten() -> None:
    halves = {
        "counted, and not in line": lambda a, item: a._entries.update({item: (8, False, False)}),
        "in line, and not counted": lambda a, item: a._line.add(item, 0),
        "on a lane, and not running": lambda a, item: a._lane.update({item: 0}),
        "running, and on no lane": lambda a, item: a._running[0].update({item: 1.0}),
    }
    for what, leave in halves.items():
        admission = queue(staging=1, max_waiting=2)
        leave(admission, 7)
        assert not admission.knows(7), what
        admission.purge(7)
        assert admission.idle, what
        assert not admission.running, what
        for item in range(3):
            admission.offer(item, nbytes=1)
        assert admission.waiting_bytes == 3, what


def test_an_item_that_is_somewhere_can_be_forgotten_there() -> None:
    for steps in range(4):
        admission = queue(staging=1)
        admission.offer(1, nbytes=4, deadline=9.0)
        if steps > 0:
            admission.decide(1.0)
        if steps > 1:
            admission.staged(1)
            admission.decide(2.0)
        if steps > 2:
            admission.finished(1, 3.0)
        assert admission.knows(1)
        admission.purge(1)
        assert not admission.knows(1)
        assert admission.idle
        assert not admission._deadlines
        assert admission.waiting_bytes == 0
