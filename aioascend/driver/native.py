"""Finding the C library that pyACL uses, and its functions with their prototypes.

Only the copy of `libascendcl.so` that importing `acl` has mapped into the process will do: toolkits also ship link-time
stubs, and a second copy would have thread-local contexts of its own (pyACL reference §21).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .routes import ROUTES, Route

__all__ = ["Functions", "Native", "mapped_copies", "native_of"]

_MAPS = "/proc/self/maps"
_NAME = re.compile(r"libascendcl\.so(\.\d+)*")
_STUB_FOLDERS = frozenset({"stub", "stubs", "devlib"})


class Functions:
    """The C functions of the table by their C names, callable without the GIL; None for one that is not there."""

    __slots__ = tuple(route.c for route in ROUTES)

    def __init__(self, found: dict[str, Any]) -> None:
        for route in ROUTES:
            setattr(self, route.c, found.get(route.c))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Native:
    """What there is of the C library: `functions` by C name, where they are from, and why some or all are missing.

    `reason` is "" where nothing is missing, and None where a C library is not to be expected: a test's double.
    """

    def __init__(self, functions: dict[str, Any], where: str, reason: str | None) -> None:
        self.functions = functions
        self.where = where
        self.reason = reason


def native_of(acl: Any) -> Native:
    """The C functions that belong to an `acl` module.

    A double that has some gives their addresses by name in `__native__`; for pyACL itself the mapped library is asked.
    """
    double = getattr(acl, "__native__", None)
    if double is not None:
        return _read(double, double.address, repr(double))
    if getattr(acl, "__file__", None) is None:
        return Native({}, "", None)  # made in this process, not imported: no C library is behind it
    try:
        library, path = _mapped_library()
    except OSError as error:
        return Native({}, "", str(error))

    def address(name: str) -> int:
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value or 0
        except AttributeError:
            return 0

    return _read(library, address, path)


def _read(owner: Any, address_of: Any, where: str) -> Native:
    found = {}
    for route in ROUTES:
        address = address_of(route.c)
        if address:
            found[route.c] = _prototype(route)(address)
            found[route.c].owner = owner  # what has the code must outlive the pointer to it
    missing = [route.c for route in ROUTES if route.c not in found]
    return Native(found, where, f"{where} has no {', '.join(missing)}" if missing else "")


def _prototype(route: Route) -> Any:
    # CFUNCTYPE releases the GIL around the call (PYFUNCTYPE would keep it).
    return ctypes.CFUNCTYPE(route.result, *route.arguments)


def _mapped_library() -> tuple[ctypes.CDLL, str]:
    with open(_MAPS, encoding="utf-8", errors="surrogateescape") as maps:
        copies = mapped_copies(maps)
    if not copies:
        raise OSError("no libascendcl.so is mapped into this process: pyACL has it under another name, or linked in")
    if len(copies) > 1:
        raise OSError(f"several copies of libascendcl.so are mapped, and pyACL's cannot be told: {', '.join(copies)}")
    (path,) = copies
    if _STUB_FOLDERS.intersection(path.split("/")):
        raise OSError(f"{path} is the toolkit's link-time stub")
    # RTLD_NOLOAD: only what is loaded already, or nothing.
    return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW), path


def mapped_copies(maps: Iterable[str]) -> list[str]:
    """The paths of the copies of libascendcl.so among the lines of `/proc/self/maps`, each once."""
    found: dict[tuple[str, str], str] = {}
    for line in maps:
        fields = line.rstrip("\n").split(maxsplit=5)
        if len(fields) == 6 and _NAME.fullmatch(os.path.basename(fields[5].removesuffix(" (deleted)"))):
            found[fields[3], fields[4]] = fields[5]  # one file, by device and inode, may have several names
    return list(found.values())
