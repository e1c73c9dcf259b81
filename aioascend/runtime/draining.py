"""Waiting until nothing is under way on a stream."""

from __future__ import annotations

from collections.abc import Callable

from ..driver import Driver
from ..errors import AclError, DeviceLost

__all__ = ["drain", "glance"]

_GLANCE_MS = 2
_ASKS = 4  # how often a stream is synchronised that answers with failures


def drain(
    driver: Driver, stream: int, milliseconds: Callable[[], int], go_on: Callable[[], bool]
) -> tuple[bool, list[AclError]]:
    """Block until nothing is under way on `stream`; whether that is so, and what its tasks failed with.

    A failing synchronise takes a status, once, and says nothing about what is still under way: it ends as well when
    the stream is aborted or its context dies beside it (pyACL reference §6, §17). So it is called until it succeeds;
    a stream that only ever fails is not known to be empty. A device that is lost touches nothing any more.

    `milliseconds` bounds the next wait, -1 for no bound; after one that went by `go_on` tells whether to wait again.
    """
    failures: list[AclError] = []
    while len(failures) < _ASKS:
        try:
            if driver.synchronize_stream(stream, milliseconds()):
                return True, failures
            if not go_on():
                return False, failures
        except BaseException as error:
            failures.append(driver.as_error(error, "acl.rt.synchronize_stream"))
            if isinstance(error, DeviceLost):
                return True, failures
    return False, failures


def glance(driver: Driver, stream: int) -> tuple[bool | None, list[AclError]]:
    """`drain` that hardly blocks: None for a stream that has work, False for one that only ever fails."""
    empty, failures = drain(driver, stream, lambda: _GLANCE_MS, lambda: False)
    return None if not empty and len(failures) < _ASKS else empty, failures
