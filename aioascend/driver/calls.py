"""One checked function for every ACL call that aioascend makes.

`Driver` turns a non-zero `ret` into the exception family, with the code, its symbolic name, the call, the device and
the driver's own recent message, which is read at once on the failing thread (it is thread-level and cleared on read,
pyACL reference §4). Only the call forms of the reference are used: positional arguments, outputs first, `ret` last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np

from ..errors import AclError, DeviceLost, ExecutionFailed, OutOfMemory
from . import codes
from .backends import Backend
from .constants import (
    CallbackBlockType,
    EventFlag,
    EventRecordedStatus,
    MallocPolicy,
    MemcpyKind,
    RunMode,
    StreamStatus,
)

THREAD_NOT_SUBSCRIBED = (codes.THREAD_SUBSCRIBE, codes.THREAD_NOT_SUBSCRIBE)
REPORT_TIMEOUT = (codes.REPORT_TIMEOUT, codes.WAIT_CALLBACK_TIMEOUT)
STREAM_SYNC_TIMEOUT = codes.STREAM_SYNC_TIMEOUT
EVENT_SYNC_TIMEOUT = codes.EVENT_SYNC_TIMEOUT

_OUT_OF_MEMORY = frozenset({200000, 207001, 207018, 245000, 245002})
# The hardware or the way to it is gone. The other codes of the reference's fatal group fail what ran (ExecutionFailed).
_LOST = frozenset({507010, 507053, 507054, 507056, 507899, 507901})

# Plain ints: an enum member costs an attribute look-up in its class on every call of the hot path.
_HUGE_FIRST = int(MallocPolicy.HUGE_FIRST)
_NO_BLOCK = int(CallbackBlockType.NO_BLOCK)
_RECORDED = int(EventRecordedStatus.COMPLETE)
_STREAM_DONE = int(StreamStatus.COMPLETE)


class Dims(TypedDict):
    """The dims dict of pyACL: `dims` holds `dimCount` sizes."""

    name: str
    dimCount: int
    dims: list[int]


class Driver:
    """The checked calls of one device's `acl` module; `device` names it in errors.

    Every method runs on the calling thread, which must have the context that the handles belong to (except
    `init`, `finalize`, `set_device`, `create_context` and `set_context`, which establish one).
    """

    def __init__(self, backend: Backend, device: str) -> None:
        self.acl = backend.acl
        self.backend = backend
        self.device = device
        # Old CANN has no `_ex_` events: there a fresh plain event serves every dependency (pyACL reference §7).
        self.has_ex_events: bool = hasattr(backend.acl.rt, "create_event_ex_with_flag")
        self.on_board = False
        self._to_device = int(MemcpyKind.HOST_TO_DEVICE)
        self._to_host = int(MemcpyKind.DEVICE_TO_HOST)

    # -- errors -----------------------------------------------------------------------------------------------------

    def error(self, ret: int, call: str) -> AclError:
        """The exception for a code; takes the driver's recent message from the calling thread."""
        acl = self.acl
        try:
            detail = acl.get_recent_err_msg() or ""
        except Exception:  # the message is a courtesy: the code must be told even when asking for it fails
            detail = ""
        return self.error_with(ret, call, str(detail).strip())

    def error_with(self, ret: int, call: str, detail: str) -> AclError:
        """The exception for a code whose driver message is already known."""
        info = codes.describe(ret)
        kind: type[AclError] = AclError
        if ret in _OUT_OF_MEMORY:
            kind = OutOfMemory
        elif ret in _LOST:
            kind = DeviceLost
        elif 507000 <= ret < 508000 and ret not in (STREAM_SYNC_TIMEOUT, EVENT_SYNC_TIMEOUT, *REPORT_TIMEOUT):
            kind = ExecutionFailed
        return kind(ret, info.name, info.meaning, call, self.device, detail)

    def as_error(self, error: Exception, call: str) -> AclError:
        """`error` itself, or for an exception that is not ours one that says where it came from."""
        if isinstance(error, AclError):
            return error
        return self.error_with(codes.FAILURE, call, f"{type(error).__name__}: {error}")

    # -- process ----------------------------------------------------------------------------------------------------

    def init(self) -> bool:
        """Initialise ACL; False when somebody else in the process had done it (100002, pyACL reference §4)."""
        acl = self.acl
        ret = acl.init()
        if ret == codes.REPEAT_INITIALIZE:
            return False
        if ret:
            raise self.error(ret, "acl.init")
        return True

    def finalize(self) -> None:
        """De-initialise ACL, through the counted form where it exists; a repeat is no error."""
        acl = self.acl
        if hasattr(acl, "finalize_reference"):
            _count, ret = acl.finalize_reference()
        else:
            ret = acl.finalize()
        if ret not in (0, codes.REPEAT_FINALIZE):
            raise self.error(ret, "acl.finalize")

    def soc_name(self) -> str:
        """The name of the chip, "" when the driver does not know it."""
        acl = self.acl
        return str(acl.get_soc_name() or "")

    # -- device and context -----------------------------------------------------------------------------------------

    def set_device(self, index: int) -> None:
        """Open device `index` (counted) and make its default context current on this thread."""
        acl = self.acl
        ret = acl.rt.set_device(index)
        if ret:
            raise self.error(ret, "acl.rt.set_device")

    def reset_device(self, index: int) -> None:
        """Undo one `set_device`."""
        acl = self.acl
        ret = acl.rt.reset_device(index)
        if ret:
            raise self.error(ret, "acl.rt.reset_device")

    def create_context(self, index: int) -> int:
        """A new context on device `index`, current on this thread."""
        acl = self.acl
        context, ret = acl.rt.create_context(index)
        if ret:
            raise self.error(ret, "acl.rt.create_context")
        return int(context)

    def set_context(self, context: int) -> None:
        """Make `context` current on this thread."""
        acl = self.acl
        ret = acl.rt.set_context(context)
        if ret:
            raise self.error(ret, "acl.rt.set_context")

    def destroy_context(self, context: int) -> None:
        """Destroy an explicit context; its streams and events must be gone."""
        acl = self.acl
        ret = acl.rt.destroy_context(context)
        if ret:
            raise self.error(ret, "acl.rt.destroy_context")

    def read_run_mode(self) -> None:
        """Learn whether this process runs on the device's own board, where host memory is device memory (§17)."""
        acl = self.acl
        mode, ret = acl.rt.get_run_mode()
        if ret:
            raise self.error(ret, "acl.rt.get_run_mode")
        self.on_board = mode == RunMode.DEVICE
        if self.on_board:
            self._to_device = self._to_host = int(MemcpyKind.DEVICE_TO_DEVICE)

    # -- streams ----------------------------------------------------------------------------------------------------

    def create_stream(self) -> int:
        """A new stream of the current context."""
        acl = self.acl
        stream, ret = acl.rt.create_stream()
        if ret:
            raise self.error(ret, "acl.rt.create_stream")
        return int(stream)

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream; synchronise it first, or this waits with the GIL held (pyACL reference §3)."""
        acl = self.acl
        ret = acl.rt.destroy_stream(stream)
        if ret:
            raise self.error(ret, "acl.rt.destroy_stream")

    def synchronize_stream(self, stream: int, timeout_ms: int = -1) -> bool:
        """Block (GIL released) until the stream is empty; False on timeout. Raises what its tasks failed with."""
        acl = self.acl
        if timeout_ms < 0 or not hasattr(acl.rt, "synchronize_stream_with_timeout"):
            ret = acl.rt.synchronize_stream(stream)
        else:
            ret = acl.rt.synchronize_stream_with_timeout(stream, timeout_ms)
        if ret == STREAM_SYNC_TIMEOUT:
            return False
        if ret:
            raise self.error(ret, "acl.rt.synchronize_stream")
        return True

    def stream_query(self, stream: int) -> bool:
        """Whether the stream is empty; raises what a task of it failed with. Never blocks."""
        acl = self.acl
        status, ret = acl.rt.stream_query(stream)
        if ret:
            raise self.error(ret, "acl.rt.stream_query")
        return bool(status == _STREAM_DONE)

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
        """Block (GIL released) until what the event captured is done; False on timeout."""
        acl = self.acl
        if timeout_ms < 0 or not hasattr(acl.rt, "synchronize_event_with_timeout"):
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

    # -- memory -----------------------------------------------------------------------------------------------------

    def malloc(self, nbytes: int, policy: int = _HUGE_FIRST) -> int:
        """Device memory, 64-byte aligned, contents undefined."""
        acl = self.acl
        pointer, ret = acl.rt.malloc(nbytes, policy)
        if ret:
            raise self.error(ret, f"acl.rt.malloc({nbytes} bytes)")
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Free device memory at once: it does not wait for queued work."""
        acl = self.acl
        ret = acl.rt.free(pointer)
        if ret:
            raise self.error(ret, "acl.rt.free")

    def malloc_host(self, nbytes: int) -> int:
        """Page-locked host memory, contents undefined."""
        acl = self.acl
        pointer, ret = acl.rt.malloc_host(nbytes)
        if ret:
            raise self.error(ret, f"acl.rt.malloc_host({nbytes} bytes)")
        return int(pointer)

    def free_host(self, pointer: int) -> None:
        """Free page-locked host memory at once."""
        acl = self.acl
        ret = acl.rt.free_host(pointer)
        if ret:
            raise self.error(ret, "acl.rt.free_host")

    def memcpy_to_device(self, dst: int, dst_max: int, src: int, count: int, stream: int) -> None:
        """Queue a copy of `count` bytes from page-locked host memory to the device."""
        acl = self.acl
        ret = acl.rt.memcpy_async(dst, dst_max, src, count, self._to_device, stream)
        if ret:
            raise self.error(ret, "acl.rt.memcpy_async (host to device)")

    def memcpy_to_host(self, dst: int, dst_max: int, src: int, count: int, stream: int) -> None:
        """Queue a copy of `count` bytes from the device to page-locked host memory."""
        acl = self.acl
        ret = acl.rt.memcpy_async(dst, dst_max, src, count, self._to_host, stream)
        if ret:
            raise self.error(ret, "acl.rt.memcpy_async (device to host)")

    # -- callbacks --------------------------------------------------------------------------------------------------

    def subscribe_report(self, thread: int, stream: int) -> None:
        """Let callbacks of `stream` run on the thread with this pthread id (`threading.get_ident()`)."""
        acl = self.acl
        ret = acl.rt.subscribe_report(thread, stream)
        if ret:
            raise self.error(ret, "acl.rt.subscribe_report")

    def unsubscribe_report(self, thread: int, stream: int) -> None:
        """Undo `subscribe_report`; synchronise the stream first (pyACL reference §3)."""
        acl = self.acl
        ret = acl.rt.unsubscribe_report(thread, stream)
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
        """Queue a host callback that does not hold the stream up; it runs as `function(data)`."""
        acl = self.acl
        ret = acl.rt.launch_callback(function, data, _NO_BLOCK, stream)
        if ret:
            raise self.error(ret, "acl.rt.launch_callback")

    # -- models -----------------------------------------------------------------------------------------------------

    def load_from_file(self, path: str) -> int:
        """Load a model file; the system manages its memory. Slow."""
        acl = self.acl
        model, ret = acl.mdl.load_from_file(path)
        if ret:
            raise self.error(ret, f"acl.mdl.load_from_file({path!r})")
        return int(model)

    def load_from_bytes(self, data: bytes | bytearray | memoryview) -> int:
        """Load a model held in host memory, which is not copied. Slow."""
        acl = self.acl
        view = np.frombuffer(data, np.uint8)  # a plain address serves every kind of buffer (pyACL reference §13)
        model, ret = acl.mdl.load_from_mem(view.ctypes.data, view.nbytes)
        if ret:
            raise self.error(ret, f"acl.mdl.load_from_mem({view.nbytes} bytes)")
        return int(model)

    def unload(self, model: int) -> None:
        """Unload a model that nothing uses any more, in the context it was loaded in."""
        acl = self.acl
        ret = acl.mdl.unload(model)
        if ret:
            raise self.error(ret, "acl.mdl.unload")

    def execute_async(self, model: int, inputs: int, outputs: int, stream: int) -> None:
        """Queue one run of the model on two datasets; one model id belongs on one stream only (§11)."""
        acl = self.acl
        ret = acl.mdl.execute_async(model, inputs, outputs, stream)
        if ret:
            raise self.error(ret, "acl.mdl.execute_async")

    # -- model descriptions -----------------------------------------------------------------------------------------

    def create_desc(self, model: int) -> int:
        """The description of a loaded model."""
        acl = self.acl
        desc = acl.mdl.create_desc()
        if not desc:
            raise self.error(codes.BAD_ALLOC, "acl.mdl.create_desc")
        ret = acl.mdl.get_desc(desc, model)
        if ret:
            error = self.error(ret, "acl.mdl.get_desc")
            acl.mdl.destroy_desc(desc)
            raise error
        return int(desc)

    def destroy_desc(self, desc: int) -> None:
        """Destroy a model description."""
        acl = self.acl
        ret = acl.mdl.destroy_desc(desc)
        if ret:
            raise self.error(ret, "acl.mdl.destroy_desc")

    def num_inputs(self, desc: int) -> int:
        """The number of inputs, including those that gears and AIPP add."""
        acl = self.acl
        return int(acl.mdl.get_num_inputs(desc))

    def num_outputs(self, desc: int) -> int:
        """The number of outputs."""
        acl = self.acl
        return int(acl.mdl.get_num_outputs(desc))

    def input_dims(self, desc: int, index: int) -> Dims:
        """Name and sizes of input `index`; dynamic axes are -1."""
        acl = self.acl
        dims, ret = acl.mdl.get_input_dims(desc, index)
        if ret:
            raise self.error(ret, "acl.mdl.get_input_dims")
        return dims  # type: ignore[no-any-return]

    def output_dims(self, desc: int, index: int) -> Dims:
        """Name and sizes of output `index`."""
        acl = self.acl
        dims, ret = acl.mdl.get_output_dims(desc, index)
        if ret:
            raise self.error(ret, "acl.mdl.get_output_dims")
        return dims  # type: ignore[no-any-return]

    def input_name(self, desc: int, index: int) -> str:
        """The name of input `index`."""
        acl = self.acl
        return str(acl.mdl.get_input_name_by_index(desc, index))

    def output_name(self, desc: int, index: int) -> str:
        """The name of output `index`; an `.om` spells it `node:index:tensor`."""
        acl = self.acl
        return str(acl.mdl.get_output_name_by_index(desc, index))

    def input_dtype(self, desc: int, index: int) -> int:
        """The ACL data type of input `index` (constants.DataType)."""
        acl = self.acl
        return int(acl.mdl.get_input_data_type(desc, index))

    def output_dtype(self, desc: int, index: int) -> int:
        """The ACL data type of output `index`."""
        acl = self.acl
        return int(acl.mdl.get_output_data_type(desc, index))

    def input_nbytes(self, desc: int, index: int) -> int:
        """Bytes of input `index`; 0 where a shape is open."""
        acl = self.acl
        return int(acl.mdl.get_input_size_by_index(desc, index))

    def output_nbytes(self, desc: int, index: int) -> int:
        """Bytes of output `index`; 0 where a shape is open."""
        acl = self.acl
        return int(acl.mdl.get_output_size_by_index(desc, index))

    # -- datasets ---------------------------------------------------------------------------------------------------

    def create_dataset(self) -> int:
        """An empty dataset."""
        acl = self.acl
        dataset = acl.mdl.create_dataset()
        if not dataset:
            raise self.error(codes.BAD_ALLOC, "acl.mdl.create_dataset")
        return int(dataset)

    def destroy_dataset(self, dataset: int) -> None:
        """Destroy a dataset; its data buffers and their memory stay."""
        acl = self.acl
        ret = acl.mdl.destroy_dataset(dataset)
        if ret:
            raise self.error(ret, "acl.mdl.destroy_dataset")

    def add_dataset_buffer(self, dataset: int, buffer: int) -> None:
        """Append a data buffer: the order of the calls is the tensors' order."""
        acl = self.acl
        _dataset, ret = acl.mdl.add_dataset_buffer(dataset, buffer)
        if ret:
            raise self.error(ret, "acl.mdl.add_dataset_buffer")

    def create_data_buffer(self, pointer: int, nbytes: int) -> int:
        """A data buffer over device memory, which it does not own."""
        acl = self.acl
        buffer = acl.create_data_buffer(pointer, nbytes)
        if not buffer:
            raise self.error(codes.BAD_ALLOC, "acl.create_data_buffer")
        return int(buffer)

    def destroy_data_buffer(self, buffer: int) -> None:
        """Destroy a data buffer; the memory stays."""
        acl = self.acl
        ret = acl.destroy_data_buffer(buffer)
        if ret:
            raise self.error(ret, "acl.destroy_data_buffer")
