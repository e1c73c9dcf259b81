"""One checked function for every ACL call that aioascend makes.

`Driver` turns a non-zero `ret` into the exception family, with the code, its symbolic name, the call, the device and
the driver's own recent message, which is read at once on the failing thread (it is thread-level and cleared on read,
pyACL reference §4). Only the call forms of the reference are used: positional arguments, outputs first, `ret` last.

A call that has two routes takes the one that `routes` gives it: `self.c` has its C function, or None for pyACL. The
cells of out-pointers are made anew for every call, so that no two threads share one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from ctypes import byref, c_void_p
from typing import Any

from ..errors import AclError
from . import codes
from .backends import Backend
from .checked import EVENT_SYNC_TIMEOUT, REPORT_TIMEOUT, STREAM_SYNC_TIMEOUT
from .constants import (
    CallbackBlockType,
    EventFlag,
    EventRecordedStatus,
    MallocPolicy,
    MemcpyKind,
    MemoryAttr,
    RunMode,
    StreamStatus,
)
from .model_calls import ModelCalls

THREAD_NOT_SUBSCRIBED = (codes.THREAD_SUBSCRIBE, codes.THREAD_NOT_SUBSCRIBE)

# Plain ints: an enum member costs an attribute look-up in its class on every call of the hot path.
_HUGE_FIRST = int(MallocPolicy.HUGE_FIRST)
_NO_BLOCK = int(CallbackBlockType.NO_BLOCK)
_BLOCK = int(CallbackBlockType.BLOCK)
_RECORDED = int(EventRecordedStatus.COMPLETE)
# A2 and A3, whose chips are named so; the newest generation is in the reference's list of both.
_ABORTING = ("Ascend910B", "Ascend910_9", "Ascend950")
_ATLAS_300 = "Ascend310"  # the chip of Atlas 200, 300 and 500
_STREAM_DONE = int(StreamStatus.COMPLETE)


def _nobody_listens(address: int, nbytes: int, write: bool) -> None:
    """What `Driver.host_access` is on a device."""


class Driver(ModelCalls):
    """The checked calls of one device's `acl` module; `device` names it in errors.

    Every method runs on the calling thread, which must have the context that the handles belong to (except
    `init`, `finalize`, `set_device`, `create_context` and `set_context`, which establish one).
    """

    def __init__(self, backend: Backend, device: str) -> None:
        super().__init__(backend, device)
        # Old CANN has no `_ex_` events: there a fresh plain event serves every dependency (pyACL reference §7).
        self.has_ex_events: bool = hasattr(backend.acl.rt, "create_event_ex_with_flag")
        self.on_board = False
        self._callback_block = _NO_BLOCK
        self._event_waits_end: bool = hasattr(backend.acl.rt, "synchronize_event_with_timeout")
        self._to_device = int(MemcpyKind.HOST_TO_DEVICE)
        self._to_host = int(MemcpyKind.DEVICE_TO_HOST)
        listens = backend.emulator.host_access if backend.emulator is not None else None
        # Called with (address, bytes, whether it writes) before the host touches pinned memory, which no ACL can see:
        # an emulator that looks for races listens, a device does not.
        self.host_access: Callable[[int, int, bool], None] = listens or _nobody_listens
        self.announces = listens is not None  # whether anybody listens

    # -- process ----------------------------------------------------------------------------------------------------

    def init(self) -> bool:
        """Initialise ACL; False when somebody else in the process had done it (100002, pyACL reference §4)."""
        self._choice.warn()
        acl, c = self.acl, self.c
        ret = acl.init() if c.aclInit is None else c.aclInit(None)
        if ret == codes.REPEAT_INITIALIZE:
            return False
        if ret:
            raise self.error(ret, "acl.init")
        return True

    def finalize(self) -> None:
        """De-initialise ACL, through the counted form where it exists (pyACL has it alone); a repeat is no error."""
        acl, c = self.acl, self.c
        if hasattr(acl, "finalize_reference"):
            _count, ret = acl.finalize_reference()
        else:
            ret = acl.finalize() if c.aclFinalize is None else c.aclFinalize()
        if ret not in (0, codes.REPEAT_FINALIZE):
            raise self.error(ret, "acl.finalize")

    def soc_name(self) -> str:
        """The name of the chip, "" when the driver does not know it."""
        acl = self.acl
        return str(acl.get_soc_name() or "")

    # -- device and context -----------------------------------------------------------------------------------------

    def set_device(self, index: int) -> None:
        """Open device `index` (counted) and make its default context current on this thread."""
        acl, c = self.acl, self.c
        ret = acl.rt.set_device(index) if c.aclrtSetDevice is None else c.aclrtSetDevice(index)
        if ret:
            raise self.error(ret, "acl.rt.set_device")

    def reset_device(self, index: int) -> None:
        """Undo one `set_device`."""
        acl, c = self.acl, self.c
        ret = acl.rt.reset_device(index) if c.aclrtResetDevice is None else c.aclrtResetDevice(index)
        if ret:
            raise self.error(ret, "acl.rt.reset_device")

    def create_context(self, index: int) -> int:
        """A new context on device `index`, current on this thread."""
        acl, c = self.acl, self.c
        if c.aclrtCreateContext is None:
            context, ret = acl.rt.create_context(index)
        else:
            cell = c_void_p()
            ret = c.aclrtCreateContext(byref(cell), index)
            context = cell.value or 0
        if ret:
            raise self.error(ret, "acl.rt.create_context")
        return int(context)

    def set_context(self, context: int) -> None:
        """Make `context` current on this thread."""
        acl, c = self.acl, self.c
        ret = acl.rt.set_context(context) if c.aclrtSetCurrentContext is None else c.aclrtSetCurrentContext(context)
        if ret:
            raise self.error(ret, "acl.rt.set_context")

    def destroy_context(self, context: int) -> None:
        """Destroy an explicit context; its streams and events must be gone."""
        acl, c = self.acl, self.c
        ret = acl.rt.destroy_context(context) if c.aclrtDestroyContext is None else c.aclrtDestroyContext(context)
        if ret:
            raise self.error(ret, "acl.rt.destroy_context")

    def read_product(self) -> None:
        """Learn what this product is and can do: once after `init`, before anything is submitted.

        Whether this process runs on the device's own board, where host memory is device memory (§17). Whether it is an
        Atlas 200/300/500: these know neither callbacks that let their stream go on (§9) nor event waits that end (§7).
        """
        acl = self.acl
        mode, ret = acl.rt.get_run_mode()
        if ret:
            raise self.error(ret, "acl.rt.get_run_mode")
        self.on_board = mode == RunMode.DEVICE
        if self.on_board:
            self._to_device = self._to_host = int(MemcpyKind.DEVICE_TO_DEVICE)
        if self.soc_name() == _ATLAS_300:
            self._callback_block = _BLOCK
            self._event_waits_end = False

    # -- streams ----------------------------------------------------------------------------------------------------

    def create_stream(self) -> int:
        """A new stream of the current context."""
        acl = self.acl
        stream, ret = acl.rt.create_stream()
        if ret:
            raise self.error(ret, "acl.rt.create_stream")
        return int(stream)

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream; synchronise it first, or this waits for it (through pyACL with the GIL held, §3)."""
        acl, c = self.acl, self.c
        ret = acl.rt.destroy_stream(stream) if c.aclrtDestroyStream is None else c.aclrtDestroyStream(stream)
        if ret:
            raise self.error(ret, "acl.rt.destroy_stream")

    def abort_stream(self, stream: int) -> bool:
        """Drop what is queued on a stream; False where the product cannot (A2 and A3 can, pyACL reference §6)."""
        acl = self.acl
        if not hasattr(acl.rt, "stream_abort") or not self.soc_name().startswith(_ABORTING):
            return False
        ret = acl.rt.stream_abort(stream)
        if ret == codes.FEATURE_NOT_SUPPORT:
            return False
        if ret:
            raise self.error(ret, "acl.rt.stream_abort")
        return True

    def destroy_stream_by_force(self, stream: int) -> bool:
        """Destroy a stream with what is queued on it; False where there is no such call."""
        acl = self.acl
        if not hasattr(acl.rt, "destroy_stream_force"):
            return False
        ret = acl.rt.destroy_stream_force(stream)
        if ret == codes.FEATURE_NOT_SUPPORT:
            return False
        if ret:
            raise self.error(ret, "acl.rt.destroy_stream_force")
        return True

    def synchronize_stream(self, stream: int, timeout_ms: int = -1) -> bool:
        """Block (GIL released) until the stream is empty; False on timeout. Raises what its tasks failed with."""
        acl, c = self.acl, self.c
        call = "acl.rt.synchronize_stream"
        if timeout_ms >= 0 and c.aclrtSynchronizeStreamWithTimeout is not None:
            call = "acl.rt.synchronize_stream_with_timeout"
            ret = c.aclrtSynchronizeStreamWithTimeout(stream, timeout_ms)
        elif timeout_ms >= 0 and hasattr(acl.rt, "synchronize_stream_with_timeout"):
            call = "acl.rt.synchronize_stream_with_timeout"
            ret = acl.rt.synchronize_stream_with_timeout(stream, timeout_ms)
        elif timeout_ms >= 0:
            return self._poll_stream(stream, timeout_ms / 1000)
        elif c.aclrtSynchronizeStream is not None:
            ret = c.aclrtSynchronizeStream(stream)
        else:
            ret = acl.rt.synchronize_stream(stream)
        if ret == STREAM_SYNC_TIMEOUT:
            return False
        if ret:
            raise self.error(ret, call)
        return True

    def _poll_stream(self, stream: int, seconds: float) -> bool:
        """Wait for a stream on old CANN, whose one call for it cannot be bounded."""
        end = time.monotonic() + seconds
        while not self.stream_query(stream):
            if time.monotonic() >= end:
                return False
            time.sleep(0.001)
        return True

    def stream_query(self, stream: int) -> bool:
        """Whether the stream is empty; raises what a task of it failed with. Never blocks."""
        acl = self.acl
        status, ret = acl.rt.stream_query(stream)
        if ret:
            raise self.error(ret, "acl.rt.stream_query")
        return bool(status == _STREAM_DONE)

    def failures_of(self, streams: Iterable[int]) -> list[tuple[int, AclError]]:
        """What tasks of these streams have failed with: the stream's index among them, and the error. Never blocks."""
        acl = self.acl
        failures = []
        for index, stream in enumerate(streams):
            try:
                _status, ret = acl.rt.stream_query(stream)
                if ret:
                    failures.append((index, self.error(ret, "acl.rt.stream_query")))
            except Exception as error:
                failures.append((index, self.as_error(error, "acl.rt.stream_query")))
        return failures

    # -- events -----------------------------------------------------------------------------------------------------

    def create_event(self, flags: int = EventFlag.SYNC) -> int:
        """An event: of the reusable `_ex_` flavour with `flags`, or a plain one where that is missing (§7)."""
        acl = self.acl
        if self.has_ex_events:
            event, ret = acl.rt.create_event_ex_with_flag(int(flags))
            call = "acl.rt.create_event_ex_with_flag"
        else:
            event, ret = acl.rt.create_event()
            call = "acl.rt.create_event"
        if ret:
            raise self.error(ret, call)
        return int(event)

    def destroy_event(self, event: int) -> None:
        """Destroy an event; the release is deferred while work still refers to it."""
        acl = self.acl
        ret = acl.rt.destroy_event(event)
        if ret:
            raise self.error(ret, "acl.rt.destroy_event")

    def record_event(self, event: int, stream: int) -> None:
        """Let `event` capture what has been queued on `stream` so far."""
        acl = self.acl
        ret = acl.rt.record_event(event, stream)
        if ret:
            raise self.error(ret, "acl.rt.record_event")

    def stream_wait_event(self, stream: int, event: int) -> None:
        """Let later work of `stream` wait on the device for `event`."""
        acl = self.acl
        ret = acl.rt.stream_wait_event(stream, event)
        if ret:
            raise self.error(ret, "acl.rt.stream_wait_event")

    def event_recorded(self, event: int) -> bool:
        """Whether what the event captured is done (`query_event_status`: 1 means done, unlike every other query)."""
        acl = self.acl
        status, ret = acl.rt.query_event_status(event)
        if ret:
            raise self.error(ret, "acl.rt.query_event_status")
        return bool(status == _RECORDED)

    def synchronize_event(self, event: int, timeout_ms: int) -> bool:
        """Block (GIL released) until what the event captured is done; False on timeout, where the product knows one."""
        acl = self.acl
        if timeout_ms < 0 or not self._event_waits_end:
            ret = acl.rt.synchronize_event(event)
        else:
            ret = acl.rt.synchronize_event_with_timeout(event, timeout_ms)
        if ret == EVENT_SYNC_TIMEOUT:
            return False
        if ret:
            raise self.error(ret, "acl.rt.synchronize_event")
        return True

    def event_elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds on the device between two completed events that carry TIME_LINE."""
        acl = self.acl
        elapsed, ret = acl.rt.event_elapsed_time(start, end)
        if ret:
            raise self.error(ret, "acl.rt.event_elapsed_time")
        return float(elapsed)

    def event_timestamp_us(self, event: int) -> int:
        """When a completed event that carries TIME_LINE was reached, in microseconds of the device's own clock."""
        acl = self.acl
        timestamp, ret = acl.rt.event_get_timestamp(event)
        if ret:
            raise self.error(ret, "acl.rt.event_get_timestamp")
        return int(timestamp)

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the current device: of its HBM where it has such memory, else of its DDR (§8)."""
        acl = self.acl
        for attribute in (MemoryAttr.HBM, MemoryAttr.DDR):
            free, total, ret = acl.rt.get_mem_info(int(attribute))
            if ret == 0 and total:
                return int(free), int(total)
        return 0, 0

    # -- memory -----------------------------------------------------------------------------------------------------

    def malloc(self, nbytes: int, policy: int = _HUGE_FIRST) -> int:
        """Device memory, 64-byte aligned, contents undefined."""
        acl, c = self.acl, self.c
        if c.aclrtMalloc is None:
            pointer, ret = acl.rt.malloc(nbytes, policy)
        else:
            cell = c_void_p()
            ret = c.aclrtMalloc(byref(cell), nbytes, policy)
            pointer = cell.value or 0
        if ret:
            raise self.error(ret, "acl.rt.malloc", f"({nbytes} bytes)")
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Free device memory at once: it does not wait for queued work."""
        acl, c = self.acl, self.c
        ret = acl.rt.free(pointer) if c.aclrtFree is None else c.aclrtFree(pointer)
        if ret:
            raise self.error(ret, "acl.rt.free")

    def malloc_host(self, nbytes: int) -> int:
        """Page-locked host memory, contents undefined."""
        acl, c = self.acl, self.c
        if c.aclrtMallocHost is None:
            pointer, ret = acl.rt.malloc_host(nbytes)
        else:
            cell = c_void_p()
            ret = c.aclrtMallocHost(byref(cell), nbytes)
            pointer = cell.value or 0
        if ret:
            raise self.error(ret, "acl.rt.malloc_host", f"({nbytes} bytes)")
        return int(pointer)

    def free_host(self, pointer: int) -> None:
        """Free page-locked host memory at once."""
        acl, c = self.acl, self.c
        ret = acl.rt.free_host(pointer) if c.aclrtFreeHost is None else c.aclrtFreeHost(pointer)
        if ret:
            raise self.error(ret, "acl.rt.free_host")

    def memcpy_to_device(self, dst: int, dst_max: int, src: int, count: int, stream: int) -> None:
        """Queue a copy of `count` bytes from page-locked host memory to the device."""
        acl, c = self.acl, self.c
        if c.aclrtMemcpyAsync is None:
            ret = acl.rt.memcpy_async(dst, dst_max, src, count, self._to_device, stream)
        else:
            ret = c.aclrtMemcpyAsync(dst, dst_max, src, count, self._to_device, stream)
        if ret:
            raise self.error(ret, "acl.rt.memcpy_async", " (host to device)")

    def memcpy_to_host(self, dst: int, dst_max: int, src: int, count: int, stream: int) -> None:
        """Queue a copy of `count` bytes from the device to page-locked host memory."""
        acl, c = self.acl, self.c
        if c.aclrtMemcpyAsync is None:
            ret = acl.rt.memcpy_async(dst, dst_max, src, count, self._to_host, stream)
        else:
            ret = c.aclrtMemcpyAsync(dst, dst_max, src, count, self._to_host, stream)
        if ret:
            raise self.error(ret, "acl.rt.memcpy_async", " (device to host)")

    # -- what every request queues, in one call ---------------------------------------------------------------------

    def queue_in(self, dst: int, src: int, count: int, stream: int, copied: int, user: int) -> None:
        """Copy `count` bytes to the device on `stream`; `user` is a stream that waits for it, by the event `copied`."""
        acl, c = self.acl, self.c
        if c.aclrtMemcpyAsync is None:
            ret = acl.rt.memcpy_async(dst, count, src, count, self._to_device, stream)
        else:
            ret = c.aclrtMemcpyAsync(dst, count, src, count, self._to_device, stream)
        if ret:
            raise self.error(ret, "acl.rt.memcpy_async", " (host to device)")
        ret = acl.rt.record_event(copied, stream)
        if ret:
            raise self.error(ret, "acl.rt.record_event")
        ret = acl.rt.stream_wait_event(user, copied)
        if ret:
            raise self.error(ret, "acl.rt.stream_wait_event")

    def queue_out(self, maker: int, made: int, dst: int, src: int, count: int, stream: int) -> None:
        """Copy `count` bytes to the host on `stream` after what the stream `maker` has to do, by the event `made`."""
        acl, c = self.acl, self.c
        ret = acl.rt.record_event(made, maker)
        if ret:
            raise self.error(ret, "acl.rt.record_event")
        ret = acl.rt.stream_wait_event(stream, made)
        if ret:
            raise self.error(ret, "acl.rt.stream_wait_event")
        if c.aclrtMemcpyAsync is None:
            ret = acl.rt.memcpy_async(dst, count, src, count, self._to_host, stream)
        else:
            ret = c.aclrtMemcpyAsync(dst, count, src, count, self._to_host, stream)
        if ret:
            raise self.error(ret, "acl.rt.memcpy_async", " (device to host)")

    def read_memory(self, dst: int, src: int, count: int) -> None:
        """Copy device memory to any host memory, now; blocks, and nothing queued may be writing to it."""
        acl, c = self.acl, self.c
        if c.aclrtMemcpy is None:
            ret = acl.rt.memcpy(dst, count, src, count, self._to_host)
        else:
            ret = c.aclrtMemcpy(dst, count, src, count, self._to_host)
        if ret:
            raise self.error(ret, "acl.rt.memcpy", " (device to host)")

    # -- callbacks --------------------------------------------------------------------------------------------------

    def subscribe_report(self, thread: int, stream: int) -> None:
        """Let callbacks of `stream` run on the thread with this pthread id (`threading.get_ident()`)."""
        acl, c = self.acl, self.c
        ret = (
            acl.rt.subscribe_report(thread, stream)
            if c.aclrtSubscribeReport is None
            else c.aclrtSubscribeReport(thread, stream)
        )
        if ret:
            raise self.error(ret, "acl.rt.subscribe_report")

    def unsubscribe_report(self, thread: int, stream: int) -> None:
        """Undo `subscribe_report`; synchronise the stream first (pyACL reference §3)."""
        acl, c = self.acl, self.c
        ret = (
            acl.rt.unsubscribe_report(thread, stream)
            if c.aclrtUnSubscribeReport is None
            else c.aclrtUnSubscribeReport(thread, stream)
        )
        if ret:
            raise self.error(ret, "acl.rt.unsubscribe_report")

    def process_report(self, timeout_ms: int) -> bool | None:
        """Run waiting callbacks on this thread: True if any ran, False on timeout, None if it has no subscription."""
        acl = self.acl
        ret = acl.rt.process_report(timeout_ms)
        if ret == 0:
            return True
        if ret in REPORT_TIMEOUT:
            return False
        if ret in THREAD_NOT_SUBSCRIBED:
            return None
        raise self.error(ret, "acl.rt.process_report")

    def launch_callback(self, function: Callable[[Any], None], data: Any, stream: int) -> None:
        """Queue a host callback; it runs as `function(data)`, and the stream goes on meanwhile where it can."""
        acl = self.acl
        ret = acl.rt.launch_callback(function, data, self._callback_block, stream)
        if ret:
            raise self.error(ret, "acl.rt.launch_callback")
