"""Python objects whose addresses ``acl.util`` gave away."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

_MOST_BYTES = 16 << 20


class HostObjects:
    """The latest of them, kept alive for a while, with their sizes.

    Programs write ``bytes_to_ptr(x.tobytes())``: the bytes are dead before they are copied, which goes well on
    hardware by luck, and here because they are kept. No more than 16 MiB are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, address: int, owner: Any, size: int) -> None:
        """Keep an object that is not too big, and forget the oldest."""
        if size > _MOST_BYTES:
            return
        with self._lock:
            old = self._kept.pop(address, None)
            if old is not None:
                self._bytes -= old[1]
            self._kept[address] = (owner, size)
            self._bytes += size
            while self._bytes > _MOST_BYTES:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone

    def size_at(self, address: int) -> int | None:
        """The size of the object whose storage begins at `address`, if it is known."""
        known = self._kept.get(address)
        return known[1] if known is not None else None

    def forked(self) -> None:
        """In a forked child, where a thread that is not here may hold the lock."""
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Forget them all."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0
