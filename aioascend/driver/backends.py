"""Which `acl` module serves a device: pyACL where NPUs are, the emulator where it is asked for or nothing else is.

Asking never initialises a device: pyACL is imported and asked for its device count, no more, so that a process may
still fork afterwards.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..errors import BackendUnavailable, InvalidInput
from . import codes
from .native import Native, native_of

if TYPE_CHECKING:
    from ..emulator import Emulator

logger = logging.getLogger("aioascend.driver")

Kind = Literal["npu", "emulator"]

_NAME = re.compile(r"(npu|emulator):(\d{1,4})")
_NEEDED = ("init", "rt", "mdl", "util", "create_data_buffer")
_EXPECTED = '"npu:0" (or another index), "emulator:0", "auto"'


@dataclass(frozen=True)
class DeviceName:
    """The name of one device: its kind and its index."""

    kind: Kind
    index: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@dataclass(frozen=True)
class Backend:
    """An `acl` module and what it is; `emulator` is None for pyACL."""

    kind: Kind
    acl: Any
    emulator: Emulator | None = None

    @cached_property
    def native(self) -> Native:
        """The C functions behind the module, as far as there are any."""
        return native_of(self.acl)

    def device_count(self) -> int:
        """The number of devices; raises `BackendUnavailable` when the driver cannot tell."""
        acl = self.acl
        count, ret = acl.rt.get_device_count()
        if ret == codes.NO_DEVICE:
            return 0
        if ret:
            info = codes.describe(ret)
            detail = acl.get_recent_err_msg() or ""
            raise BackendUnavailable(
                f"acl.rt.get_device_count returned {ret} ({info.name}): {info.meaning}. {detail}".rstrip()
                + " Check the driver with `npu-smi info` and that this user and container may open /dev/davinci*; "
                'devices="emulator:0" runs without an NPU.'
            )
        return int(count)


_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)  # another thread of the parent may have held the old one
_backends: dict[Kind, Backend] = {}
_refusals: dict[Kind, Callable[[], Exception]] = {}
_warned = False


def backend(kind: Kind) -> Backend:
    """The backend of a kind, imported at first use; raises `BackendUnavailable` with the reason when it cannot be."""
    if kind in _refusals:
        raise _refusals[kind]()
    with _lock:
        found = _backends.get(kind)
        if found is None:
            found = _backends[kind] = _import_pyacl() if kind == "npu" else _make_emulator()
        return found


def known(kind: Kind) -> Backend | None:
    """The backend of a kind if somebody has asked for it."""
    with _lock:
        return _backends.get(kind)


def install(new: Backend) -> Backend | None:
    """Put `new` in the place of the backend of its kind and return the earlier one (for tests and for stub drivers)."""
    with _lock:
        old = _backends.get(new.kind)
        _backends[new.kind] = new
        return old


def refuse(kind: Kind, error: Callable[[], Exception]) -> None:
    """Let nobody in this process touch the devices of a kind any more, not even to count them: they get `error`."""
    _refusals[kind] = error


def restore(kind: Kind, old: Backend | None) -> None:
    """Undo `install`."""
    with _lock:
        if old is None:
            _backends.pop(kind, None)
        else:
            _backends[kind] = old


def _make_emulator() -> Backend:
    from ..emulator import Config, Emulator

    try:
        emulator = Emulator(Config.from_env())
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise InvalidInput(f"the emulator cannot be set up: {error}") from None
    return Backend("emulator", emulator.acl, emulator)


def _import_pyacl() -> Backend:
    if not _pyacl_present():
        raise BackendUnavailable(
            "no pyACL here: there is no module named `acl`. An NPU needs the CANN toolkit; source its set_env.sh so "
            'that its python/site-packages is on PYTHONPATH. Without an NPU use devices="emulator:0".'
        )
    try:
        acl = importlib.import_module("acl")
    except (Exception, SystemExit) as error:  # a half-installed toolkit fails in many ways; each is told, none hidden
        raise BackendUnavailable(
            f"pyACL is installed but `import acl` failed: {type(error).__name__}: {error}. Usually a library of CANN "
            "or of the driver is missing from LD_LIBRARY_PATH: source the toolkit's set_env.sh, or name "
            'devices="emulator:0" to run without the NPU.'
        ) from error
    missing = [name for name in _NEEDED if not hasattr(acl, name)]
    if missing:
        where = getattr(acl, "__file__", None) or "an unknown place"
        raise BackendUnavailable(
            f"the module `acl` imported from {where} is not pyACL (it has no {', '.join(missing)}). Put CANN's "
            "python/site-packages before it on PYTHONPATH."
        )
    return Backend("npu", acl)


def _pyacl_present() -> bool:
    if "acl" in sys.modules:
        return True
    try:
        return importlib.util.find_spec("acl") is not None
    except (ImportError, ValueError):
        return False


def npu_available() -> bool:
    """Whether pyACL is here and finds an NPU; raises `BackendUnavailable` if it is here and does not work."""
    with _lock:
        known = "npu" in _backends
    if not known and not _pyacl_present():
        return False
    return backend("npu").device_count() > 0


def resolve(devices: str) -> tuple[DeviceName, ...]:
    """The devices meant by `devices`: `"auto"`, `"all"`, a kind, or a name; several names may be joined by commas.

    `"auto"` means what `AIOASCEND_DEVICES` says; where that is not set it takes the first NPU where there is one, else
    the emulator's first device, with one logged warning. Naming a kind never falls back to another. Raises
    `BackendUnavailable` for a device that is not there and `InvalidInput` for a text that is no device name.
    """
    global _warned
    if devices == "auto":
        devices = os.environ.get("AIOASCEND_DEVICES", "").strip() or "auto"
    if devices in ("auto", "all"):
        if npu_available():
            kind: Kind = "npu"
        else:
            kind = "emulator"
            if not _warned:
                _warned = True
                logger.warning("no NPU found: running on the emulator (ONNX Runtime on the CPU)")
        count = backend(kind).device_count() if devices == "all" else 1
        return tuple(DeviceName(kind, index) for index in range(count))
    return tuple(_one(part.strip()) for part in devices.split(","))


def _one(text: str) -> DeviceName:
    match = _NAME.fullmatch(f"{text}:0" if text in ("npu", "emulator") else text)
    if match is None:
        raise InvalidInput(f"unknown device {text!r}: wanted {_EXPECTED}")
    kind: Kind = "npu" if match[1] == "npu" else "emulator"
    name = DeviceName(kind, int(match[2]))
    count = backend(kind).device_count()
    if name.index >= count:
        have = f"{kind}:0" if count == 1 else f"{kind}:0 to {kind}:{count - 1}"
        raise BackendUnavailable(f"no device {name}: there is {have if count else f'no {kind}'}")
    return name
