"""``acl.rt``: streams (reference §6)."""

from __future__ import annotations

from . import codes
from .args import Failure, call
from .engine import Engine
from .findings import counted
from .process import Process
from .streams import Stream
from .tasks import undelivered
from .waiting import wait_for_stream, wait_for_stream_to_end


class StreamCalls:
    """Stream functions."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @call(failed=(0,))
    def create_stream(self) -> tuple[int, int]:
        """A new stream of this thread's context."""
        return self._create(0, 0)

    @call("II", failed=(0,))
    def create_stream_with_config(self, priority: int, flag: int) -> tuple[int, int]:
        """The same with a priority of 0 to 7, kept and without effect, and flags (unknown ones are ignored)."""
        if priority > 7:
            raise Failure(codes.PARAM_INVALID, f"a priority of 0 to 7 was wanted, {priority} was given")
        return self._create(priority, flag)

    def _create(self, priority: int, flag: int) -> tuple[int, int]:
        process = self._process
        context = process.current()
        with process.lock:
            used = sum(1 + len(one.streams) for one in context.device.contexts.values())
            if used >= process.config.stream_limit:
                raise Failure(
                    codes.NO_STREAM_RESOURCE,
                    f"device {context.device.index} has {process.config.stream_limit} streams, all in use",
                )
            handle = process.new_handle()
            stream = Stream(handle, context, priority, flag)
            context.streams[handle] = stream
            process.streams[handle] = stream
        process.findings.made("stream", handle)
        return handle, codes.SUCCESS

    @call("k")
    def destroy_stream(self, stream: int) -> int:
        """Wait for queued work and destroy the stream."""
        found = self._explicit(stream)
        if found.report is not None and not found.context.device.lost:  # a lost device refuses to unsubscribe
            process = self._process
            process.findings.note(
                "teardown-order",
                "acl.rt.destroy_stream",
                f"stream {stream:#x} was destroyed before unsubscribing",
            )
        wait_for_stream_to_end(self._process, found, "acl.rt.destroy_stream")
        engine = found.context.device.engine
        if engine is not None:
            with engine.lock:
                lost = undelivered(found)
            if lost:
                text = f"stream {stream:#x} was destroyed before {counted(lost, 'callback')} launched on it could run"
                self._process.findings.note("callback-dropped", "acl.rt.destroy_stream", text)
        self._forget(found)
        return codes.SUCCESS

    @call("k")
    def destroy_stream_force(self, stream: int) -> int:
        """Destroy the stream with its queued work; the task that is running ends on its own."""
        found = self._explicit(stream)
        engine = found.context.device.engine
        if engine is not None:
            _abort(engine, found)
            if self._process.races is not None:
                self._process.races.settled((found,))
        self._forget(found)
        return codes.SUCCESS

    @call("k")
    def stream_abort(self, stream: int) -> int:
        """Drop the work that has not begun; threads that wait for the stream get 107023."""
        found = self._explicit(stream)
        self._process.chip_has("stream_abort")
        _abort(self._process.engine_of(found), found)
        return codes.SUCCESS

    def _explicit(self, handle: int) -> Stream:
        if handle == 0:
            raise Failure(codes.INVALID_PARAM, "the default stream cannot be destroyed or aborted")
        return self._process.stream(handle)

    def _forget(self, stream: Stream) -> None:
        process = self._process
        device = stream.context.device
        with process.lock:
            engine = device.engine
            if engine is not None:
                with engine.lock:
                    if engine.model.unsubscribe(stream):
                        engine.kick()
            elif stream.report is not None:
                stream.report.streams.discard(stream)
            process.forget_reports()
            stream.context.streams.pop(stream.handle, None)
            process.streams.pop(stream.handle, None)
        if device.lost:
            raise device.gone()

    @call("k")
    def synchronize_stream(self, stream: int) -> int:
        """Wait for the work submitted so far; gives a pending failure once."""
        return self._synchronize(stream, -1, "acl.rt.synchronize_stream")

    @call("ki")
    def synchronize_stream_with_timeout(self, stream: int, timeout: int) -> int:
        """The same for at most `timeout` milliseconds (-1: for ever): then 507046, and the stream keeps running."""
        if timeout < -1:
            raise Failure(codes.PARAM_INVALID, f"a timeout of -1 or more was wanted, {timeout} was given")
        return self._synchronize(stream, timeout, "acl.rt.synchronize_stream_with_timeout")

    def _synchronize(self, handle: int, timeout: int, call: str) -> int:
        process = self._process
        fault = wait_for_stream(process, process.stream(handle), timeout, call)
        if fault is not None:
            return process.fail(fault.code, fault.text)
        return codes.SUCCESS

    @call("k", failed=(codes.STREAM_STATUS_RESERVED,))
    def stream_query(self, stream: int) -> tuple[int, int]:
        """0: complete, 1: not ready; gives a pending failure once. Never waits."""
        process = self._process
        found = process.stream(stream)
        races = process.races
        seen = races.here(found) if races is not None else None
        with (found.context.device.engine or process.engine_of(found)).lock:
            complete = found.completed == found.submitted
            fault = found.take_fault()
        if races is not None and complete:
            races.learn(seen)
        if fault is not None:
            return codes.STREAM_STATUS_RESERVED, process.fail(fault.code, fault.text)
        return (codes.STREAM_COMPLETE if complete else codes.STREAM_NOT_READY), codes.SUCCESS

    @call("ki")
    def set_stream_failure_mode(self, stream: int, mode: int) -> int:
        """0: go on after a failure (default), 1: stop. Once per stream, not on a default stream."""
        if mode not in (codes.FAILURE_CONTINUE, codes.FAILURE_STOP):
            raise Failure(codes.PARAM_INVALID, f"a failure mode of 0 or 1 was wanted, {mode} was given")
        found = self._explicit(stream)
        if found.failure_mode is not None:
            raise Failure(codes.PARAM_INVALID, f"the failure mode of stream {stream:#x} was set before")
        found.failure_mode = mode
        return codes.SUCCESS

    @call(failed=(0,))
    def get_stream_available_num(self) -> tuple[int, int]:
        """How many more streams the device has."""
        process = self._process
        device = process.current().device
        with process.lock:
            used = sum(1 + len(one.streams) for one in device.contexts.values())
        return process.config.stream_limit - used, codes.SUCCESS

    @call("k", failed=(0,))
    def stream_get_id(self, stream: int) -> tuple[int, int]:
        """A small number for logs."""
        found = self._process.stream(stream)
        return (found.handle >> 6) & 0x7FFFFFFF, codes.SUCCESS


def _abort(engine: Engine, stream: Stream) -> None:
    with engine.lock:
        engine.model.drop(stream, codes.STREAM_ABORT)
        if engine.model.ready:
            engine.kick()
