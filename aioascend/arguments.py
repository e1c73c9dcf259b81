"""What callers give: seconds, counts and priorities, whatever type of number they are, and names."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import InvalidInput
from .runtime.ties import OutputKind

__all__ = [
    "base_name",
    "device_names",
    "finite_seconds",
    "limit_of",
    "outputs_of",
    "priority_of",
    "seconds_above_zero",
    "share_of",
    "whole_number",
]

_PRIORITIES = 100
"""Classes of requests, not scores of single ones: choosing the next walks over those that are in use."""


def limit_of(timeout: float | None) -> float | None:
    """The seconds that `timeout` allows, None for no limit; raises `InvalidInput`."""
    if timeout is None:
        return None
    seconds = _real(timeout)
    if seconds is None:
        raise InvalidInput(f"timeout: wanted seconds as a number or None, given {timeout!r}")
    return _finite(seconds)


def seconds_above_zero(argument: str, value: float | None) -> float | None:
    """The seconds of a limit that may not be 0, None for no limit; raises `InvalidInput`."""
    if value is None:
        return None
    seconds = _real(value)
    if seconds is None or seconds <= 0:
        raise InvalidInput(f"{argument}: wanted seconds above 0, or None for no limit, given {value!r}")
    return _finite(seconds)


def finite_seconds(argument: str, value: float) -> float:
    """The seconds of a limit that there has to be, above 0; raises `InvalidInput`."""
    seconds = _real(value)
    if seconds is None or seconds <= 0 or _finite(seconds) is None:
        raise InvalidInput(f"{argument}: wanted seconds above 0, given {value!r}")
    return seconds


def share_of(argument: str, value: float) -> float:
    """A share of something, 0 or more (0.05: 5 %); raises `InvalidInput`."""
    share = _real(value)
    if share is None or not 0 <= share < math.inf:
        raise InvalidInput(f"{argument}: wanted a share of at least 0 (0.05: 5 %), given {value!r}")
    return share


def whole_number(argument: str, value: int, least: int, most: int | None = None) -> int:
    """The value as an int, from `least` to `most`; raises `InvalidInput`."""
    if not _is_whole(value) or value < least:
        raise InvalidInput(f"{argument}: wanted a whole number of at least {least}, given {value!r}")
    if most is not None and value > most:
        raise InvalidInput(f"{argument}: wanted at most {most}, given {value!r}")
    return int(value)


def priority_of(priority: int) -> int:
    """The priority as an int; raises `InvalidInput`."""
    if type(priority) is int and -_PRIORITIES <= priority <= _PRIORITIES:
        return priority
    if not _is_whole(priority) or not -_PRIORITIES <= priority <= _PRIORITIES:
        raise InvalidInput(
            f"priority: wanted a whole number from {-_PRIORITIES} to {_PRIORITIES}, the smaller the more urgent, "
            f"given {priority!r}"
        )
    return int(priority)


def outputs_of(outputs: OutputKind) -> OutputKind:
    """What is to become of the outputs; raises `InvalidInput`."""
    if outputs not in ("owned", "leased", "device"):
        raise InvalidInput(f'outputs: wanted "owned", "leased" or "device", given {outputs!r}')
    return outputs


def device_names(devices: str | Sequence[str]) -> str:
    """The names as one text, with commas between them; raises `InvalidInput`."""
    if isinstance(devices, str):
        return devices
    if isinstance(devices, Sequence) and all(isinstance(name, str) for name in devices):
        return ",".join(devices)
    raise InvalidInput(f'devices: wanted a name such as "npu:0", or several, given {devices!r}')


def base_name(model: str | os.PathLike[str]) -> str:
    """The file name of a path; raises `InvalidInput`."""
    try:
        return os.path.basename(os.fspath(model))
    except TypeError:
        raise InvalidInput(f"model: wanted a path or bytes, given {type(model).__name__}") from None


def _is_whole(value: Any) -> bool:
    # numpy counts time spans among its integers
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def _real(value: Any) -> float | None:
    """The value as a float; None unless it is a real number."""
    if not isinstance(value, (float, np.floating)) and not _is_whole(value):
        return None
    try:
        number = float(value)
    except OverflowError:  # an int beyond the largest float
        return math.inf if value > 0 else -math.inf
    return None if math.isnan(number) else number


def _finite(seconds: float) -> float | None:
    """None for what no clock or lock of the system counts (292 years): it is no limit."""
    return None if seconds > threading.TIMEOUT_MAX else seconds
