"""Priorities, the order within one, and the share of the oldest."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioascend.scheduling.line import SHARE, Line

T = TypeVar("T", bound=Hashable)


def take(line: Line[T]) -> T:
    item = line.head()
    line.take(item)
    return item


def test_the_smaller_priority_goes_first_and_equals_keep_their_order() -> None:
    line: Line[str] = Line()
    for item, priority in (("a", 0), ("b", 5), ("c", -5), ("d", 0), ("e", -5)):
        line.add(item, priority)
    assert [take(line) for _ in range(5)] == ["c", "e", "a", "d", "b"]


def test_one_of_eight_turns_goes_to_whoever_has_waited_longest() -> None:
    line: Line[str] = Line()
    line.add("patient", 100)
    turns = []
    for number in range(SHARE):
        line.add(f"urgent {number}", -100)
        turns.append(take(line))
    assert turns == [*(f"urgent {number}" for number in range(SHARE - 1)), "patient"]


def test_a_turn_of_the_oldest_starts_the_count_anew() -> None:
    line: Line[int] = Line(share=3)
    for item, priority in enumerate((1, 1, 0, 0, 0, 0)):
        line.add(item, priority)
    assert [take(line) for _ in range(6)] == [2, 3, 0, 4, 5, 1]


def test_whoever_leaves_the_line_is_not_taken() -> None:
    line: Line[str] = Line()
    for item, priority in (("a", 1), ("b", 0), ("c", 0)):
        line.add(item, priority)
    line.remove("b")
    with pytest.raises(KeyError):
        line.remove("b")
    assert "b" not in line
    assert list(line) == ["a", "c"]
    assert [take(line), take(line)] == ["c", "a"]
    assert len(line) == 0


def test_what_is_put_back_is_the_first_of_its_priority_and_the_one_that_has_waited_longest() -> None:
    line: Line[str] = Line(share=2)
    for item, priority in (("a", 0), ("b", 0), ("c", -1), ("d", -1)):
        line.add(item, priority)
    line.put_back("back", 0)
    assert list(line) == ["back", "a", "b", "c", "d"]
    assert [take(line) for _ in range(5)] == ["c", "back", "d", "a", "b"]


def test_ahead_of_a_newcomer_are_the_equal_and_the_more_urgent() -> None:
    line: Line[int] = Line()
    for item, priority in enumerate((0, 0, 1, 2)):
        line.add(item, priority)
    assert [line.ahead(priority) for priority in (-1, 0, 1, 2)] == [0, 2, 3, 4]


@given(st.lists(st.tuples(st.integers(-2, 2), st.sampled_from(["add", "add", "take", "remove"]), st.integers(0))))
def test_nobody_waits_longer_than_the_bound_and_equals_never_overtake(steps: list[tuple[int, str, int]]) -> None:
    share = 3
    line: Line[int] = Line(share)
    waiting: dict[int, tuple[int, int, int]] = {}  # item -> priority, turns when it came, how many were before it
    turns = 0
    for item, (priority, step, choice) in enumerate(steps):
        if step == "add":
            waiting[item] = (priority, turns, len(waiting))
            line.add(item, priority)
        elif step == "remove" and waiting:
            gone = list(waiting)[choice % len(waiting)]
            del waiting[gone]
            line.remove(gone)
        elif step == "take" and waiting:
            taken = take(line)
            turns += 1
            level, came, before = waiting.pop(taken)
            assert turns - came <= share * (before + 1)
            assert not [other for other, (same, *_) in waiting.items() if same == level and other < taken]
        for _, came, before in waiting.values():
            assert turns - came < share * (before + 1)
        assert list(line) == list(waiting)


def test_a_long_line_is_as_quick_as_a_short_one() -> None:
    def seconds(count: int) -> float:
        line: Line[int] = Line()
        for item in range(count):
            line.add(item, item % 3)
        began = time.perf_counter()
        for item in range(1, 2000, 2):
            line.remove(item)
        for _ in range(1000):
            take(line)
        return time.perf_counter() - began

    short, long = min(seconds(4000) for _ in range(3)), min(seconds(200_000) for _ in range(3))
    assert long < 10 * short  # a walk over those in line would make it 50 times as slow


def test_everything_leaves_in_the_order_of_its_turns() -> None:
    ours: Line[str] = Line()
    for one, priority in (("a", 1), ("b", 0), ("c", 1), ("d", -1)):
        ours.add(one, priority)
    assert ours.take_all() == ["d", "b", "a", "c"]
    assert len(ours) == 0
    ours.add("e", 5)
    ours.add("f", 5)
    assert ours.ahead(4) == 0
    assert ours.ahead(5) == 2
    assert ours.take_all() == ["e", "f"]
    assert len(ours) == 0
