"""Which of the two routes each call takes: its own, or the one that `AIOASCEND_DRIVER` forces where there are two."""

from __future__ import annotations

import logging
import os

from ..errors import InvalidInput
from .native import Functions, Native
from .routes import ROUTES, Way

__all__ = ["Choice", "asked_way"]

logger = logging.getLogger("aioascend.driver")

_VARIABLE = "AIOASCEND_DRIVER"
_told: set[str] = set()


def asked_way() -> Way | None:
    """The route that `AIOASCEND_DRIVER` forces, None for each call's own; raises `InvalidInput` for any other value."""
    given = os.environ.get(_VARIABLE, "").strip()
    if given == "pyacl":
        return "pyacl"
    if given == "c":
        return "c"
    if not given:
        return None
    raise InvalidInput(
        f'{_VARIABLE}: wanted "pyacl" (every call through pyACL) or "c" (every call that has a C route straight to '
        f"libascendcl.so); leave it out for each call's own route. Given {given!r}"
    )


class Choice:
    """The routes of one device's calls: `c` has a function for what goes to the C library, None for the rest.

    A function that the C library lacks falls back to pyACL.
    """

    def __init__(self, native: Native) -> None:
        way = asked_way()
        wanted = [route for route in ROUTES if (way or route.default) == "c"]
        found = native.functions
        self.c = Functions({route.c: found[route.c] for route in wanted if route.c in found})
        self.names = {f"acl.{route.pyacl}": route.c for route in wanted if route.c in found}
        if way == "pyacl":
            held = [route.c for route in ROUTES if route.default == "c" and route.slow]
        else:
            held = [route.c for route in wanted if route.c not in found and route.slow]
        self._warning = ""
        if held and native.reason is not None:
            reason = f"{_VARIABLE}=pyacl" if way == "pyacl" else native.reason
            calls = "1 call goes" if len(held) == 1 else f"{len(held)} calls go"
            self._warning = (
                f"{calls} through pyACL instead of straight to the C library ({reason}): "
                f"{', '.join(held)}. pyACL holds the GIL in them: every Python thread of this process, event loops "
                "included, stands still while one runs, which for loading a model can be seconds"
            )

    def warn(self) -> None:
        """Log once a process which calls hold the GIL although they need not, if any do."""
        if self._warning and self._warning not in _told:
            _told.add(self._warning)
            logger.warning("%s", self._warning)
