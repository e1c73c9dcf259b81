from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioascend.telemetry.clocks import DeviceClock, Sample, best


def sample(host: float, offset: float, drift: float, before: float, after: float) -> Sample:
    """A device clock that shows `offset` seconds at host time 0 and runs by `drift` too fast, read around `host`."""
    return Sample(host - before, int((offset + host * (1 + drift)) * 1e6), host + after)


def test_the_sample_with_the_shortest_bracket_counts() -> None:
    wide, narrow = Sample(1.0, 5, 1.5), Sample(2.0, 1_000_000, 2.1)

    assert best([wide, narrow, wide]) is narrow
    assert narrow.error == pytest.approx(0.05, abs=2e-6)


@given(
    offset=st.floats(0, 1e6),
    drift=st.floats(-2e-4, 2e-4),
    length=st.floats(1.0, 1000.0),
    brackets=st.lists(st.floats(0, 1e-4), min_size=4, max_size=4),
    where=st.floats(0, 1),
)
def test_a_converted_time_is_right_within_the_stated_error(
    offset: float, drift: float, length: float, brackets: list[float], where: float
) -> None:
    start = sample(100.0, offset, drift, *brackets[:2])
    end = sample(100.0 + length, offset, drift, *brackets[2:])
    clock = DeviceClock(start, end)
    true = 100.0 + where * length

    told = clock.host(int((offset + true * (1 + drift)) * 1e6))

    assert abs(told - true) <= clock.error + 2e-6


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=50))
def test_conversion_keeps_the_order_of_device_times(times: list[int]) -> None:
    clock = DeviceClock(Sample(10.0, 0, 10.0001), Sample(1010.01, 10**9, 1010.0102))

    told = [clock.host(us) for us in sorted(times)]

    assert told == sorted(told)


def test_two_samples_close_together_do_not_bend_the_clock() -> None:
    clock = DeviceClock(Sample(1.0, 0, 1.001), Sample(1.002, 1000, 1.0025))

    assert clock.host(1000) - clock.host(0) == pytest.approx(1e-3)
