"""The only door to ACL: backend choice, checked calls, constants and the error table."""

from . import codes
from .backends import Backend, DeviceName, Kind, backend, install, known, npu_available, refuse, resolve, restore
from .calls import Driver
from .native import Functions

__all__ = [
    "Backend",
    "DeviceName",
    "Driver",
    "Functions",
    "Kind",
    "backend",
    "codes",
    "install",
    "known",
    "npu_available",
    "refuse",
    "resolve",
    "restore",
]
