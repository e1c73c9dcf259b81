"""Whether a call holds the GIL is told from outside, with real calls that do and do not."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest

from aioascend.doctor.checks import Unavailable
from aioascend.doctor.timing import held_or_released

holding = ctypes.PyDLL(None).usleep
releasing = ctypes.CDLL(None).usleep


def test_a_call_that_holds_the_gil_is_held() -> None:
    assert held_or_released(lambda: holding(150_000)).text == "held"


def test_a_call_that_releases_the_gil_is_released() -> None:
    assert held_or_released(lambda: releasing(150_000)).text == "released"


def test_what_comes_before_the_call_is_not_judged() -> None:
    assert held_or_released(lambda: releasing(150_000), lambda: holding(150_000)).text == "released"


def test_one_attempt_that_was_too_quick_does_not_end_it() -> None:
    lengths = iter([1_000, 150_000])

    assert held_or_released(lambda: holding(next(lengths, 150_000))).text == "held"


def test_a_call_that_is_always_too_quick_is_not_judged() -> None:
    with pytest.raises(Unavailable, match="too quick to tell"):
        held_or_released(lambda: None)


def test_no_thread_is_left_whatever_happens() -> None:
    before = threading.active_count()

    def fails() -> None:
        raise ValueError

    for prepare, call in ((fails, time.time), (time.time, fails)):
        with pytest.raises(ValueError, match=r"^$"):
            held_or_released(call, prepare)
    assert threading.active_count() == before
