"""What to do when memory runs out: give back what lies idle, try once more, and say how things stand."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from ..driver import Driver
from ..errors import OutOfMemory

__all__ = ["Relief"]

T = TypeVar("T")


class Relief:
    """The idle memory of one device's users, and of the pools that it goes back to; control thread.

    `trim` frees what lies idle in the pools and says how many bytes that were.
    """

    def __init__(self, driver: Driver, trim: Callable[[], int]) -> None:
        self._driver = driver
        self._trim = trim
        self._givers: dict[Callable[[], None], None] = {}

    def add(self, giver: Callable[[], None]) -> None:
        """From now on `giver` is asked to give idle memory back to the pools when it runs short."""
        self._givers[giver] = None

    def remove(self, giver: Callable[[], None]) -> None:
        """Undo `add`."""
        self._givers.pop(giver, None)

    def relieve(self) -> int:
        """Have everybody give back what lies idle, and free it; how many bytes that was."""
        for giver in list(self._givers):
            giver()
        return self._trim()

    def retrying(self, take: Callable[..., T], *args: Any) -> T:
        """Take memory by ``take(*args)``; if there is none, once more after idle memory was given back.

        Arguments, not a closure: a kept exception would keep its cells (a frame can be cleared, its function not).
        Raises `OutOfMemory` of the second attempt, which says how much memory is used and free.
        """
        try:
            return take(*args)
        except OutOfMemory:
            pass  # the attempt below says more
        given_back = self.relieve()
        try:
            return take(*args)
        except OutOfMemory as error:
            explained = self._explained(error, given_back)
            self._trim()  # what had been taken already: others may have use for it
            raise explained from None

    def _explained(self, error: OutOfMemory, given_back: int) -> OutOfMemory:
        on_host = "host" in error.call.lower()
        where = "host" if on_host else "device"
        free, total = _host_memory() if on_host else self._driver.memory_info()
        asked = "what the model needs" if "load" in error.call.lower() else error.call.partition("(")[2].rstrip(")")
        detail = (
            f"asked for {asked or 'memory'}; of the {where}'s {total} bytes {total - free} are used and {free} free, "
            f"after {given_back} bytes of idle memory were given back"
        )
        if error.detail:
            detail = f"{error.detail}; {detail}"
        return OutOfMemory(error.code, error.name, error.meaning, error.call, error.device, detail)


def _host_memory() -> tuple[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
