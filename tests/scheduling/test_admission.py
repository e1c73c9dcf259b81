"""The queue of a session: who is copied in, who is launched, who is refused."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aioascend.scheduling.admission import Admission, QueueFull, Where


def queue(**changes: int) -> Admission[int]:
    options = {"lanes": 1, "depth": 2, "staging": 2, "outlets": 3, "max_waiting": 4}
    return Admission(**{**options, **changes})


def test_items_are_staged_and_launched_in_the_order_of_their_arrival() -> None:
    admission = queue()
    for item in (1, 2, 3):
        admission.offer(item)
    assert admission.decide().stage == [1, 2]
    admission.staged(2)
    assert admission.decide().launch == []  # 1 came first
    admission.staged(1)
    assert admission.decide().launch == [(1, 0), (2, 0)]


def test_no_more_run_than_the_depth_allows() -> None:
    admission = queue(staging=5)
    for item in range(5):
        admission.offer(item, patient=True)
    for item in admission.decide().stage:
        admission.staged(item)
    assert [item for item, _ in admission.decide().launch] == [0, 1]
    admission.finished(0, now=1.0)
    assert [item for item, _ in admission.decide().launch] == [2]


def test_a_result_that_is_still_copied_out_keeps_its_pinned_outputs() -> None:
    admission = queue(staging=5, outlets=2)
    for item in range(3):
        admission.offer(item)
    for item in admission.decide().stage:
        admission.staged(item)
    assert len(admission.decide().launch) == 2
    admission.finished(0, now=1.0)
    assert not admission.decide()  # a place is free, an output buffer is not
    admission.drained(0)
    assert admission.decide().launch == [(2, 0)]


def test_a_freed_staging_buffer_takes_the_next() -> None:
    admission = queue(staging=1)
    admission.offer(1)
    admission.offer(2)
    assert admission.decide().stage == [1]
    admission.staged(1)
    assert admission.decide().stage == []
    admission.staging_freed()
    assert admission.decide().stage == [2]


def test_the_lane_with_the_fewest_running_gets_the_next() -> None:
    admission = queue(lanes=2, staging=4)
    for item in range(4):
        admission.offer(item)
    for item in admission.decide().stage:
        admission.staged(item)
    assert [lane for _, lane in admission.decide().launch] == [0, 1, 0, 1]


def test_a_full_queue_refuses_the_impatient_and_keeps_the_patient() -> None:
    admission = queue(max_waiting=1, staging=1)
    admission.offer(1)
    admission.decide()
    admission.offer(2)
    with pytest.raises(QueueFull) as refused:
        admission.offer(3)
    assert refused.value.waiting == 1
    assert refused.value.retry_after is None  # nothing has finished yet: no estimate is made up
    admission.offer(4, patient=True)
    assert admission.pending() == [1, 2, 4]


def test_what_can_be_staged_at_once_does_not_wait() -> None:
    admission = queue(max_waiting=0, staging=2)
    admission.offer(1)
    admission.offer(2)
    with pytest.raises(QueueFull):
        admission.offer(3)
    assert admission.decide().stage == [1, 2]
    with pytest.raises(QueueFull):
        admission.offer(3)


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
    for item in admission.decide().stage:
        admission.staged(item)
    assert admission.decide().launch == [(0, 1), (1, 1)]
    admission.hold(0, False)
    assert admission.decide().launch == [(2, 0)]


def test_the_retry_estimate_is_the_mean_time_between_completions() -> None:
    admission = queue(max_waiting=0, depth=3, staging=0)
    for item in range(3):
        admission.offer(item, patient=True, pinned=True)
    admission.decide()
    for now in (10.0, 10.5, 11.0):
        admission.finished(0, now)
    with pytest.raises(QueueFull) as refused:
        admission.offer(9)
    assert refused.value.retry_after == pytest.approx(0.5)


def test_items_in_pinned_memory_of_their_own_need_no_staging_buffer() -> None:
    admission = queue(staging=1)
    admission.offer(1)
    admission.offer(2, pinned=True)
    decision = admission.decide()
    assert decision.stage == [1]
    assert decision.launch == []  # 2 is ready, but 1 came first
    admission.staged(1)
    assert admission.decide().launch == [(1, 0), (2, 0)]


def test_a_withdrawn_item_is_never_launched_wherever_it_was() -> None:
    admission = queue(staging=2)
    for item in (1, 2, 3):
        admission.offer(item)
    assert admission.decide().stage == [1, 2]
    admission.staged(1)
    assert admission.withdraw(1) is Where.STAGED
    assert admission.withdraw(2) is Where.STAGING
    assert admission.withdraw(3) is Where.WAITING
    assert admission.staged(2) is False
    assert admission.withdraw(1) is Where.ELSEWHERE
    assert not admission.decide()
    assert admission.idle


class AdmissionMachine(RuleBasedStateMachine):
    """Random arrivals, cancels, completions and failures against a plain account of where everything is."""

    def __init__(self) -> None:
        super().__init__()
        self.next = 0
        self.waiting: list[int] = []
        self.copying: list[int] = []
        self.withdrawn: set[int] = set()
        self.staged: list[int] = []
        self.running: list[tuple[int, int]] = []
        self.draining: list[int] = []
        self.buffers = 0  # pinned inputs in use
        self.pinned: set[int] = set()
        self.patient: set[int] = set()
        self.launched: list[int] = []
        self.now = 0.0
        self.admission: Admission[int] = Admission(lanes=2, depth=2, staging=3, outlets=3, max_waiting=4)

    @rule(patient=st.booleans(), pinned=st.booleans())
    def offer(self, patient: bool, pinned: bool) -> None:
        item, self.next = self.next, self.next + 1
        if not patient:
            impatient = [one for one in self.admission.pending()[self.admission.staging :] if one not in self.patient]
            if len(impatient) >= 4 + 3 - self.buffers:
                with pytest.raises(QueueFull):
                    self.admission.offer(item)
                return
        else:
            self.patient.add(item)
        self.admission.offer(item, patient=patient, pinned=pinned)
        self.waiting.append(item)
        if pinned:
            self.pinned.add(item)

    @rule()
    def decide(self) -> None:
        decision = self.admission.decide()
        for item in decision.stage:
            self.waiting.remove(item)
            self.copying.append(item)
            self.buffers += 1
        for item in [item for item in self.waiting if item in self.pinned and item not in self.admission.pending()]:
            self.waiting.remove(item)  # launched at once
            self.staged.append(item)
        for item, lane in decision.launch:
            if item in self.waiting:
                self.waiting.remove(item)
            else:
                self.staged.remove(item)
            assert item not in self.launched
            self.launched.append(item)
            self.running.append((item, lane))
        assert not self.admission.decide()  # everything that can be decided has been

    @precondition(lambda self: self.copying)
    @rule(data=st.data())
    def copied(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.copying))
        self.copying.remove(item)
        if data.draw(st.booleans()):
            self.admission.staging_failed(item)
            self._free_buffer()
        elif item in self.withdrawn:
            assert self.admission.staged(item) is False
            self._free_buffer()
        else:
            assert self.admission.staged(item) is True
            self.staged.append(item)

    @precondition(lambda self: self.next)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        item = data.draw(st.integers(0, self.next - 1))
        where = self.admission.withdraw(item)
        if where is Where.STAGED:
            if item in self.waiting:
                self.waiting.remove(item)
            else:
                self.staged.remove(item)
            if item not in self.pinned:
                self._free_buffer()
        elif where is Where.WAITING:
            self.waiting.remove(item)
        elif where is Where.STAGING:
            assert item in self.copying
            self.withdrawn.add(item)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        item, lane = data.draw(st.sampled_from(self.running))
        self.running.remove((item, lane))
        if item not in self.pinned:
            self._free_buffer()
        self.now += 1
        self.admission.finished(lane, self.now)
        self.draining.append(lane)

    @precondition(lambda self: self.draining)
    @rule()
    def drain(self) -> None:
        self.admission.drained(self.draining.pop())

    def _free_buffer(self) -> None:
        self.buffers -= 1
        self.admission.staging_freed()

    @invariant()
    def nothing_exceeds_its_bound(self) -> None:
        for lane in (0, 1):
            running = sum(1 for _, where in self.running if where == lane)
            assert running <= 2
            assert running + self.draining.count(lane) <= 3
        assert self.buffers <= 3

    @invariant()
    def launches_keep_the_order_of_arrival(self) -> None:
        assert self.launched == sorted(self.launched)

    @invariant()
    def nobody_is_lost(self) -> None:
        pending = set(self.admission.pending())
        assert pending == {*self.waiting, *self.staged, *self.copying}
        assert self.admission.running == len(self.running)
        assert self.admission.draining == len(self.draining)


TestAdmissionMachine = AdmissionMachine.TestCase
TestAdmissionMachine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
