"""What one emulated machine looks like."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from . import codes
from .profile import Profile

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes from ``"512M"``, ``"8GiB"`` or a plain number; `ValueError` says what was given."""
    digits = text.strip().lower().removesuffix("ib").removesuffix("b")
    unit = 1
    if digits and digits[-1] in _UNITS:
        unit = _UNITS[digits[-1]]
        digits = digits[:-1]
    try:
        return int(float(digits) * unit)
    except ValueError:
        raise ValueError(f"a size such as 512M or 8G was wanted, {text!r} was given") from None


def _switch(text: str) -> bool:
    return text not in ("0", "no", "false")


# streams and events by chip, the longest beginning of its name counts
_LIMITS = {
    "Ascend310": (1024, 1023),
    "Ascend310B": (512, 65536),
    "Ascend910": (2048, 65535),
    "Ascend910B": (1984, 65536),
    "Ascend910_93": (1984, 65536),
    "": (1984, 65536),
}


_SERVERS_ONLY = ("stream_abort", "host_register", "host_register_v2")


def _limits(soc_name: str) -> tuple[int, int]:
    return _LIMITS[max((name for name in _LIMITS if soc_name.startswith(name)), key=len)]


@dataclass(frozen=True)
class Config:
    """One emulated machine. Sizes are bytes; the limits are those of the chip named (reference §6, §7).

    `strict` makes errors of what hardware forbids or leaves undefined, and remembers where everything was made;
    `trace` only remembers. `races` finds accesses without an order.
    """

    devices: int = 1
    memory: int = 8 << 30
    soc_name: str = "Ascend310P3"
    intra_op_threads: int = 1
    concurrent_executes: int = 1
    ex_events: bool = True
    run_mode: int = codes.RUN_MODE_HOST
    # per device; 0: as many as the chip has
    streams: int = 0
    events: int = 0
    report_threads: int = 1024
    # tasks that a stream holds: a submission that finds so many waits (reference §3)
    stream_depth: int = 2048
    # "6.0", "8.0", "8.5", "9.0": what memcpy_async does with pageable host memory (reference §8)
    cann: str = "9.0"
    # up to this size a copy is made by the thread that advances the streams: it takes less than waking another one
    inline_copy: int = 512 << 10
    profile: Profile | None = None
    # a task that fails with a code that reference §15 calls fatal leaves its context dead: every later task and status
    # call of it fails with the same code, until it is destroyed
    fatal_faults: bool = False
    strict: bool = False
    trace: bool = False
    # open real offline models (.om), with outputs that are made up
    dry_run: bool = False
    # whether accesses without an order are looked for; None: in strict mode
    races: bool | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("devices", 1),
            ("memory", 1 << 20),
            ("intra_op_threads", 1),
            ("concurrent_executes", 1),
            ("stream_depth", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, {getattr(self, name)} was given")
        if self.cann not in ("6.0", "8.0", "8.5", "9.0"):
            raise ValueError(f"cann is 6.0, 8.0, 8.5 or 9.0, {self.cann!r} was given")
        if self.run_mode not in (codes.RUN_MODE_DEVICE, codes.RUN_MODE_HOST):
            raise ValueError(f"run_mode is 0 (on the board) or 1 (PCIe host), {self.run_mode} was given")

    def has(self, function: str) -> bool:
        """Whether the chip has a function that not every chip has (reference §6, §7, §8, §9)."""
        soc = self.soc_name
        if function in _SERVERS_ONLY:
            return soc.startswith(("Ascend910B", "Ascend910_9", "Ascend950"))
        if function == "set_op_wait_timeout":
            return not soc.startswith("Ascend310P")
        return soc != "Ascend310"

    @property
    def finds_races(self) -> bool:
        """Whether accesses without an order are looked for."""
        return self.strict if self.races is None else self.races

    @property
    def stream_limit(self) -> int:
        """Streams of a device, default ones included."""
        return self.streams or _limits(self.soc_name)[0]

    @property
    def event_limit(self) -> int:
        """Legacy events of a device."""
        return self.events or _limits(self.soc_name)[1]

    @classmethod
    def from_env(cls, **changes: Any) -> Config:
        """Defaults from ``AIOASCEND_EMULATOR_DEVICES``, ``_MEMORY`` (bytes, ``512M``, ``8G``), ``_THREADS``, ``_SOC``,
        ``_CANN``, ``_FATAL_FAULTS``, ``_STRICT``, ``_RACES``, ``_DRY_RUN`` and ``_PROFILE`` (a TOML file).
        """
        values: dict[str, Any] = {}
        for field, variable, convert in (
            ("devices", "DEVICES", int),
            ("memory", "MEMORY", parse_size),
            ("intra_op_threads", "THREADS", int),
            ("soc_name", "SOC", str),
            ("cann", "CANN", str),
            ("fatal_faults", "FATAL_FAULTS", _switch),
            ("strict", "STRICT", _switch),
            ("races", "RACES", _switch),
            ("dry_run", "DRY_RUN", _switch),
            ("profile", "PROFILE", Profile.from_file),
        ):
            text = os.environ.get(f"AIOASCEND_EMULATOR_{variable}")
            if text:
                try:
                    values[field] = convert(text)
                except (ValueError, OSError) as error:
                    raise ValueError(f"AIOASCEND_EMULATOR_{variable}: {error}") from None
        known = {field.name for field in fields(cls)}
        for name in changes:
            if name not in known:
                raise TypeError(f"no such setting of the emulator: {name}")
        return cls(**{**values, **changes})
