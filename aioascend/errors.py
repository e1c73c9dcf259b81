"""The exception family: every error that leaves aioascend derives from `AioascendError`.

A message says what was wanted, what was given and what to do. The module imports nothing of ours,
so that every package may raise these.
"""

from __future__ import annotations

import copy
import sys
from typing import TypeVar

__all__ = [
    "AclError",
    "AioascendError",
    "BackendUnavailable",
    "BlockingCallInLoop",
    "DeadlineExceeded",
    "DeviceLost",
    "ExecutionFailed",
    "ForkedProcess",
    "InvalidInput",
    "ModelLoadError",
    "NoEventLoop",
    "OutOfMemory",
    "Overloaded",
    "SessionClosed",
    "StaleLease",
    "add_note",
    "again",
]


def add_note(error: BaseException, note: str) -> None:
    """Say something beside an error that must not hide it; before Python 3.11 it becomes part of the message."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    elif error.args:
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])


E = TypeVar("E", bound="AioascendError")


def again(error: E) -> E:
    """The same error for another request, or to be kept: each has notes of its own, and a traceback once it is raised.

    Nor have its causes the tracebacks of the original's: their frames would keep alive whatever they had to do with.
    """
    twin = copy.copy(error)
    twin.args = error.args  # with the notes, before Python 3.11
    twin.__cause__ = _cause_again(error.__cause__)
    twin.__notes__ = list(getattr(error, "__notes__", ()))
    return twin


def _cause_again(cause: BaseException | None) -> BaseException | None:
    if isinstance(cause, AioascendError):
        return again(cause)
    try:
        return copy.copy(cause)
    except Exception:  # a class of others that cannot be made from its arguments
        return None


class AioascendError(Exception):
    """The base of every error that aioascend raises."""


class InvalidInput(AioascendError, ValueError):
    """An argument or a model input does not fit; nothing was queued and nothing else was touched."""


class BackendUnavailable(AioascendError):
    """No device of the wanted name: pyACL cannot be imported, or there is no such NPU or emulated device."""


class ModelLoadError(AioascendError):
    """A model could not be opened; the device and the process stay usable.

    `path` is the model's file, None for bytes. `code` and `name` are the ACL code and its symbolic name: the driver's,
    or the one that it gives for such a file where it was not even asked; None and "" where neither applies. `detail` is
    the driver's own recent message, "" when it had none.
    """

    def __init__(
        self, message: str, *, path: str | None = None, code: int | None = None, name: str = "", detail: str = ""
    ) -> None:
        super().__init__(message)
        self.path = path
        self.code = code
        self.name = name
        self.detail = detail


class Overloaded(AioascendError):
    """The queue of a session is full.

    `retry_after` is an estimate in seconds of when a place will be free, or None when nothing has completed yet.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineExceeded(AioascendError, TimeoutError):
    """The time given to a request ran out; if it was still queued it never reached the device."""


class SessionClosed(AioascendError):
    """The session (or device) is not open: not opened yet, closing, or closed."""


class ForkedProcess(AioascendError):
    """An object made before `os.fork()` was used in the child, where its device and threads do not exist."""


class BlockingCallInLoop(AioascendError, RuntimeError):
    """A synchronous door was used on the thread of a running event loop, which it would have blocked."""


class NoEventLoop(AioascendError, RuntimeError):
    """Something was awaited without a running asyncio event loop, under another async library for example."""


class StaleLease(AioascendError):
    """Pinned memory, a stream or an event was used after it had been given back or its context rebuilt."""


class AclError(AioascendError):
    """An ACL call returned a code other than 0.

    `code` and `name` are the code and its symbolic name (pyACL reference §15), `call` the function, `device` the
    device's name and `detail` the driver's own recent message (`acl.get_recent_err_msg`), "" when it had none.
    `error_class` says what the code asks for: "caller" (an argument, the order of calls or the installation is wrong,
    repeating does not help), "overload" (a resource ran out, it may work later or with less in flight), "device_lost"
    (the device or its context cannot be trusted any more), "timeout" (a wait ended early, the device goes on) or
    "internal" (a task, the runtime or the driver failed, other work goes on).
    """

    def __init__(
        self,
        code: int,
        name: str,
        meaning: str,
        call: str,
        device: str,
        detail: str = "",
        error_class: str = "internal",
    ) -> None:
        text = f"{call} on {device} returned {code} ({name}): {meaning}"
        super().__init__(f"{text}. The driver says: {detail}" if detail else text)
        self.code = code
        self.name = name
        self.meaning = meaning
        self.call = call
        self.device = device
        self.detail = detail
        self.error_class = error_class

    def __reduce__(self) -> tuple[type[AclError], tuple[int, str, str, str, str, str, str]]:
        given = (self.code, self.name, self.meaning, self.call, self.device, self.detail, self.error_class)
        return type(self), given


class OutOfMemory(AclError):
    """The device, or its pinned host memory, has no room for an allocation."""


class DeviceLost(AclError):
    """The device no longer answers, or its memory or the way to it is broken: `reset_device` may not bring it back.

    Other errors of class "device_lost" are `ExecutionFailed`: a kernel that faulted or hung, after which the context
    is to be rebuilt.
    """


class ExecutionFailed(AclError):
    """A task failed on the device: the outputs of that run do not exist."""
