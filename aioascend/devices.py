"""Which devices there are, without opening any."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from . import driver
from .errors import BackendUnavailable

__all__ = ["DeviceInfo", "devices"]

logger = logging.getLogger("aioascend")


@dataclass(frozen=True)
class DeviceInfo:
    """A device: its name as `Session(devices=...)` takes it, its kind (`"npu"`, `"emulator"`) and its chip.

    `soc_name` is "" where the driver does not tell. The memory, in bytes, is None where only opening the device would
    tell.
    """

    name: str
    kind: str
    soc_name: str
    memory_total: int | None = None
    memory_free: int | None = None


def devices() -> tuple[DeviceInfo, ...]:
    """Every device of this machine: the NPUs first, then the emulator's.

    Initialises nothing: a process may ask and fork afterwards. If pyACL is installed but does not work, the reason is
    logged as a warning and the emulator's devices are returned.
    """
    kinds: list[driver.Kind] = ["emulator"]
    try:
        if driver.npu_available():
            kinds.insert(0, "npu")
    except BackendUnavailable as error:
        logger.warning("%s", error)
    found = []
    for kind in kinds:
        backend = driver.backend(kind)
        soc = driver.Driver(backend, kind).soc_name()
        memory = backend.emulator.config.memory if backend.emulator is not None else None
        found += [DeviceInfo(f"{kind}:{index}", kind, soc, memory) for index in range(backend.device_count())]
    return tuple(found)
