"""The two routes of a call: through pyACL, or straight to the C library with the GIL released.

pyACL holds the GIL in almost every call (pyACL reference §3). Calls that may take long therefore go to `libascendcl.so`
by default, which ctypes calls without the GIL; the short ones stay with pyACL. Handles are the same pointers on both.
The prototypes are those of pyACL reference §21; a function that is not here is called through pyACL alone.
"""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["ROUTES", "Route", "Way", "is_output"]

Way = Literal["pyacl", "c"]

_OUT_HANDLE = POINTER(c_void_p)
_OUT_SIZE = POINTER(c_size_t)
_OUT_MODEL = POINTER(c_uint32)
_MEMCPY = (c_void_p, c_size_t, c_void_p, c_size_t, c_int)
_WITH_MEM = (_OUT_MODEL, c_void_p, c_size_t, c_void_p, c_size_t)


@dataclass(frozen=True)
class Route:
    """One function under its two names, its C prototype, and the way it goes unless the environment says otherwise.

    An argument whose type is a pointer to a ctypes type is an out-pointer.
    """

    c: str
    pyacl: str
    arguments: tuple[Any, ...]
    default: Way
    result: Any = c_int

    @property
    def slow(self) -> bool:
        """Whether it may hold other threads up: asking for a text does not."""
        return self.result is c_int

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The types that the out-pointers point to."""
        return tuple(argument._type_ for argument in self.arguments if is_output(argument))


def is_output(argument: Any) -> bool:
    """Whether an argument of this type is an out-pointer."""
    return hasattr(argument, "contents")


ROUTES: tuple[Route, ...] = (
    Route("aclInit", "init", (c_char_p,), "c"),
    Route("aclFinalize", "finalize", (), "c"),
    Route("aclrtSetDevice", "rt.set_device", (c_int32,), "c"),
    Route("aclrtResetDevice", "rt.reset_device", (c_int32,), "c"),
    Route("aclrtCreateContext", "rt.create_context", (_OUT_HANDLE, c_int32), "c"),
    Route("aclrtDestroyContext", "rt.destroy_context", (c_void_p,), "c"),
    Route("aclrtSetCurrentContext", "rt.set_context", (c_void_p,), "pyacl"),
    Route("aclrtMalloc", "rt.malloc", (_OUT_HANDLE, c_size_t, c_int), "c"),
    Route("aclrtMallocHost", "rt.malloc_host", (_OUT_HANDLE, c_size_t), "c"),
    Route("aclrtFree", "rt.free", (c_void_p,), "c"),
    Route("aclrtFreeHost", "rt.free_host", (c_void_p,), "c"),
    Route("aclrtMemcpy", "rt.memcpy", _MEMCPY, "c"),
    Route("aclrtMemcpyAsync", "rt.memcpy_async", (*_MEMCPY, c_void_p), "pyacl"),
    Route("aclrtDestroyStream", "rt.destroy_stream", (c_void_p,), "c"),
    Route("aclrtSynchronizeStream", "rt.synchronize_stream", (c_void_p,), "pyacl"),
    Route("aclrtSynchronizeStreamWithTimeout", "rt.synchronize_stream_with_timeout", (c_void_p, c_int32), "pyacl"),
    Route("aclrtSynchronizeDevice", "rt.synchronize_device", (), "pyacl"),
    Route("aclrtSubscribeReport", "rt.subscribe_report", (c_uint64, c_void_p), "pyacl"),
    Route("aclrtUnSubscribeReport", "rt.unsubscribe_report", (c_uint64, c_void_p), "c"),
    Route("aclmdlQuerySize", "mdl.query_size", (c_char_p, _OUT_SIZE, _OUT_SIZE), "c"),
    Route("aclmdlLoadFromFile", "mdl.load_from_file", (c_char_p, _OUT_MODEL), "c"),
    Route("aclmdlLoadFromMem", "mdl.load_from_mem", (c_void_p, c_size_t, _OUT_MODEL), "c"),
    Route("aclmdlLoadFromFileWithMem", "mdl.load_from_file_with_mem", (c_char_p, *_WITH_MEM), "c"),
    Route("aclmdlLoadFromMemWithMem", "mdl.load_from_mem_with_mem", (c_void_p, c_size_t, *_WITH_MEM), "c"),
    Route("aclmdlExecuteAsync", "mdl.execute_async", (c_uint32, c_void_p, c_void_p, c_void_p), "pyacl"),
    Route("aclmdlUnload", "mdl.unload", (c_uint32,), "c"),
    # The error text of a failed call is asked for on the way that the call went.
    Route("aclGetRecentErrMsg", "get_recent_err_msg", (), "c", c_char_p),
)
