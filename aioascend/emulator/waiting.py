"""Host threads that wait for streams: the internal lock is held to enter and to leave, never while waiting."""

from __future__ import annotations

from time import perf_counter

from . import codes
from .args import Failure
from .device_model import Fault, Stream
from .process import Device, Process


def wait_for_stream(process: Process, stream: Stream, milliseconds: int) -> Fault | None:
    """Wait until everything submitted to `stream` so far is done; its pending failure, which this call consumes.

    A negative time is for ever; the time going by gives 507046 and leaves the stream running.
    """
    engine = process.engine_of(stream)
    with engine.lock:
        target = stream.submitted
        if stream.completed >= target:
            return stream.take_fault()
        waiter = engine.waiter()
        entry = (target, waiter)
        stream.waiters.append(entry)
    try:
        waiter.wait(milliseconds)
    finally:
        with engine.lock:
            engine.hosts.discard(waiter)
            if not waiter.woken:
                stream.waiters.remove(entry)
            fault = stream.take_fault() if stream.completed >= target else None
    if fault is not None:
        return fault
    if waiter.code:
        raise Failure(waiter.code, "waiting was ended: the stream was aborted or its device shut down")
    if not waiter.woken and stream.completed < target:
        raise Failure(codes.STREAM_SYNC_TIMEOUT, f"stream {stream.handle:#x} still has work after {milliseconds} ms")
    return fault


def wait_for_device(device: Device, milliseconds: int = -1) -> None:
    """Wait for every stream of the device. A pending failure stays for its own stream's next status call."""
    engine = device.running()
    end = perf_counter() + milliseconds / 1000
    for stream in device.all_streams():
        with engine.lock:
            target = stream.submitted
            if stream.completed >= target:
                continue
            waiter = engine.waiter()
            entry = (target, waiter)
            stream.waiters.append(entry)
        left = -1 if milliseconds < 0 else max(1, int((end - perf_counter()) * 1000))
        try:
            waiter.wait(left)
        finally:
            with engine.lock:
                engine.hosts.discard(waiter)
                if not waiter.woken:
                    stream.waiters.remove(entry)
        if waiter.code:
            raise Failure(waiter.code, "waiting was ended: a stream was aborted or the device shut down")
        if not waiter.woken and stream.completed < target:
            raise Failure(codes.STREAM_SYNC_TIMEOUT, f"device {device.index} still has work after {milliseconds} ms")
