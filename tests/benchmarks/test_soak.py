"""The soak sees growth, and a short one finds none of what it calls wrong."""

from __future__ import annotations

import asyncio

import pytest

from aioascend import driver
from aioascend.emulator import Config, Emulator
from tests.benchmarks.soak import Soak, judge


def watched(emulator: Emulator, *, memory: float = 0.0, handles: float = 0.0, p99: float = 0.0) -> Soak:
    """A soak of 100,000 calls whose samples grow by so much per 10,000 of them."""
    soak = Soak(emulator, 60, 1)
    soak.samples = [(n * 1000.0, 1e8 + n / 10 * memory, 20 + n / 10 * handles, 0.01 + n / 10 * p99) for n in range(100)]
    return soak


@pytest.mark.parametrize(
    "growth, code, said",
    [
        ({}, 0, ""),
        ({"memory": 5e5, "handles": 0.2, "p99": 0.0002}, 0, ""),
        ({"memory": 2e6}, 1, "GROWS: memory"),
        ({"handles": 1.0}, 1, "GROWS: handles"),
        ({"p99": 0.004}, 1, "GROWS: p99"),
    ],
)
def test_what_grows_is_named(
    capsys: pytest.CaptureFixture[str], growth: dict[str, float], code: int, said: str
) -> None:
    assert judge(watched(Emulator(Config()), **growth)) == code
    assert said in capsys.readouterr().err


@pytest.mark.logs_errors
def test_two_seconds_of_it_find_no_wrong_answer_and_leave_nothing() -> None:
    emulator = Emulator(Config())
    old = driver.install(driver.Backend("emulator", emulator.acl, emulator))
    try:
        soak = Soak(emulator, 2, 3)
        asyncio.run(soak.run())
        assert soak.wrong == []
        assert soak.outcomes["right"] > 100
        assert judge(soak) == 0
        assert [leak.kind for leak in emulator.report().leaks] == ["init"]
    finally:
        driver.restore("emulator", old)
        emulator.shutdown()
