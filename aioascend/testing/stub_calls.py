"""The functions of the stub: what each returns, makes and releases (pyACL reference §4-§13)."""

# What a function means is in the reference; a sentence each would say its name again.
# ruff: noqa: D102

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .stub_forms import Refused, Tensor, stands_for

__all__ = ["CONTEXT_NULL", "StubCalls"]

CONTEXT_NULL = 107002
_INVALID_PARAM = 100000
_REPEAT_INITIALIZE = 100002
_REPEAT_FINALIZE = 100037
_MODEL_ID_INVALID = 145003
_INVALID_DEVICE = 107001
_STREAM_CONTEXT = 107003
_STREAM_SUBSCRIBE = 107011
_THREAD_SUBSCRIBE = 107012
_STREAM_NO_CB_REG = 107015
_OUT_OF_MEMORY = 207001
_REPORT_TIMEOUT = 507012

_ALIGNMENT = 64
_DTYPES = {
    "float32": 0,
    "float16": 1,
    "int8": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 6,
    "uint16": 7,
    "uint32": 8,
    "int64": 9,
    "uint64": 10,
    "float64": 11,
    "bool": 12,
    "complex64": 16,
    "complex128": 17,
    "bfloat16": 27,
}


class _Thread(threading.local):
    context: int | None = None
    message: str | None = None


@dataclass
class _Report:
    streams: set[tuple[int, int]] = field(default_factory=set)
    waiting: deque[tuple[Callable[[Any], Any], Any]] = field(default_factory=deque)


class StubCalls:
    """State and functions. A method runs under the stub's lock; a parameter is a positional argument of pyACL's."""

    def __init__(
        self, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], devices: int, memory: int, soc_name: str
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.devices = devices
        self.memory = memory
        self.soc_name = soc_name
        self.initialised = False
        self._used = 0
        self._handles = itertools.count(0x5700_0000_0000, 0x40)
        self._models = itertools.count(1)
        self._local = _Thread()
        self._contexts: dict[int, int] = {}
        self._defaults: dict[int, int] = {}
        self._set: dict[int, int] = {}
        self._streams: dict[int, int] = {}
        self._loaded: set[int] = set()
        self._memory: dict[int, tuple[Any, int]] = {}
        self._buffers: dict[int, tuple[int, int]] = {}
        self._datasets: dict[int, list[int]] = {}
        self._reports: dict[int, _Report] = {}
        self._reported = threading.Condition()
        self._recorded: dict[int, float] = {}  # event -> when it was recorded last

    def current(self) -> int | None:
        """The calling thread's context, None for none or a destroyed one."""
        context = self._local.context
        return context if context in self._contexts else None

    def explain(self, code: int, name: str, injected: bool) -> None:
        """Note the text that get_recent_err_msg gives on this thread."""
        self._local.message = f"E{code}: {name} {'was told to fail' if injected else 'failed'}"

    # -- process, devices, contexts ---------------------------------------------------------------------------------

    @stands_for("init", context=False, init=False)
    def init(self, config: str = "") -> None:
        if self.initialised:
            raise Refused(_REPEAT_INITIALIZE)
        self.initialised = True

    @stands_for("finalize", context=False, init=False)
    def finalize(self) -> None:
        if not self.initialised:
            raise Refused(_REPEAT_FINALIZE)
        self.initialised = False

    @stands_for("get_soc_name", "value", failed=None, context=False)
    def get_soc_name(self) -> str:
        return self.soc_name

    @stands_for("get_recent_err_msg", "value", failed=None, context=False, init=False)
    def get_recent_err_msg(self) -> str | None:
        message, self._local.message = self._local.message, None
        return message

    @stands_for("rt.get_device_count", "both", context=False, init=False)
    def get_device_count(self) -> int:
        return self.devices

    @stands_for("rt.get_run_mode", "both", context=False)
    def get_run_mode(self) -> int:
        return 1

    @stands_for("rt.set_device", context=False)
    def set_device(self, device: int) -> None:
        self._check_device(device)
        if device not in self._defaults:
            self._defaults[device] = self._new_context(device)
        self._set[device] = self._set.get(device, 0) + 1
        self._local.context = self._defaults[device]

    @stands_for("rt.reset_device", context=False)
    def reset_device(self, device: int) -> None:
        self._check_device(device)
        if not self._set.get(device):
            raise Refused(_INVALID_DEVICE)
        self._set[device] -= 1
        if not self._set[device]:
            self._contexts.pop(self._defaults.pop(device), None)

    @stands_for("rt.get_device", "both")
    def get_device(self) -> int:
        return self._contexts[self._here()]

    @stands_for("rt.synchronize_device")
    def synchronize_device(self) -> None:
        pass

    @stands_for("rt.create_context", "both", creates="context", context=False)
    def create_context(self, device: int) -> int:
        self._check_device(device)
        context = self._local.context = self._new_context(device)
        return context

    @stands_for("rt.destroy_context", releases="context", context=False)
    def destroy_context(self, context: int) -> None:
        self._contexts.pop(context, None)

    @stands_for("rt.set_context", context=False)
    def set_context(self, context: int) -> None:
        if context not in self._contexts:
            raise Refused(CONTEXT_NULL if context else _INVALID_PARAM)
        self._local.context = context

    @stands_for("rt.get_context", "both")
    def get_context(self) -> int:
        return self._here()

    @stands_for("rt.get_mem_info", "both", failed=(0, 0))
    def get_mem_info(self, attribute: int) -> tuple[int, int]:
        return self.memory - self._used, self.memory

    def _check_device(self, device: int) -> None:
        if not 0 <= device < self.devices:
            raise Refused(_INVALID_DEVICE)

    def _new_context(self, device: int) -> int:
        context = next(self._handles)
        self._contexts[context] = device
        return context

    def _here(self) -> int:
        context = self.current()
        if context is None:
            raise Refused(CONTEXT_NULL)
        return context

    # -- streams and events -----------------------------------------------------------------------------------------

    @stands_for("rt.create_stream", "both", creates="stream")
    def create_stream(self) -> int:
        stream = next(self._handles)
        self._streams[stream] = self._here()
        return stream

    @stands_for("rt.destroy_stream", releases="stream")
    def destroy_stream(self, stream: int) -> None:
        self._streams.pop(stream, None)

    @stands_for("rt.synchronize_stream")
    def synchronize_stream(self, stream: int) -> None:
        self._check_stream(stream)

    @stands_for("rt.synchronize_stream_with_timeout")
    def synchronize_stream_with_timeout(self, stream: int, milliseconds: int) -> None:
        self._check_stream(stream)

    @stands_for("rt.stream_query", "both")
    def stream_query(self, stream: int) -> int:
        self._check_stream(stream)
        return 0

    @stands_for("rt.create_event", "both", creates="event")
    def create_event(self) -> int:
        return next(self._handles)

    @stands_for("rt.create_event_with_flag", "both", creates="event")
    def create_event_with_flag(self, flag: int) -> int:
        return next(self._handles)

    @stands_for("rt.create_event_ex_with_flag", "both", creates="event")
    def create_event_ex_with_flag(self, flag: int) -> int:
        return next(self._handles)

    @stands_for("rt.destroy_event", releases="event")
    def destroy_event(self, event: int) -> None:
        self._recorded.pop(event, None)

    @stands_for("rt.record_event")
    def record_event(self, event: int, stream: int) -> None:
        self._check_stream(stream)
        self._recorded[event] = time.perf_counter()

    @stands_for("rt.stream_wait_event")
    def stream_wait_event(self, stream: int, event: int) -> None:
        self._check_stream(stream)

    @stands_for("rt.query_event_status", "both")
    def query_event_status(self, event: int) -> int:
        return 1

    @stands_for("rt.synchronize_event")
    def synchronize_event(self, event: int) -> None:
        pass

    @stands_for("rt.synchronize_event_with_timeout")
    def synchronize_event_with_timeout(self, event: int, milliseconds: int) -> None:
        pass

    @stands_for("rt.event_elapsed_time", "both", failed=0.0)
    def event_elapsed_time(self, start: int, end: int) -> float:
        return (self._recorded.get(end, 0.0) - self._recorded.get(start, 0.0)) * 1e3

    @stands_for("rt.event_get_timestamp", "both")
    def event_get_timestamp(self, event: int) -> int:
        return int(self._recorded.get(event, 0.0) * 1e6)

    def _check_stream(self, stream: int) -> None:
        if stream and stream not in self._streams:
            raise Refused(_INVALID_PARAM)
        if stream and self._streams[stream] != self._here():
            raise Refused(_STREAM_CONTEXT)

    # -- memory -----------------------------------------------------------------------------------------------------

    @stands_for("rt.malloc", "both", creates="device memory")
    def malloc(self, size: int, policy: int) -> int:
        if self._used + size > self.memory:
            raise Refused(_OUT_OF_MEMORY)
        self._used += size
        return self._allocate(size)

    @stands_for("rt.free", releases="device memory")
    def free(self, pointer: int) -> None:
        self._used -= self._memory.pop(pointer, (None, 0))[1]

    @stands_for("rt.malloc_host", "both", creates="pinned memory")
    def malloc_host(self, size: int) -> int:
        return self._allocate(size)

    @stands_for("rt.free_host", releases="pinned memory")
    def free_host(self, pointer: int) -> None:
        self._memory.pop(pointer, None)

    @stands_for("rt.memset")
    def memset(self, pointer: int, most: int, value: int, count: int) -> None:
        if count > most:
            raise Refused(_INVALID_PARAM)
        ctypes.memset(pointer, value, count)

    @stands_for("rt.memcpy")
    def memcpy(self, target: int, most: int, source: int, count: int, kind: int) -> None:
        if count > most:
            raise Refused(_INVALID_PARAM)
        ctypes.memmove(target, source, count)

    @stands_for("rt.memcpy_async")
    def memcpy_async(self, target: int, most: int, source: int, count: int, kind: int, stream: int) -> None:
        self._check_stream(stream)
        self.memcpy(target, most, source, count, kind)

    def _allocate(self, size: int) -> int:
        if size <= 0:
            raise Refused(_INVALID_PARAM)
        memory = ctypes.create_string_buffer(size + _ALIGNMENT)
        pointer = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
        self._memory[pointer] = (memory, size)
        return pointer

    # -- callbacks --------------------------------------------------------------------------------------------------

    @stands_for("rt.subscribe_report")
    def subscribe_report(self, thread: int, stream: int) -> None:
        self._check_stream(stream)
        key = (self._here(), stream)
        if any(key in report.streams for report in self._reports.values()):
            raise Refused(_STREAM_SUBSCRIBE)
        self._reports.setdefault(thread, _Report()).streams.add(key)

    @stands_for("rt.unsubscribe_report")
    def unsubscribe_report(self, thread: int, stream: int) -> None:
        report = self._reports.get(thread)
        key = (self._here(), stream)
        if report is None:
            raise Refused(_THREAD_SUBSCRIBE)
        if key not in report.streams:
            raise Refused(_STREAM_SUBSCRIBE)
        report.streams.discard(key)
        if not report.streams and not report.waiting:
            del self._reports[thread]
        with self._reported:
            self._reported.notify_all()

    @stands_for("rt.launch_callback")
    def launch_callback(self, function: Callable[[Any], Any], data: Any, block: int, stream: int) -> None:
        self._check_stream(stream)
        key = (self._here(), stream)
        for report in self._reports.values():
            if key in report.streams:
                with self._reported:
                    report.waiting.append((function, data))
                    self._reported.notify_all()
                return
        raise Refused(_STREAM_NO_CB_REG)

    @stands_for("rt.process_report", context=False, then="run_callbacks")
    def process_report(self, milliseconds: int) -> None:
        if milliseconds == 0 or milliseconds < -1:
            raise Refused(_INVALID_PARAM)

    def run_callbacks(self, milliseconds: int) -> int:
        """Wait for callbacks of this thread and run them."""
        thread = threading.get_ident()
        limit = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000
        with self._reported:
            while True:
                report = self._reports.get(thread)
                if report is None or not (report.waiting or report.streams):
                    return _THREAD_SUBSCRIBE
                if report.waiting:
                    due = list(report.waiting)
                    report.waiting.clear()
                    break
                left = None if limit is None else limit - time.monotonic()
                if left is not None and left <= 0:
                    return _REPORT_TIMEOUT
                self._reported.wait(left)
        for function, data in due:
            function(data)
        return 0

    # -- models -----------------------------------------------------------------------------------------------------

    @stands_for("mdl.load_from_file", "both", creates="model")
    def load_from_file(self, path: str) -> int:
        model = next(self._models)
        self._loaded.add(model)
        return model

    @stands_for("mdl.load_from_mem", "both", creates="model")
    def load_from_mem(self, pointer: int, size: int) -> int:
        return self.load_from_file("")

    @stands_for("mdl.unload", releases="model")
    def unload(self, model: int) -> None:
        self._loaded.discard(model)

    @stands_for("mdl.execute")
    def execute(self, model: int, inputs: int, outputs: int) -> None:
        if model not in self._loaded:
            raise Refused(_MODEL_ID_INVALID)
        if len(self._datasets.get(inputs, ())) != len(self.inputs):
            raise Refused(_INVALID_PARAM)
        if len(self._datasets.get(outputs, ())) != len(self.outputs):
            raise Refused(_INVALID_PARAM)
        for tensor, buffer in zip(self.outputs, self._datasets[outputs], strict=True):
            pointer, size = self._buffers[buffer]
            ctypes.memset(pointer, 0, min(size, tensor.nbytes))

    @stands_for("mdl.execute_async")
    def execute_async(self, model: int, inputs: int, outputs: int, stream: int) -> None:
        self._check_stream(stream)
        self.execute(model, inputs, outputs)

    @stands_for("mdl.create_desc", "value", creates="model description", context=False)
    def create_desc(self) -> int:
        return next(self._handles)

    @stands_for("mdl.destroy_desc", releases="model description", context=False)
    def destroy_desc(self, description: int) -> None:
        pass

    @stands_for("mdl.get_desc")
    def get_desc(self, description: int, model: int) -> None:
        if model not in self._loaded:
            raise Refused(_MODEL_ID_INVALID)

    @stands_for("mdl.get_num_inputs", "value", context=False)
    def get_num_inputs(self, description: int) -> int:
        return len(self.inputs)

    @stands_for("mdl.get_num_outputs", "value", context=False)
    def get_num_outputs(self, description: int) -> int:
        return len(self.outputs)

    @stands_for("mdl.get_input_dims", "both", failed={}, context=False)
    def get_input_dims(self, description: int, index: int) -> dict[str, Any]:
        return _dims(self.inputs[index])

    @stands_for("mdl.get_output_dims", "both", failed={}, context=False)
    def get_output_dims(self, description: int, index: int) -> dict[str, Any]:
        return _dims(self.outputs[index])

    @stands_for("mdl.get_cur_output_dims", "both", failed={}, context=False)
    def get_cur_output_dims(self, description: int, index: int) -> dict[str, Any]:
        return _dims(self.outputs[index])

    @stands_for("mdl.get_input_name_by_index", "value", failed=None, context=False)
    def get_input_name_by_index(self, description: int, index: int) -> str:
        return self.inputs[index].name

    @stands_for("mdl.get_output_name_by_index", "value", failed=None, context=False)
    def get_output_name_by_index(self, description: int, index: int) -> str:
        return self.outputs[index].name

    @stands_for("mdl.get_input_index_by_name", "both", context=False)
    def get_input_index_by_name(self, description: int, name: str) -> int:
        for index, tensor in enumerate(self.inputs):
            if tensor.name == name:
                return index
        raise Refused(_INVALID_PARAM)

    @stands_for("mdl.get_input_data_type", "value", failed=-1, context=False)
    def get_input_data_type(self, description: int, index: int) -> int:
        return _DTYPES[self.inputs[index].dtype.name]

    @stands_for("mdl.get_output_data_type", "value", failed=-1, context=False)
    def get_output_data_type(self, description: int, index: int) -> int:
        return _DTYPES[self.outputs[index].dtype.name]

    @stands_for("mdl.get_input_size_by_index", "value", context=False)
    def get_input_size_by_index(self, description: int, index: int) -> int:
        return self.inputs[index].nbytes

    @stands_for("mdl.get_output_size_by_index", "value", context=False)
    def get_output_size_by_index(self, description: int, index: int) -> int:
        return self.outputs[index].nbytes

    # -- datasets ---------------------------------------------------------------------------------------------------

    @stands_for("mdl.create_dataset", "value", creates="dataset", context=False)
    def create_dataset(self) -> int:
        dataset = next(self._handles)
        self._datasets[dataset] = []
        return dataset

    @stands_for("mdl.destroy_dataset", releases="dataset", context=False)
    def destroy_dataset(self, dataset: int) -> None:
        self._datasets.pop(dataset, None)

    @stands_for("mdl.add_dataset_buffer", "both", context=False)
    def add_dataset_buffer(self, dataset: int, buffer: int) -> int:
        if dataset not in self._datasets or buffer not in self._buffers:
            raise Refused(_INVALID_PARAM)
        self._datasets[dataset].append(buffer)
        return dataset

    @stands_for("mdl.get_dataset_num_buffers", "value", context=False)
    def get_dataset_num_buffers(self, dataset: int) -> int:
        return len(self._datasets.get(dataset, ()))

    @stands_for("mdl.get_dataset_buffer", "value", context=False)
    def get_dataset_buffer(self, dataset: int, index: int) -> int:
        buffers = self._datasets.get(dataset, [])
        return buffers[index] if 0 <= index < len(buffers) else 0

    @stands_for("create_data_buffer", "value", creates="data buffer", context=False)
    def create_data_buffer(self, pointer: int, size: int) -> int:
        buffer = next(self._handles)
        self._buffers[buffer] = (pointer, size)
        return buffer

    @stands_for("destroy_data_buffer", releases="data buffer", context=False)
    def destroy_data_buffer(self, buffer: int) -> None:
        self._buffers.pop(buffer, None)

    @stands_for("update_data_buffer", context=False)
    def update_data_buffer(self, buffer: int, pointer: int, size: int) -> None:
        if buffer not in self._buffers:
            raise Refused(_INVALID_PARAM)
        self._buffers[buffer] = (pointer, size)

    @stands_for("get_data_buffer_addr", "value", context=False)
    def get_data_buffer_addr(self, buffer: int) -> int:
        return self._buffers.get(buffer, (0, 0))[0]

    @stands_for("get_data_buffer_size_v2", "value", context=False)
    def get_data_buffer_size_v2(self, buffer: int) -> int:
        return self._buffers.get(buffer, (0, 0))[1]

    # -- addresses --------------------------------------------------------------------------------------------------

    @stands_for("util.bytes_to_ptr", "value", context=False, init=False)
    def bytes_to_ptr(self, data: bytes) -> int:
        return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0

    @stands_for("util.ptr_to_bytes", "value", context=False, init=False)
    def ptr_to_bytes(self, pointer: int, size: int) -> bytes:
        return ctypes.string_at(pointer, size)


def _dims(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "dimCount": len(tensor.shape), "dims": list(tensor.shape)}
