"""Exactly the accesses without an order are found, as the whole graph of what comes before what says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aioascend.emulator.streams import Flavour

from .race_kit import Detector, Do, Graph, WaitsForEver, pipeline


@pytest.fixture(scope="module", autouse=True)
def no_log() -> Iterator[None]:
    """Races by the hundred are what is asked for here."""
    logger = logging.getLogger("aioascend.emulator")
    logger.disabled = True
    yield
    logger.disabled = False


FLAVOURS = [Flavour.EX, Flavour.EX, Flavour.PLAIN, Flavour.LEGACY, Flavour.LEGACY]
STREAMS, BLOCKS = 4, 2


@st.composite
def accesses(draw: st.DrawFn) -> tuple[int, int, int, bool]:
    start = draw(st.integers(0, 7))
    return draw(st.integers(0, BLOCKS - 1)), start, draw(st.integers(start + 1, 8)), draw(st.booleans())


STEPS = st.builds(
    Do,
    st.sampled_from(
        ("use", "use", "use", "record", "record", "wait", "wait", "reset", "callback", "called", "synchronize", "ask",
         "host")
    ),
    st.integers(0, STREAMS - 1),
    st.integers(0, len(FLAVOURS) - 1),
    st.lists(accesses(), min_size=1, max_size=3).map(tuple),
)  # fmt: skip


def judge(program: list[Do], flavours: list[Flavour]) -> bool:
    """Whether the program races; what is found is, and there is something found where there is a race."""
    races = Graph(program, flavours).races
    pairs = Detector(flavours).play(program).pairs
    assert bool(pairs) == bool(races), (pairs, races)
    hosts = {number for number, do in enumerate(program) if do.what == "host"}
    for one, other in pairs:
        if other.isdecimal():
            assert (int(one), int(other)) in races
        else:  # the host has no number
            assert any(first == int(one) and second in hosts for first, second in races)
    return bool(races)


def without_endless_waits(steps: list[Do]) -> list[Do]:
    program: list[Do] = []
    for step in steps:
        if step.what == "wait" and FLAVOURS[step.event] is Flavour.LEGACY:
            try:
                Graph([*program, step], FLAVOURS)
            except WaitsForEver:
                continue
        program.append(step)
    return program


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=24))
def test_a_race_is_found_if_and_only_if_there_is_one(steps: list[Do]) -> None:
    judge(without_endless_waits(steps), FLAVOURS)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 3))
def test_a_correct_pipeline_is_not_accused(seed: int, instances: int) -> None:
    program, flavours = pipeline(Random(seed), 20, instances)
    assert judge(program, flavours) is False


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.data())
def test_a_pipeline_without_one_of_its_edges_races_or_not(seed: int, data: st.DataObject) -> None:
    program, flavours = pipeline(Random(seed), 8)
    edges = [
        n for n, do in enumerate(program) if do.what in ("record", "wait", "reset", "called", "synchronize", "ask")
    ]
    del program[data.draw(st.sampled_from(edges))]
    try:
        judge(program, flavours)
    except WaitsForEver:
        assume(False)


def test_most_edges_of_a_pipeline_are_needed() -> None:
    """The property above is not empty."""
    program, flavours = pipeline(Random(5), 8)
    racing = 0
    edges = [n for n, do in enumerate(program) if do.what in ("wait", "synchronize", "ask", "called")]
    for edge in edges:
        racing += judge(program[:edge] + program[edge + 1 :], flavours)
    assert racing > len(edges) / 3


def test_a_long_correct_pipeline_is_not_accused_and_little_is_remembered() -> None:
    program, flavours = pipeline(Random(11), 3400, 3)
    assert sum(do.what == "use" for do in program) > 10_000
    detector = Detector(flavours)
    most = 0
    for number, do in enumerate(program):
        detector.step(do, number)
        if number % 500 == 0:
            most = max(most, detector.races.records)
    detector.races.tell()
    assert detector.pairs == set()
    assert most < 1500


# -- what a wait before its record orders ---------------------------------------------------------------------------


WRITE, READ = ((0, 0, 8, True),), ((0, 0, 8, False),)


def test_a_wait_before_the_record_of_a_legacy_event_orders() -> None:
    program = [
        Do("wait", 1, 0),
        Do("use", 1, accesses=READ),
        Do("use", 0, accesses=WRITE),
        Do("record", 0, 0),
    ]
    assert Detector([Flavour.LEGACY]).play(program).pairs == set()


def test_what_comes_after_that_record_is_not_ordered_by_it() -> None:
    program = [
        Do("wait", 1, 0),
        Do("use", 1, accesses=READ),
        Do("record", 0, 0),
        Do("use", 0, accesses=WRITE),
    ]
    assert Detector([Flavour.LEGACY]).play(program).pairs == {("1", "3")}


def test_a_stream_that_is_held_up_holds_up_those_that_wait_for_it() -> None:
    held = [
        Do("wait", 1, 0),
        Do("use", 1, accesses=READ),
        Do("record", 1, 1),
        Do("wait", 2, 1),
        Do("use", 2, accesses=((0, 4, 6, True),)),
    ]
    good = [*held, Do("use", 0, accesses=WRITE), Do("record", 0, 0)]
    bad = [*held, Do("record", 0, 0), Do("use", 0, accesses=WRITE)]
    flavours = [Flavour.LEGACY, Flavour.EX]
    assert Detector(flavours).play(good).pairs == set()
    assert Detector(flavours).play(bad).pairs == {("1", "6"), ("4", "6")}


@pytest.mark.parametrize("write", [False, True])
def test_the_host_is_not_past_what_is_held_up(write: bool) -> None:
    program = [Do("wait", 1, 0), Do("use", 1, accesses=READ), Do("host", accesses=((0, 2, 3, write),))]
    assert bool(Detector([Flavour.LEGACY]).play(program).pairs) is write


def test_a_legacy_event_that_is_not_reset_orders_by_its_oldest_record() -> None:
    again = [
        Do("record", 0, 0),
        Do("wait", 1, 0),
        Do("use", 0, accesses=WRITE),
        Do("record", 0, 0),
        Do("wait", 1, 0),
        Do("use", 1, accesses=READ),
    ]
    assert Detector([Flavour.LEGACY]).play(again).pairs == {("2", "5")}
    again.insert(2, Do("reset", 1, 0))
    assert Detector([Flavour.LEGACY]).play(again).pairs == set()


# -- what is forgotten ----------------------------------------------------------------------------------------------


def test_work_that_was_dropped_never_happened() -> None:
    detector = Detector()
    detector.step(Do("use", 0, accesses=WRITE), 0)
    detector.step(Do("use", 1, accesses=((0, 8, 16, True),)), 1)
    detector.model.drop(detector.stream(0), 1)
    detector.step(Do("use", 2, accesses=((0, 0, 16, True),)), 2)
    detector.races.tell()
    assert detector.pairs == {("1", "2")}


def test_waits_of_a_dropped_stream_hold_nobody_up() -> None:
    detector = Detector([Flavour.LEGACY, Flavour.EX])
    for number, do in enumerate(
        [Do("wait", 0, 0), Do("record", 0, 1), Do("wait", 1, 1), Do("use", 1, accesses=WRITE)],
    ):
        detector.step(do, number)
    detector.model.drop(detector.stream(0), 1)
    detector.step(Do("use", 2, accesses=WRITE), 4)
    detector.races.tell()
    assert detector.pairs == {("3", "4")}


def test_a_hundred_thousand_tasks_leave_no_more_than_a_few() -> None:
    detector = Detector([Flavour.EX])
    most = 0
    for number in range(100_000):
        start = number * 7 % 4096
        written = (number % 3, start, start + 16, True)
        detector.step(Do("use", number % 3, accesses=(written, (3, start, start + 16, False))), number)
        if number % 100 == 0:
            detector.step(Do("record", 0, 0), number)
            detector.step(Do("wait", 1, 0), number)
            for stream in range(3):
                detector.step(Do("synchronize", stream), number)
            most = max(most, detector.races.records)
            for stream in detector.streams.values():
                stream.queue.clear()
    assert detector.pairs == set()
    assert most < 2500


def test_streams_come_and_go_without_a_trace() -> None:
    detector = Detector()
    for number in range(5000):
        detector.step(Do("use", 0, accesses=((0, number, number + 1, True),)), number)
        detector.step(Do("synchronize", 0), number)
        del detector.streams[0]
        detector.model.ready.clear()
    assert detector.races.records < 2000
    assert detector.pairs == set()
