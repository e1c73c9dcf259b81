"""Handles made on one route and used on the other: the same pointers, the same contexts, the same error text."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_void_p

from .bench import Bench, code_text
from .checks import Group

__all__ = ["HANDLES"]

HANDLES = Group("one handle, two routes")

_TO_DEVICE, _TO_HOST = 1, 2


@HANDLES.check("a context made by pyACL is set in C and current for pyACL", "§21", "the same")
def _context_of_pyacl(bench: Bench) -> str:
    acl, c = bench.acl, bench.c
    context, ret = acl.rt.create_context(bench.index)
    bench.good(ret, "acl.rt.create_context")
    ret = acl.rt.set_context(bench.context)
    bench.good(ret, "acl.rt.set_context")
    ret = c.aclrtSetCurrentContext(context)
    bench.good(ret, "aclrtSetCurrentContext")
    current, _ = acl.rt.get_context()
    ret = c.aclrtDestroyContext(context)
    bench.good(ret, "aclrtDestroyContext")
    return "the same" if current == context else f"{current:#x}, not {context:#x}"


@HANDLES.check("a context made in C is current for pyACL on that thread", "§21", "the same")
def _context_of_c(bench: Bench) -> str:
    acl, c = bench.acl, bench.c
    cell = c_void_p()
    ret = c.aclrtCreateContext(byref(cell), bench.index)
    bench.good(ret, "aclrtCreateContext")
    current, ret = acl.rt.get_context()
    bench.good(ret, "acl.rt.get_context")
    ret = acl.rt.destroy_context(cell.value or 0)
    bench.good(ret, "acl.rt.destroy_context")
    return "the same" if current == cell.value else f"{current:#x}, not {cell.value or 0:#x}"


@HANDLES.check("a context is current for one thread alone, whichever route set it", "§5, §21", "107002")
def _context_per_thread(bench: Bench) -> str:
    acl, c = bench.acl, bench.c
    ret = c.aclrtSetCurrentContext(bench.context)
    bench.good(ret, "aclrtSetCurrentContext")
    seen: list[int] = []

    def ask() -> None:
        _context, ret = acl.rt.get_context()
        seen.append(ret)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return code_text(seen[0])


@HANDLES.check("a stream made by pyACL is waited for and destroyed in C", "§21", "0, 0, 0")
def _stream(bench: Bench) -> str:
    acl, c = bench.acl, bench.c
    stream, ret = acl.rt.create_stream()
    bench.good(ret, "acl.rt.create_stream")
    bench.busy(stream, 0.01)
    waited = c.aclrtSynchronizeStream(stream)
    again = c.aclrtSynchronizeStreamWithTimeout(stream, 1000)
    destroyed = c.aclrtDestroyStream(stream)
    return f"{waited}, {again}, {destroyed}"


@HANDLES.check("memory made on each route is copied and freed on the other", "§21", "the right bytes, 0, 0, 0")
def _memory(bench: Bench) -> str:
    acl, c = bench.acl, bench.c
    cell = c_void_p()
    host = c_void_p()
    ret = c.aclrtMalloc(byref(cell), 4096, 0)
    bench.good(ret, "aclrtMalloc")
    ret = c.aclrtMallocHost(byref(host), 4096)
    bench.good(ret, "aclrtMallocHost")
    device, pinned = cell.value or 0, host.value or 0
    other = bench.malloc_host(4096)
    other_device, ret = acl.rt.malloc(4096, 0)
    bench.good(ret, "acl.rt.malloc")
    ctypes.memset(pinned, 0x5A, 4096)
    ctypes.memset(other, 0, 4096)
    ret = acl.rt.memcpy(device, 4096, pinned, 4096, _TO_DEVICE)
    bench.good(ret, "acl.rt.memcpy")
    ret = c.aclrtMemcpy(other, 4096, device, 4096, _TO_HOST)
    bench.good(ret, "aclrtMemcpy")
    right = ctypes.string_at(other, 4096) == bytes([0x5A]) * 4096
    freed = acl.rt.free(device)
    freed_host = acl.rt.free_host(pinned)
    freed_in_c = c.aclrtFree(other_device)
    return f"{'the right' if right else 'wrong'} bytes, {freed}, {freed_host}, {freed_in_c}"


@HANDLES.check("a stream subscribed by pyACL is unsubscribed in C", "§21", "0")
def _subscription(bench: Bench) -> str:
    acl, c = bench.acl, bench.c
    stream = bench.stream()
    ident = threading.get_ident()
    ret = acl.rt.subscribe_report(ident, stream)
    bench.good(ret, "acl.rt.subscribe_report")
    ret = c.aclrtUnSubscribeReport(ident, stream)
    return code_text(ret)


@HANDLES.check("both routes tell the error of a thread, and asking clears it", "§4, §21", "told, then nothing")
def _message(bench: Bench) -> str:
    acl, c = bench.acl, bench.c
    acl.get_recent_err_msg()
    ret = c.aclrtSetDevice(9999)
    told = acl.get_recent_err_msg()
    after = c.aclGetRecentErrMsg()
    return f"{'told' if ret and told else 'nothing'}, then {'more' if after else 'nothing'}"


@HANDLES.check("the error of one thread is not told to another", "§4", "nothing")
def _message_per_thread(bench: Bench) -> str:
    acl = bench.acl
    acl.get_recent_err_msg()
    acl.rt.set_device(9999)
    seen: list[str] = []

    def ask() -> None:
        seen.append(str(acl.get_recent_err_msg() or "nothing"))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    acl.get_recent_err_msg()
    return seen[0]
