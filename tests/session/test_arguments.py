"""What a session is made with is checked when it is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"depth": 0}, "depth: wanted a whole number of at least 1, given 0"),
        ({"depth": 1.5}, "depth: wanted a whole number"),
        ({"depth": 257}, "depth: wanted at most 256, given 257"),
        ({"depth": "deep"}, "depth: wanted a whole number of at least 1, \"auto\" or an AutoDepth, given 'deep'"),
        ({"depth": None}, 'depth: wanted a whole number of at least 1, "auto" or an AutoDepth, given None'),
        ({"instances": -1}, "instances: wanted"),
        ({"instances": 10**9}, "instances: wanted at most 256"),
        ({"depth": np.timedelta64(1, "s")}, "depth: wanted a whole number"),
        ({"stall_timeout": 0}, "stall_timeout: wanted seconds above 0"),
        ({"stall_timeout": float("nan")}, "stall_timeout: wanted seconds above 0"),
        ({"stall_timeout": np.timedelta64(1, "s")}, "stall_timeout: wanted seconds above 0"),
        ({"stall_timeout": np.complex64(1)}, "stall_timeout: wanted seconds above 0"),
        ({"max_waiting": True}, "max_waiting: wanted"),
        ({"max_waiting_bytes": -1}, "max_waiting_bytes: wanted a whole number of at least 0, given -1"),
        ({"shapes": {"x": "abc"}}, "shapes: wanted"),
        ({"shapes": [1, 2]}, "shapes: wanted"),
        ({"model": 7}, "model: wanted a path or bytes, given int"),
        ({"shapes": {"x": (2.7, 3)}}, "shapes: wanted"),
        ({"shapes": {"x": "23"}}, "shapes: wanted"),
        ({"shapes": {"x": (True, 3)}}, "shapes: wanted"),
        ({"shapes": {"x": (2**63, 3)}}, "shapes: 'x' .* is larger than any memory"),
        ({"examples": 5}, "examples: wanted"),
        ({"devices": None}, "devices: wanted"),
        ({"devices": [0]}, "devices: wanted"),
    ],
)
def test_arguments_are_checked_when_the_session_is_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(aioascend.InvalidInput, match=message):
        aioascend.Session(**{"model": kit.pos(), **arguments})


@pytest.mark.parametrize("priority", [1.0, True, None, "1", 101, -101, 2**70, np.timedelta64(1, "s"), np.uint8(255)])
async def test_what_is_no_priority_is_refused(priority: Any) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        for door in (session.infer, session.submit):
            with pytest.raises(aioascend.InvalidInput, match="priority: wanted a whole number from -100 to 100"):
                await door(np.ones(4, np.float32), priority=priority)


def test_limits_that_no_clock_counts_are_no_limits() -> None:
    for stall_timeout in (float("inf"), 1e300, 10**400):
        with aioascend.Session(kit.add(1), stall_timeout=stall_timeout) as session:
            for timeout in (float("inf"), 1e10, 1e300, 10**400, np.float16("inf")):
                assert session.infer_sync(np.ones(4, np.float32), timeout=timeout)[0][0] == 2
            with pytest.raises(aioascend.DeadlineExceeded):
                session.infer_sync(np.ones(4, np.float32), timeout=-(10**400))


@pytest.mark.parametrize(
    "bounds,message",
    [
        ({"gain": -0.1}, "gain: wanted a share of at least 0 .0.05: 5 %., given -0.1"),
        ({"gain": "5%"}, "gain: wanted a share"),
        ({"gain": float("nan")}, "gain: wanted a share"),
        ({"gain": float("inf")}, "gain: wanted a share"),
        ({"most": 0}, "most: wanted a whole number of at least 1, given 0"),
        ({"most": 257}, "most: wanted at most 256, given 257"),
        ({"seconds": 0}, "seconds: wanted seconds above 0, given 0"),
        ({"seconds": None}, "seconds: wanted seconds above 0, given None"),
        ({"seconds": float("inf")}, "seconds: wanted seconds above 0, given inf"),
    ],
)
def test_the_bounds_of_a_search_for_the_depth_are_checked_when_it_is_made(bounds: dict[str, Any], message: str) -> None:
    with pytest.raises(aioascend.InvalidInput, match=f"AutoDepth: {message}"):
        aioascend.AutoDepth(**bounds)


def test_numpy_numbers_bound_a_search_too() -> None:
    auto = aioascend.AutoDepth(gain=np.float32(0.25), most=np.int64(4), seconds=np.float64(1.5))
    assert auto == aioascend.AutoDepth(gain=0.25, most=4, seconds=1.5)
    assert [type(value) for value in (auto.gain, auto.most, auto.seconds)] == [float, int, float]
