"""How long things take: the time profile of an emulated device.

Times are seconds, bandwidths bytes a second; 0 means "as fast as the CPU". A task never ends before its work is really
done, so that a profile faster than this machine cannot be kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any

from . import gil

_SPIN_BELOW = 100e-6
_TABLES = {"compute": "model names", "calls": "function names"}


@dataclass(frozen=True)
class Profile:
    """The times of one kind of device.

    `pinned`, `pageable` and `on_device` are copy bandwidths, `copy_latency` what every copy takes besides. `compute`
    gives the time of one run by the model's name (graph name; wildcards as in file names); models not in it take
    `compute_default`. `switch` is added when the core ran another model before. `launch` is the time that submitting
    a task takes on the host, `malloc` that of an allocation of either kind and its size over `malloc_bandwidth` the
    rest of it. Loading takes `parse` and the model's size over `load_bandwidth`. `calls` gives what any function takes
    on the host besides, by its full name (``acl.init``; wildcards as in file names). With `hold_gil` calls that hold
    the GIL in pyACL hold it for their time, that of waiting for the device included.
    """

    name: str = ""
    pinned: float = 0.0
    pageable: float = 0.0
    on_device: float = 0.0
    copy_latency: float = 0.0
    compute: Mapping[str, float] = field(default_factory=dict)
    compute_default: float = 0.0
    switch: float = 0.0
    launch: float = 0.0
    malloc: float = 0.0
    malloc_bandwidth: float = 0.0
    parse: float = 0.0
    load_bandwidth: float = 0.0
    calls: Mapping[str, float] = field(default_factory=dict)
    hold_gil: bool = False

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "name":
                if not isinstance(value, str):
                    raise ValueError(f"name must be a text, {value!r} was given")
            elif one.name == "hold_gil":
                if not isinstance(value, bool):
                    raise ValueError(f"hold_gil must be true or false, {value!r} was given")
            elif one.name in _TABLES:
                if not isinstance(value, Mapping):
                    text = f"{one.name} must be a table of {_TABLES[one.name]} and seconds, {value!r} was given"
                    raise ValueError(text)
                for key, seconds in value.items():
                    if isinstance(seconds, Mapping):
                        raise ValueError(f"{one.name}.{key} is a table: a name with a dot must be quoted")
                    _number(f"{one.name}.{key}", seconds)
            else:
                _number(one.name, value)

    def copy(self, count: int, bandwidth: float) -> float:
        """Duration of a copy of `count` bytes."""
        return self.copy_latency + (count / bandwidth if bandwidth else 0.0)

    def run(self, name: str) -> float:
        """Duration of one run of the model called `name`."""
        for pattern, seconds in self.compute.items():
            if fnmatchcase(name, pattern):
                return seconds
        return self.compute_default

    def load(self, size: int) -> float:
        """Duration of loading a model of `size` bytes."""
        return self.parse + (size / self.load_bandwidth if self.load_bandwidth else 0.0)

    def allocation(self, size: int) -> float:
        """Duration of an allocation of `size` bytes."""
        return self.malloc + (size / self.malloc_bandwidth if self.malloc_bandwidth else 0.0)

    def call(self, function: str) -> float:
        """What `function` takes on the host besides."""
        for pattern, seconds in self.calls.items():
            if fnmatchcase(function, pattern):
                return seconds
        return 0.0

    def spend(self, seconds: float, held: bool) -> None:
        """Let the calling thread take that long, with the GIL `held` if that is wanted at all."""
        if seconds <= 0:
            return
        if seconds < _SPIN_BELOW:
            # shorter than the system's timers can sleep
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass
        elif self.hold_gil and held:
            gil.sleep(seconds)
        else:
            time.sleep(seconds)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Profile:
        """From a mapping as a TOML file gives it; an unknown key raises `ValueError`."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"no such setting of a profile: {', '.join(unknown)}; there are {', '.join(sorted(known))}"
            )
        return cls(**values)

    @classmethod
    def from_file(cls, path: str) -> Profile:
        """From a TOML file; `ValueError` says what is wrong with it."""
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        with open(path, "rb") as file:
            try:
                return cls.from_dict(tomllib.load(file))
            except ValueError as error:  # bad TOML and bad UTF-8 are ValueErrors too
                raise ValueError(f"{path}: {error}") from None


def _number(name: str, value: object) -> None:
    # a bool is an int to Python, and to nobody else
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, {value!r} was given")
    if not isfinite(value):
        raise ValueError(f"{name} must be finite (0 is as fast as the CPU), {value!r} was given")
    if value < 0:
        raise ValueError(f"{name} must not be negative, {value!r} was given")
