"""Deadlines of many items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioascend.scheduling.deadlines import Deadlines


def test_what_is_due_comes_out_once_and_the_earliest_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for item, when in (("late", 3.0), ("soon", 1.0), ("then", 2.0)):
        deadlines.add(item, when)
    assert deadlines.earliest() == 1.0
    assert deadlines.expire(0.9) == []
    assert deadlines.expire(2.0) == [("soon", 1.0), ("then", 2.0)]
    assert deadlines.expire(2.0) == []
    assert len(deadlines) == 1


def test_what_was_settled_does_not_expire_and_settling_twice_does_nothing() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("a", 1.0)
    deadlines.add("b", 2.0)
    deadlines.settle("a")
    deadlines.settle("a")
    assert deadlines.earliest() == 2.0
    assert deadlines.expire(9.0) == [("b", 2.0)]
    assert deadlines.earliest() is None


def test_an_item_that_is_watched_anew_has_its_new_deadline_only() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("a", 1.0)
    deadlines.settle("a")
    deadlines.add("a", 5.0)
    deadlines.add("b", 1.0)
    assert deadlines.expire(2.0) == [("b", 1.0)]
    assert deadlines.earliest() == 5.0


def test_a_million_settled_ones_hold_no_memory() -> None:
    deadlines: Deadlines[int] = Deadlines()
    deadlines.add(-1, 1e9)  # one is always there, so that the heap is never simply cleared
    largest = 0
    for item in range(20_000):
        deadlines.add(item, 1e6 + item)
        deadlines.settle(item)
        largest = max(largest, len(deadlines._heap))
    assert largest < 100
    assert deadlines.earliest() == 1e9


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.floats(0, 100)), max_size=200), st.floats(0, 100))
def test_it_agrees_with_a_plain_dictionary(steps: list[tuple[bool, int, float]], now: float) -> None:
    deadlines: Deadlines[int] = Deadlines()
    plain: dict[int, float] = {}
    for add, item, when in steps:
        if add and item not in plain:
            deadlines.add(item, when)
            plain[item] = when
        elif not add:
            deadlines.settle(item)
            plain.pop(item, None)
    assert deadlines.earliest() == min(plain.values(), default=None)
    expired = deadlines.expire(now)
    assert sorted(expired) == sorted((item, when) for item, when in plain.items() if when <= now)
    assert [when for _, when in expired] == sorted(when for _, when in expired)
    assert len(deadlines) == len(plain) - len(expired)
