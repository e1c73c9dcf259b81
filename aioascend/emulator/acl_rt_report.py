"""``acl.rt``: callbacks on report threads (reference §9)."""

from __future__ import annotations

import gc
import sys
import threading
import time
from _thread import get_ident
from typing import Any

from . import codes, gil
from .args import Failure, call
from .engine import Engine, HostWaiter
from .findings import call_site, counted
from .process import Process
from .streams import ReportQueue
from .tasks import Callback, undelivered
from .wait_graph import HostWait
from .waiting import look_ahead, stay


def _runs(thread: int, process: Process) -> bool:
    """Whether a thread with this pthread id can come to ask for reports."""
    for _ in range(20):
        # neither has all: threads of _thread are no `Thread`, those of C code are at times in no Python function
        if any(one.ident == thread for one in threading.enumerate()) or _has_a_frame(thread, process):
            return True
        # _thread.start_new_thread returns before the new thread can be seen
        time.sleep(0.001)
    return False


def _has_a_frame(thread: int, process: Process) -> bool:
    """Whether a thread with this pthread id is in a Python function.

    CPython keeps its lock of all threads while it makes their frames. A garbage collection in the middle of that which
    destroys a `threading.local`, for which it takes the lock again, would never end (CPython issue 106883).
    """
    with process.lock:
        collects = gc.isenabled()
        gc.disable()
        try:
            return thread in sys._current_frames()
        finally:
            if collects:
                gc.enable()


def _owner(thread: int) -> threading.Thread | None:
    """The `Thread` with this pthread id, if it has one that can be asked whether it has ended."""
    for one in threading.enumerate():
        if one.ident == thread:
            return one
    return None


class ReportCalls:
    """Callback functions."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._any_block_type = process.config.has("launch_callback")

    @call("kk")
    def subscribe_report(self, thread: int, stream: int) -> int:
        """Callbacks of this stream run on that thread (a pthread id)."""
        process = self._process
        target = process.stream(stream)
        device = target.context.device
        if thread == 0:
            raise Failure(codes.INVALID_PARAM, "the thread id is 0")
        if not _runs(thread, process):
            text = f"there is no thread with the pthread id {thread}, so that callbacks can never run"
            if any(one.native_id == thread for one in threading.enumerate()):
                text += ": that is a native id, threading.get_ident() gives the other one"
            process.findings.note("no-such-thread", "acl.rt.subscribe_report", text, codes.INVALID_PARAM)
        with process.lock, process.engine_of(target).lock:
            if target.report is not None:
                raise Failure(codes.STREAM_SUBSCRIBE, f"stream {stream:#x} is subscribed already")
            report = process.reports.get(thread)
            if report is None:
                if len(process.reports) >= process.config.report_threads:
                    raise Failure(codes.RT_INTERNAL_ERROR, f"{process.config.report_threads} threads are subscribed")
                report = process.reports[thread] = ReportQueue(thread, _owner(thread))
                process.report_devices[thread] = device
            elif process.report_devices[thread] is not device:
                raise Failure(codes.THREAD_SUBSCRIBE, "the thread serves streams of another device")
            report.streams.add(target)
            target.report = report
        process.findings.made("subscription", thread)
        return codes.SUCCESS

    @call("kk")
    def unsubscribe_report(self, thread: int, stream: int) -> int:
        """Undo a subscription; waits for a callback of the stream that is running on another thread."""
        process = self._process
        target = process.stream(stream)
        engine = process.engine_of(target)
        wait = HostWait("acl.rt.unsubscribe_report", get_ident(), gil.holds("acl.rt.unsubscribe_report"))
        waiter = None
        report = process.reports.get(thread)
        if report is not None and target.report is report and get_ident() != thread:
            current = report.current
            if current is not None and current.stream is target:
                wait.callback = current
                look_ahead(process, engine, wait, -1)
        with process.lock, engine.lock:
            report = process.reports.get(thread)
            if report is None:
                raise Failure(codes.THREAD_SUBSCRIBE, f"thread {thread} has no subscription")
            if target.report is not report:
                raise Failure(codes.STREAM_SUBSCRIBE, f"stream {stream:#x} is not subscribed to thread {thread}")
            lost = undelivered(target)
            current = report.current
            if current is not None and current.stream is target and get_ident() != thread and not engine.stopped:
                waiter = engine.waiter()
                report.leaving.append(waiter)
            if engine.model.unsubscribe(target):
                engine.kick()
            process.forget_reports()
        if waiter is not None:
            wait.callback = current
            # a callback needs the GIL, so that it cannot be held for it
            stay(process, engine, wait, waiter, -1, True, report.leaving.remove, waiter)
        if lost:
            # strict mode does not undo it: a stream that such a callback holds could never be destroyed
            text = f"stream {stream:#x} was unsubscribed before {counted(lost, 'callback')} launched on it could run"
            process.findings.note("callback-dropped", "acl.rt.unsubscribe_report", text, codes.PARAM_INVALID)
        return codes.SUCCESS

    @call("COik")
    def launch_callback(self, function: Any, user_data: Any, block_type: int, stream: int) -> int:
        """Queue ``function(user_data)`` for the stream's report thread; block type 1 holds the stream meanwhile."""
        process = self._process
        target = process.stream(stream)
        if block_type not in (codes.CALLBACK_NO_BLOCK, codes.CALLBACK_BLOCK):
            raise Failure(codes.INVALID_PARAM, f"a block type of 0 or 1 was wanted, {block_type} was given")
        if block_type == codes.CALLBACK_NO_BLOCK and not self._any_block_type:
            process.chip_has("launch_callback", "callbacks that do not block")
        if target.report is None:
            raise Failure(codes.STREAM_NO_CB_REG, f"stream {stream:#x} has no report thread", "unsubscribed-stream")
        callback = Callback(function, user_data, block_type == codes.CALLBACK_BLOCK)
        if process.findings.trace:
            callback.site = call_site()
        engine = target.context.device.engine or process.engine_of(target)
        engine.submit(target, callback, "acl.rt.launch_callback")
        return codes.SUCCESS

    @call("i")
    def process_report(self, timeout: int) -> int:
        """Run every callback that waits for this thread, in order; 507012 when none came in `timeout` milliseconds."""
        if timeout == 0 or timeout < -1:
            raise Failure(codes.INVALID_PARAM, f"a timeout of -1 or more than 0 ms was wanted, {timeout} was given")
        process = self._process
        thread = get_ident()
        report = process.reports.get(thread)
        device = process.report_devices.get(thread)
        if report is None or device is None or not report.streams:
            raise Failure(codes.THREAD_SUBSCRIBE, "this thread has no subscription")
        engine = device.running()
        local, inside = process.local, process.nesting.inside
        callback: Callback | None = self._next(engine, report, timeout)
        while callback is not None:
            inside.in_callback = True
            if process.races is not None:
                process.races.learn(callback.step)
                local.holding = callback.step if callback.block else None
            try:
                process.nesting.outside(callback.function, callback.user_data)
            except BaseException as error:
                # whoever runs this thread may never look at what comes out of it (reference §9)
                process.findings.callback_raised("acl.rt.process_report", error)
                with engine.lock:
                    self._returned(engine, report, callback)
                raise SystemError("acl.rt.process_report returned a result with an exception set") from error
            finally:
                inside.in_callback = False
                local.holding = None
            with engine.lock:
                if callback.block or report.leaving:
                    self._returned(engine, report, callback)
                callback = report.entries.popleft() if report.entries else None
                report.current = callback
        return codes.SUCCESS

    def _next(self, engine: Engine, report: ReportQueue, timeout: int) -> Callback:
        with engine.lock:
            if report.entries:
                report.current = report.entries.popleft()
                return report.current
            if not report.streams:
                raise Failure(codes.THREAD_SUBSCRIBE, "this thread has no subscription")
            waiter = engine.waiter()
            report.waiter = waiter
        try:
            if report.owner is threading.main_thread():  # which Ctrl-C may interrupt in the middle of a step
                waiter.wait(timeout)
            else:
                self._help(engine, waiter, timeout)
        finally:
            with engine.lock:
                engine.hosts.discard(waiter)
                if report.waiter is waiter:
                    report.waiter = None
                callback = report.entries.popleft() if report.entries else None
                report.current = callback
        if callback is not None:
            return callback
        if waiter.woken and waiter.code not in (codes.SUCCESS, codes.SOCKET_CLOSE, codes.THREAD_SUBSCRIBE):
            raise Failure(waiter.code, "the device is lost")
        if waiter.woken and waiter.code:
            raise Failure(codes.THREAD_SUBSCRIBE, "this thread has no subscription any more")
        raise Failure(codes.REPORT_TIMEOUT, f"no callback within {timeout} ms")

    def _help(self, engine: Engine, waiter: HostWaiter, timeout: int) -> None:
        process, model = self._process, engine.model

        def allowed() -> bool:
            """Where somebody looks or is told, tasks run on threads of the device."""
            return process.on_exception is None and model.watch is None and not model.faults

        try:
            engine.help(waiter, timeout, allowed)
        except BaseException:
            if engine.torn:
                for device in process.devices:
                    if device is not None and device.engine is engine:
                        process.lose_device(device.index, codes.LOST_HEARTBEAT, True)
            raise

    def _returned(self, engine: Engine, report: ReportQueue, callback: Callback) -> None:
        report.current = None
        if engine.model.returned(callback):
            engine.kick()
        for waiter in report.leaving:
            waiter.wake(codes.SUCCESS)
        report.leaving.clear()
