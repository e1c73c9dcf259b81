"""``acl.rt``: devices and contexts (reference §5)."""

from __future__ import annotations

from typing import Any

from . import codes
from .args import Failure, call
from .contexts import Context
from .process import Device, Process
from .streams import Stream
from .waiting import wait_for_device, wait_for_stream_to_end

_MEMORY_ATTRIBUTES = range(18)


class DeviceCalls:
    """Device and context functions."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @call("i")
    def set_device(self, device: int) -> int:
        """Make the device's default context current on this thread; counted."""
        process = self._process
        process.require_init()
        with process.lock:
            found = process.device(device)
            context = found.default_context
            if context is None:
                context = process.open_context(found, default=True)
            found.set_count += 1
            process.findings.made("device", device)
        process.local.context = context
        return codes.SUCCESS

    @call("i")
    def reset_device(self, device: int) -> int:
        """Undo one `set_device`; the last one waits for outstanding work and frees the default context."""
        process = self._process
        found = process.device(device)
        with process.lock:
            if found.set_count > 1:
                found.set_count -= 1
                return codes.SUCCESS
        if len(found.contexts) > (found.default_context is not None):
            process.findings.note(
                "teardown-order", "acl.rt.reset_device", f"device {device} was reset before its contexts were destroyed"
            )
        self._finish(found, found.all_streams(), "acl.rt.reset_device")
        lost = found.lost
        with process.lock:
            found.set_count = 0
            if found.default_context is not None:
                process.close_context(found.default_context, "acl.rt.reset_device")
            elif not found.contexts and found.recoverable:
                found.lost = 0
        if lost and not found.recoverable:
            raise Failure(lost, f"device {device} is lost")
        return codes.SUCCESS

    def _finish(self, device: Device, streams: list[Stream], call: str) -> None:
        """Wait for `streams`, but not for tasks that never end."""
        engine = device.engine
        if engine is None:
            return
        with engine.lock:
            for stream in streams:
                if engine.model.hangs(stream):
                    engine.model.drop(stream, codes.STREAM_ABORT)
            if engine.model.ready:
                engine.kick()
        for stream in streams:
            wait_for_stream_to_end(self._process, stream, call)

    @call("i")
    def reset_device_force(self, device: int) -> int:
        """Free the default context whatever the count."""
        process = self._process
        found = process.device(device)
        with process.lock:
            found.set_count = min(found.set_count, 1)
        return self.reset_device(device)

    @call(failed=(0,))
    def get_device(self) -> tuple[int, int]:
        """The device of this thread's context."""
        return self._process.current(asking=True).device.index, codes.SUCCESS

    @call(failed=(0,))
    def get_device_count(self) -> tuple[int, int]:
        """Number of devices; no context needed."""
        return self._process.config.devices, codes.SUCCESS

    @call(failed=(0,))
    def get_run_mode(self) -> tuple[int, int]:
        """0: the program runs on the board, 1: on a PCIe host."""
        return self._process.config.run_mode, codes.SUCCESS

    @call("|O")
    def synchronize_device(self, ignored: Any = None) -> int:
        """Wait for all streams of this thread's device. pyACL parses no arguments here; programs pass the device."""
        wait_for_device(self._process, self._process.current().device, -1, "acl.rt.synchronize_device")
        return codes.SUCCESS

    @call("i")
    def synchronize_device_with_timeout(self, timeout: int) -> int:
        """The same for at most `timeout` milliseconds (-1: for ever)."""
        if timeout < -1 or timeout == 0:
            raise Failure(codes.PARAM_INVALID, f"a timeout of -1 or more than 0 ms was wanted, {timeout} was given")
        wait_for_device(
            self._process, self._process.current().device, timeout, "acl.rt.synchronize_device_with_timeout"
        )
        return codes.SUCCESS

    @call("i", failed=(0,))
    def query_device_status(self, device: int) -> tuple[int, int]:
        """0: normal, 1: abnormal."""
        return (1 if self._process.device(device).lost else 0), codes.SUCCESS

    @call("i", failed=(0, 0))
    def get_mem_info(self, attribute: int) -> tuple[int, int, int]:
        """Free and total bytes of this thread's device, whichever kind of memory is asked for."""
        if attribute not in _MEMORY_ATTRIBUTES:
            raise Failure(codes.INVALID_PARAM, f"no such kind of memory: {attribute}")
        memory = self._process.current().device.memory
        return memory.free, memory.size, codes.SUCCESS

    # -- contexts -----------------------------------------------------------------------------------------------

    @call("i", failed=(0,))
    def create_context(self, device: int) -> tuple[int, int]:
        """A new context, current on this thread."""
        process = self._process
        process.require_init()
        context = process.open_context(process.device(device), default=False)
        process.local.context = context
        process.findings.made("context", context.handle)
        return context.handle, codes.SUCCESS

    @call("k")
    def destroy_context(self, context: int) -> int:
        """Destroy an explicit context; waits for its work."""
        found = self._context(context)
        if found.default:
            raise Failure(codes.CONTEXT_NULL, "a default context goes with reset_device")
        device = found.device
        self._finish(device, list(found.every_stream()), "acl.rt.destroy_context")
        lost = device.lost
        self._process.close_context(found, "acl.rt.destroy_context")
        if lost:
            raise Failure(lost, f"device {device.index} is lost")
        return codes.SUCCESS

    @call("k")
    def set_context(self, context: int) -> int:
        """Make a context current on this thread."""
        self._process.local.context = self._context(context)
        return codes.SUCCESS

    @call(failed=(0,))
    def get_context(self) -> tuple[int, int]:
        """This thread's context."""
        return self._process.current(asking=True).handle, codes.SUCCESS

    def _context(self, handle: int) -> Context:
        if handle == 0:
            raise Failure(codes.INVALID_PARAM, "the context is 0")
        found = self._process.contexts.get(handle)
        if found is None:
            raise Failure(codes.CONTEXT_NULL, f"{handle:#x} is not a context, or was destroyed", "stale-handle")
        return found
