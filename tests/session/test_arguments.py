"""What a session is made with is checked when it is made."""

from __future__ import annotations

from typing import Any

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
        ({"instances": -1}, "instances: wanted"),
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
