"""The queue of a session under random arrivals, cancels, completions and failures."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aioascend.scheduling.admission import Admission, QueueFull, Stale, Where

DEPTH, MAX_WAITING, MAX_BYTES, SHARE = 2, 4, 10, 3


@dataclass
class Item:
    number: int
    priority: int
    nbytes: int
    deadline: float | None
    patient: bool
    pinned: bool
    turns: int  # taken out of the queue when it came
    before: int  # in the queue when it came
    where: str = "waiting"  # copying, staged, running, draining; then its outcome
    lane: int = -1
    dropped: bool = False

    __hash__ = object.__hash__
    __eq__ = object.__eq__


OUTCOMES = {"done", "failed", "cancelled", "expired"}


class AdmissionMachine(RuleBasedStateMachine):
    """A plain account of where everything is, against the state machine's own."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Item] = []
        self.launched: list[Item] = []  # since the device lost what was on it
        self.earlier = 0  # how many were launched before that
        self.held: set[int] = set()
        self.buffers = 0  # staging buffers in use
        self.turns = 0
        self.refused = 0
        self.now = 0.0
        self.depth = DEPTH

    @initialize(lanes=st.integers(1, 2), at_once=st.booleans())
    def begin(self, lanes: int, at_once: bool) -> None:
        self.lanes = lanes
        self.at_once = at_once
        self.admission: Admission[Item] = Admission(
            lanes=lanes,
            depth=self.depth,
            staging=self.depth + 1,
            outlets=self.depth + 1,
            max_waiting=MAX_WAITING,
            max_waiting_bytes=MAX_BYTES,
            share=SHARE,
            at_once=at_once,
        )

    def at(self, *where: str) -> list[Item]:
        return [item for item in self.items if item.where in where]

    def impatient(self) -> list[Item]:
        return [item for item in self.at("waiting") if not item.patient]

    @rule(
        priority=st.integers(-2, 2),
        nbytes=st.integers(0, 6),
        limit=st.none() | st.integers(0, 6),
        patient=st.booleans(),
        pinned=st.booleans(),
    )
    def offer(self, priority: int, nbytes: int, limit: int | None, patient: bool, pinned: bool) -> None:
        deadline = None if limit is None else self.now + limit
        before = len(self.at("waiting"))
        item = Item(len(self.items), priority, nbytes, deadline, patient, pinned, self.turns, before)
        options = {"priority": priority, "nbytes": nbytes, "deadline": deadline, "patient": patient, "pinned": pinned}
        free = self.depth + 1 - self.buffers
        total = sum(other.nbytes for other in self.impatient())
        full = len(self.impatient()) >= MAX_WAITING + free or total + nbytes > MAX_BYTES + free * nbytes
        if full and not patient:
            with pytest.raises(QueueFull):
                self.admission.offer(item, **options)
            self.refused += 1
            return
        self.admission.offer(item, **options)
        self.items.append(item)

    @rule(passed=st.sampled_from([0.0, 0.5, 2.0]), failing=st.none() | st.integers(0, 3))
    def decide(self, passed: float, failing: int | None = None) -> None:
        self.now += passed
        decision = self.admission.decide(self.now)
        for item, where in decision.expired:
            assert item.deadline is not None
            assert item.deadline <= self.now or self.earlier + len(self.launched) >= 32  # before that no guess is made
            assert where is {"waiting": Where.WAITING, "staged": Where.STAGED, "copying": Where.STAGING}[item.where]
            if where is Where.STAGING:
                item.dropped = True
            else:
                self.leave(item, "expired")
        pending = self.admission.pending()
        launched = [item for item, _ in decision.launch]
        # What left the queue, in its order: pinned ones are not told, as nothing is to be done for them.
        left = {item for item in self.at("waiting") if item not in pending[self.admission.staging :]}
        for item in left:
            self.turns += 1
            item.where = "staged" if item.pinned or self.at_once else "copying"
        assert decision.stage == [item for item in decision.stage if item in left and not item.pinned]
        self.buffers += len(decision.stage)
        for item in left:
            assert self.turns - item.turns <= SHARE * (item.before + 1) + len(left) - 1
        for item, lane in decision.launch:
            assert item.where == "staged"
            assert lane not in self.held
            item.where, item.lane = "running", lane
            assert item.deadline is None or item.deadline > self.now
        self.launched += launched
        if self.at_once and failing is not None and failing < len(decision.stage):
            item = decision.stage[failing]
            self.admission.copy_failed(item)
            if item.where == "running":
                self.launched.remove(item)
            self.free_buffer()
            item.where = "failed"
            self.decide(0.0)  # there is room again
        elif any(where is Where.STAGED for _, where in decision.expired):
            self.decide(0.0)  # their buffers have been given back since
        else:
            assert not self.admission.decide(self.now)  # everything that can be decided has been

    @precondition(lambda self: self.at("copying"))
    @rule(data=st.data(), fails=st.booleans())
    def copied(self, data: st.DataObject, fails: bool) -> None:
        item = data.draw(st.sampled_from(self.at("copying")))
        if fails:
            self.admission.staging_failed(item)
            self.leave(item, "failed")
        elif item.dropped:
            assert self.admission.staged(item) is False
            self.leave(item, "cancelled")
        else:
            assert self.admission.staged(item) is True
            item.where = "staged"

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.items))
        where = self.admission.withdraw(item)
        expected = {"waiting": Where.WAITING, "staged": Where.STAGED, "copying": Where.STAGING}
        assert where is expected.get(item.where, Where.ELSEWHERE)
        if where is Where.STAGING:
            item.dropped = True
        elif where is not Where.ELSEWHERE:
            self.leave(item, "cancelled")

    @precondition(lambda self: self.at("running"))
    @rule(data=st.data(), drained=st.booleans())
    def finish(self, data: st.DataObject, drained: bool) -> None:
        item = data.draw(st.sampled_from(self.at("running")))
        self.now += 0.25
        self.admission.finished(item, self.now, drained=drained)
        if not item.pinned:
            self.free_buffer()
        item.where = "done" if drained else "draining"

    @precondition(lambda self: self.at("draining"))
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.at("draining")))
        self.admission.drained(item)
        item.where = "done"

    @rule(data=st.data(), held=st.booleans())
    def hold(self, data: st.DataObject, held: bool) -> None:
        lane = data.draw(st.integers(0, self.lanes - 1))
        self.admission.hold(lane, held)
        (self.held.add if held else self.held.discard)(lane)

    @precondition(lambda self: self.admission.idle)
    @rule(depth=st.integers(1, 4))
    def resize(self, depth: int) -> None:
        """Nothing is under way, and there are more or fewer places from now on."""
        self.admission.resize(depth=depth, staging=depth + 1, outlets=depth + 1)
        self.depth = depth

    @precondition(lambda self: self.at("running") and not self.at("copying", "draining"))
    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        """The device has lost what was on it; some of it is failed, the rest is to be done again."""
        running = [item for item in self.launched if item.where == "running"]
        again = [item for item in running if data.draw(st.booleans())]
        back = [*again, *(item for item in self.admission.pending() if item.where == "staged")]
        self.admission.recall(again, lambda item: (item.priority, item.deadline))
        for item in running:
            item.where = "failed"
        for item in self.at("waiting"):
            item.pinned = False
            item.before += len(back)
        for before, item in enumerate(back):
            item.where, item.lane, item.pinned, item.patient = "waiting", -1, False, True
            item.turns, item.before = self.turns, before
        # A new order begins: what failed, or had ended before its turn, is not passed by what is done again.
        self.earlier += len(self.launched)
        self.launched = []
        self.held.clear()
        self.buffers = 0

    @precondition(lambda self: self.at(*OUTCOMES))
    @rule(data=st.data())
    def tell_of_what_is_gone(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.at(*OUTCOMES)))
        admission = self.admission
        for call in (admission.staged, admission.staging_failed, admission.copy_failed, admission.drained):
            with pytest.raises(Stale):
                call(item)
        with pytest.raises(Stale):
            self.admission.finished(item, self.now)

    def leave(self, item: Item, outcome: str) -> None:
        if item.where in ("copying", "staged") and not item.pinned:
            self.free_buffer()
        item.where = outcome

    def free_buffer(self) -> None:
        self.buffers -= 1
        self.admission.staging_freed()

    @invariant()
    def nothing_exceeds_its_bound(self) -> None:
        for lane in range(getattr(self, "lanes", 0)):
            running = [item for item in self.at("running") if item.lane == lane]
            draining = [item for item in self.at("draining") if item.lane == lane]
            assert len(running) <= self.depth
            assert len(running) + len(draining) <= self.depth + 1
        assert 0 <= self.buffers <= self.depth + 1
        assert len([item for item in self.at("staged") if item.pinned]) <= self.depth + 1
        assert len(self.impatient()) <= MAX_WAITING + self.depth + 1
        assert sum(item.nbytes for item in self.impatient()) <= MAX_BYTES + 6 * (self.depth + 1)

    @invariant()
    def launches_keep_the_order_within_a_priority(self) -> None:
        for priority in range(-2, 3):
            numbers = [item.number for item in self.launched if item.priority == priority]
            assert numbers == sorted(set(numbers))  # and nobody is served twice

    @invariant()
    def nobody_starves(self) -> None:
        for item in self.at("waiting"):
            assert self.turns - item.turns < SHARE * (item.before + 1)

    @invariant()
    def nobody_is_lost(self) -> None:
        if not hasattr(self, "admission"):
            return
        admission = self.admission
        assert set(admission.pending()) == set(self.at("waiting", "copying", "staged"))
        assert admission.waiting == len(self.at("waiting"))
        assert admission.copying == len(self.at("copying"))
        assert admission.waiting_bytes == sum(item.nbytes for item in self.impatient())
        assert admission.running == len(self.at("running"))
        assert admission.draining == len(self.at("draining"))
        assert admission.idle == (not self.at("waiting", "copying", "staged", "running", "draining"))

    def teardown(self) -> None:
        """Left alone, everything comes to its end."""
        if not hasattr(self, "admission"):
            return
        for lane in range(self.lanes):
            self.admission.hold(lane, False)
        self.held.clear()
        for _ in range(10 + 3 * len(self.items)):
            self.decide(1.0)
            for item in self.at("copying"):
                ready = self.admission.staged(item)
                assert ready is not item.dropped
                if ready:
                    item.where = "staged"
                else:
                    self.leave(item, "cancelled")
            for item in self.at("draining"):
                self.admission.drained(item)
                item.where = "done"
            for item in self.at("running"):
                self.admission.finished(item, self.now)
                if not item.pinned:
                    self.free_buffer()
                item.where = "draining"
        assert self.admission.idle
        assert {item.where for item in self.items} <= OUTCOMES
        assert self.buffers == 0
        assert self.admission.waiting_bytes == 0
        assert not self.admission._deadlines
        assert not self.admission._lane


TestAdmissionMachine = AdmissionMachine.TestCase
TestAdmissionMachine.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
