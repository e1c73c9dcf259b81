"""The only door to ACL: backend choice, checked calls, constants and the error table."""

from .backends import Backend, DeviceName, Kind, backend, install, known, npu_available, refuse, resolve, restore
from .calls import Driver

__all__ = [
    "Backend",
    "DeviceName",
    "Driver",
    "Kind",
    "backend",
    "install",
    "known",
    "npu_available",
    "refuse",
    "resolve",
    "restore",
]
