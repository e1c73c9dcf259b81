"""The search for a depth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioascend.scheduling.autodepth import Choice, DepthSearch, choose, steady_rate

TIMES = st.floats(0.1, 20)
RATES = st.floats(0.01, 1e6)


def search(throughput: dict[int, float], **options: float) -> DepthSearch:
    """Search a curve that is told in advance."""
    auto = DepthSearch(**options)  # type: ignore[arg-type]
    while (depth := auto.trying) is not None:
        auto.measured(throughput[depth])
    return auto


def pipeline(stages: tuple[float, ...], most: int = 64) -> dict[int, float]:
    """Throughput of `depth` requests on stages of these times: all of them in turn, or the slowest never idle."""
    return {depth: min(depth / sum(stages), 1 / max(stages)) for depth in range(1, most + 1)}


@pytest.mark.parametrize(
    "stages, depth",
    [((2, 8, 1), 2), ((5, 5, 5), 3), ((1, 1, 1), 3), ((0.001, 8, 0.001), 1), ((3, 3, 3, 3), 4)],
)
def test_the_depth_of_a_pipeline_is_what_keeps_its_slowest_stage_busy(stages: tuple[float, ...], depth: int) -> None:
    choice = search(pipeline(stages)).choice

    assert choice is not None
    assert choice.depth == depth
    assert f"depth {depth + 1} brings 0.0% more" in choice.reason
    assert "5% more" in choice.reason


@given(st.lists(RATES, min_size=2, max_size=8), st.floats(0, 1))
def test_what_pays_is_known_before_it_is_told(rates: list[float], gain: float) -> None:
    auto = DepthSearch(gain=gain, most=100)
    for rate in rates:
        pays = auto.pays(rate)
        auto.measured(rate)
        assert pays == (auto.choice is None)
        if not pays:
            return


def test_one_place_is_measured_first_and_then_one_more_at_a_time() -> None:
    auto = DepthSearch()
    tried = []
    while (depth := auto.trying) is not None:
        tried.append(depth)
        auto.measured(min(depth, 4))

    assert tried == [1, 2, 3, 4, 5]
    assert auto.curve == {1: 1, 2: 2, 3: 3, 4: 4, 5: 4}


def test_it_stops_at_the_most_and_says_that_more_may_be_better() -> None:
    choice = search({depth: float(depth) for depth in range(1, 9)}, most=4).choice

    assert choice == Choice(
        4,
        "it is the greatest depth tried, and still brings 33.3% more throughput than depth 3: "
        "a greater one may bring more",
    )


def test_less_throughput_ends_it_too() -> None:
    choice = search({1: 100.0, 2: 80.0}).choice

    assert choice is not None
    assert choice.depth == 1
    assert "20.0% less" in choice.reason


def test_where_nothing_gets_through_one_place_is_as_good_as_any() -> None:
    expected = Choice(1, "depth 2 brings nothing either")

    assert search({1: 0.0, 2: 0.0}).choice == expected
    assert choose({1: 0.0, 2: 0.0}) == expected


@given(st.lists(RATES, min_size=20, max_size=20), st.floats(0, 1), st.integers(1, 20))
def test_every_place_but_the_last_tried_brought_the_gain(rates: list[float], gain: float, most: int) -> None:
    auto = search(dict(enumerate(rates, 1)), gain=gain, most=most)
    choice, curve = auto.choice, auto.curve

    assert choice is not None
    assert choice.reason
    assert 1 <= choice.depth <= len(curve) <= most
    for depth in range(2, choice.depth + 1):
        assert curve[depth] > curve[depth - 1] * (1 + gain)
    if choice.depth < len(curve):
        assert len(curve) == choice.depth + 1
        assert curve[len(curve)] <= curve[choice.depth] * (1 + gain)
    else:
        assert len(curve) == most


@given(st.tuples(TIMES, TIMES, TIMES))
def test_the_search_finds_within_its_gain_what_any_depth_could_give(stages: tuple[float, ...]) -> None:
    curve = pipeline(stages)
    choice = search(curve, most=64).choice

    assert choice is not None
    # The curve rises by equal steps until it is flat, so that the step not taken is all that is missed.
    assert curve[choice.depth] * 1.05 >= curve[64]
    assert choose(curve).depth == choice.depth


@given(st.dictionaries(st.integers(1, 256), RATES, min_size=1, max_size=8), st.floats(0, 1))
def test_of_a_table_the_least_depth_is_chosen_that_none_after_it_beats(curve: dict[int, float], gain: float) -> None:
    chosen = choose(curve, gain)

    def unbeaten(depth: int) -> bool:
        return all(curve[more] <= curve[depth] * (1 + gain) for more in curve if more > depth)

    assert unbeaten(chosen.depth)
    assert not any(unbeaten(depth) for depth in curve if depth < chosen.depth)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="gain"):
        DepthSearch(gain=float("nan"))
    with pytest.raises(ValueError, match="most"):
        DepthSearch(most=0)
    with pytest.raises(ValueError, match="no depth"):
        choose({})
    auto = DepthSearch(most=1)
    with pytest.raises(ValueError, match="throughput"):
        auto.measured(float("nan"))
    auto.measured(0.0)
    assert auto.choice == Choice(1, "it is the only depth that was tried")
    with pytest.raises(RuntimeError, match="over"):
        auto.measured(1.0)


def test_a_search_that_cannot_go_on_keeps_what_it_has_found() -> None:
    auto = DepthSearch()
    auto.measured(1.0)
    auto.measured(2.0)
    assert auto.trying == 3
    auto.give_up("there is no memory for depth 3")

    assert auto.choice == Choice(2, "there is no memory for depth 3")
    assert auto.trying is None
    with pytest.raises(RuntimeError, match="over"):
        auto.give_up("twice")


def test_a_search_that_has_measured_nothing_stays_at_one_place() -> None:
    auto = DepthSearch()
    auto.give_up("there was no time")

    assert auto.choice == Choice(1, "there was no time")


def ends(seconds: float, count: int, start: float = 0.0) -> list[float]:
    return [start + seconds * (index + 1) for index in range(count)]


def test_the_rate_is_that_of_a_full_pipeline() -> None:
    filling = [5.0, 5.0, 9.0]  # the first answers come late, and together
    assert steady_rate(filling + ends(0.5, 10, 9.0), len(filling)) == pytest.approx(2)


def test_a_pause_of_the_machine_is_not_the_devices() -> None:
    times = ends(0.01, 60)
    late = [at + 1.0 if index > 30 else at for index, at in enumerate(times)]

    assert steady_rate(late, 1) == pytest.approx(100)


@given(st.floats(1e-6, 1e3), st.integers(0, 100), st.integers(0, 10))
def test_ends_at_equal_distances_have_their_rate_or_are_too_few(seconds: float, count: int, filling: int) -> None:
    rate = steady_rate(ends(seconds, count), filling)

    if count - max(1, filling) < 4:
        assert rate is None
    else:
        assert rate == pytest.approx(1 / seconds)


def test_ends_at_one_time_have_no_rate() -> None:
    assert steady_rate([1.0] * 50, 2) is None
