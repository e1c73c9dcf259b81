from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioascend.telemetry import percentile, summarize

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300)


@given(VALUES, st.floats(0, 100))
def test_a_percentile_is_what_numpy_calls_the_inverted_cdf(values: list[float], percent: float) -> None:
    percent = round(percent, 2)
    assert percentile(sorted(values), percent) == np.percentile(values, percent, method="inverted_cdf")


@given(VALUES)
def test_a_percentile_is_a_value_that_was_measured_and_rises_with_the_percentage(values: list[float]) -> None:
    ordered = sorted(values)
    found = [percentile(ordered, percent) for percent in range(101)]

    assert set(found) <= set(values)
    assert found == sorted(found)
    assert (found[0], found[100]) == (ordered[0], ordered[-1])


def test_the_99th_percentile_of_a_thousand_is_the_990th() -> None:
    assert percentile(range(1, 1001), 99) == 990
    assert percentile(range(1, 1001), 99.9) == 999


@pytest.mark.parametrize("percent", [-1, 100.5, float("nan")])
def test_a_percentage_outside_0_to_100_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        percentile([1.0], percent)


def test_nothing_has_no_percentile_and_no_summary() -> None:
    assert summarize([]) is None
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


def test_a_summary_says_how_many_how_little_and_how_much() -> None:
    summary = summarize([3.0, 1.0, 2.0, 10.0], (50, 90))

    assert summary is not None
    assert (summary.count, summary.min, summary.max, summary.mean, summary.median) == (4, 1.0, 10.0, 4.0, 2.0)
    assert summary.percentiles == {50: 2.0, 90: 10.0}
