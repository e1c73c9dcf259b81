"""The C functions behind the emulated pyACL, as `libascendcl.so` has them: real function pointers (reference §21).

Each calls the emulated function of the same meaning, so that faults, findings and counts are those of one function
whatever way it was called. A call through a pointer gives the GIL up at its entry, as with the real library, and what
the emulator then waits for or spends is spent without it.
"""

from __future__ import annotations

import _thread
import logging
import os
import threading
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    addressof,
    c_char_p,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    create_string_buffer,
)
from types import ModuleType
from typing import Any

from . import codes
from .gil import released

__all__ = ["Native"]

logger = logging.getLogger("aioascend.emulator")

_PTR = c_void_p
_OUT_PTR = POINTER(c_void_p)
_OUT_SIZE = POINTER(c_size_t)
_OUT_MODEL = POINTER(c_uint32)
_PATH = c_char_p

# C name: the function of pyACL, the types of its arguments. Those behind a pointer are its results, in their order.
_FUNCTIONS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "aclInit": ("init", (_PATH,)),
    "aclFinalize": ("finalize", ()),
    "aclrtSetDevice": ("rt.set_device", (c_int32,)),
    "aclrtResetDevice": ("rt.reset_device", (c_int32,)),
    "aclrtCreateContext": ("rt.create_context", (_OUT_PTR, c_int32)),
    "aclrtDestroyContext": ("rt.destroy_context", (_PTR,)),
    "aclrtSetCurrentContext": ("rt.set_context", (_PTR,)),
    "aclrtMalloc": ("rt.malloc", (_OUT_PTR, c_size_t, c_int)),
    "aclrtMallocHost": ("rt.malloc_host", (_OUT_PTR, c_size_t)),
    "aclrtFree": ("rt.free", (_PTR,)),
    "aclrtFreeHost": ("rt.free_host", (_PTR,)),
    "aclrtMemcpy": ("rt.memcpy", (_PTR, c_size_t, _PTR, c_size_t, c_int)),
    "aclrtMemcpyAsync": ("rt.memcpy_async", (_PTR, c_size_t, _PTR, c_size_t, c_int, _PTR)),
    "aclrtDestroyStream": ("rt.destroy_stream", (_PTR,)),
    "aclrtSynchronizeStream": ("rt.synchronize_stream", (_PTR,)),
    "aclrtSynchronizeStreamWithTimeout": ("rt.synchronize_stream_with_timeout", (_PTR, c_int32)),
    "aclrtSynchronizeDevice": ("rt.synchronize_device", ()),
    "aclrtSubscribeReport": ("rt.subscribe_report", (c_uint64, _PTR)),
    "aclrtUnSubscribeReport": ("rt.unsubscribe_report", (c_uint64, _PTR)),
    "aclmdlQuerySize": ("mdl.query_size", (_PATH, _OUT_SIZE, _OUT_SIZE)),
    "aclmdlLoadFromFile": ("mdl.load_from_file", (_PATH, _OUT_MODEL)),
    "aclmdlLoadFromMem": ("mdl.load_from_mem", (_PTR, c_size_t, _OUT_MODEL)),
    "aclmdlLoadFromFileWithMem": (
        "mdl.load_from_file_with_mem",
        (_PATH, _OUT_MODEL, _PTR, c_size_t, _PTR, c_size_t),
    ),
    "aclmdlLoadFromMemWithMem": (
        "mdl.load_from_mem_with_mem",
        (_PTR, c_size_t, _OUT_MODEL, _PTR, c_size_t, _PTR, c_size_t),
    ),
    "aclmdlExecuteAsync": ("mdl.execute_async", (c_uint32, _PTR, _PTR, _PTR)),
    "aclmdlUnload": ("mdl.unload", (c_uint32,)),
}
_MESSAGE = "aclGetRecentErrMsg"


class _Text(threading.local):
    buffer: Any = None


class Native:
    """The C functions of one emulator, made at their first use.

    Whoever calls one must keep this object: the code behind the pointers is its own.
    """

    def __init__(self, acl: ModuleType) -> None:
        self._acl = acl
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._text = _Text()

    def address(self, name: str) -> int:
        """The address of a function by its C name, 0 for one that is not here."""
        with self._lock:
            made = self._made.get(name)
            if made is None:
                made = self._make(name)
                if made is None:
                    return 0
                self._made[name] = made
        return cast(made, c_void_p).value or 0

    def _make(self, name: str) -> Any:
        if name == _MESSAGE:
            # as a plain pointer: ctypes would not keep a text that a function of Python returns
            return CFUNCTYPE(c_void_p)(_never_raises(self._message, None))
        if name not in _FUNCTIONS:
            return None
        pyacl, arguments = _FUNCTIONS[name]
        module, _, function = f"acl.{pyacl}".rpartition(".")
        owner: Any = self._acl if module == "acl" else getattr(self._acl, module.partition(".")[2])
        return CFUNCTYPE(c_int, *arguments)(_never_raises(_call(owner, function, arguments), codes.INTERNAL_ERROR))

    def _message(self) -> int | None:
        with released():
            text = self._acl.get_recent_err_msg()
        if text is None:
            return None
        # The thread's own, until it asks again.
        self._text.buffer = create_string_buffer(text.encode())
        return addressof(self._text.buffer)

    def __repr__(self) -> str:
        return "the emulator's C library"


def _call(owner: Any, function: str, arguments: tuple[Any, ...]) -> Callable[..., int]:
    """The C function of `owner.function`, which is looked up at every call: a test may have put one in its place."""
    outputs = [index for index, kind in enumerate(arguments) if hasattr(kind, "contents")]

    def call(*given: Any) -> int:
        values: list[Any] = []
        for index, (kind, value) in enumerate(zip(arguments, given, strict=True)):
            if index in outputs:
                if not value:
                    return codes.INVALID_PARAM
            elif kind is c_char_p:
                if value is not None:
                    values.append(os.fsdecode(value))
                elif function != "init":
                    return codes.INVALID_PARAM
            else:
                values.append(value or 0)  # a null pointer comes as None
        with released():
            result = getattr(owner, function)(*values)
        if not outputs:
            return int(result)
        *results, code = result
        if not code:
            for index, value in zip(outputs, results, strict=True):
                given[index][0] = value
        return int(code)

    return call


def _never_raises(function: Callable[..., Any], failed: Any) -> Callable[..., Any]:
    """A C function lets no exception out, and cannot: ctypes would print it and return what happens to be there."""

    def guarded(*given: Any) -> Any:
        try:
            return function(*given)
        except KeyboardInterrupt:
            # It comes a moment later, when the call has returned, as it would had C been interrupted: in here ctypes
            # would swallow it.
            threading.Timer(0.01, _thread.interrupt_main).start()
            return failed
        except BaseException:
            logger.exception("the emulator failed in a call to its C library")
            return failed

    return guarded
