"""What every checked call has: the two doors to ACL, and how a code becomes an exception."""

from __future__ import annotations

from ..errors import AclError, DeviceLost, ExecutionFailed, OutOfMemory
from . import codes
from .backends import Backend
from .choice import Choice

__all__ = ["EVENT_SYNC_TIMEOUT", "REPORT_TIMEOUT", "STREAM_SYNC_TIMEOUT", "CheckedCalls"]

REPORT_TIMEOUT = (codes.REPORT_TIMEOUT, codes.WAIT_CALLBACK_TIMEOUT)
STREAM_SYNC_TIMEOUT = codes.STREAM_SYNC_TIMEOUT
EVENT_SYNC_TIMEOUT = codes.EVENT_SYNC_TIMEOUT

_OUT_OF_MEMORY = frozenset({200000, 207001, 207018, 245000, 245002})


class CheckedCalls:
    """The base of the groups of calls.

    `acl` is the device's pyACL-shaped module; `c` has a C function for every call that goes to the C library, None for
    those that go through `acl` (see `routes`).
    """

    def __init__(self, backend: Backend, device: str) -> None:
        self.acl = backend.acl
        self.backend = backend
        self.device = device
        self._choice = Choice(backend.native)
        self.c = self._choice.c
        self._c_names = self._choice.names

    def error(self, ret: int, call: str, arguments: str = "") -> AclError:
        """The exception for a code; takes the driver's recent message from the calling thread.

        `call` is pyACL's name of it, with what should be shown of its `arguments`; where the call went to the C library
        the exception has the C name. The message is asked for on the same way: it is the thread's, and whichever
        function asks clears it (pyACL reference §4).
        """
        acl, c = self.acl, self.c
        detail = ""
        try:
            if call in self._c_names and c.aclGetRecentErrMsg is not None:
                text = c.aclGetRecentErrMsg()  # copied by ctypes before anything else can run on this thread
                detail = text.decode(errors="replace") if text else ""
            else:
                detail = str(acl.get_recent_err_msg() or "")
        except Exception:  # the message is a courtesy: the code must be told even when asking for it fails
            detail = ""
        return self.error_with(ret, call, detail.strip(), arguments)

    def error_with(self, ret: int, call: str, detail: str, arguments: str = "") -> AclError:
        """The exception for a code whose driver message is already known."""
        info = codes.describe(ret)
        kind: type[AclError] = AclError
        if ret in _OUT_OF_MEMORY:
            kind = OutOfMemory
        elif ret in codes.LOST:
            kind = DeviceLost
        elif 507000 <= ret < 508000 and info.error_class is not codes.ErrorClass.TIMEOUT:
            kind = ExecutionFailed
        called = self._c_names.get(call, call) + arguments
        return kind(ret, info.name, info.meaning, called, self.device, detail, info.error_class.value)

    def as_error(self, error: BaseException, call: str) -> AclError:
        """`error` itself, or for an exception that is not ours one that says where it came from."""
        if isinstance(error, AclError):
            return error
        return self.error_with(codes.FAILURE, call, f"{type(error).__name__}: {error}")
