"""What checks work with: an open device, things that are given back after each check, and a stream that is busy."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from ..driver import Backend, Functions, codes
from .checks import Failed, Unavailable

__all__ = ["Bench", "ReportThread", "code_text"]

_D2D = 3
_MOST_TASKS = 600  # far below what a stream holds (pyACL reference §3)


def code_text(code: int) -> str:
    """A code as it is compared: the number alone, which the table of codes explains."""
    return str(code)


class Bench:
    """One device, in one process, and one check after the other."""

    def __init__(self, backend: Backend, index: int, model: str | None) -> None:
        self.acl = backend.acl
        self.index = index
        self.device = f"{backend.kind}:{index}"
        self.emulated = backend.emulator is not None
        self._native = backend.native
        self._functions = Functions(backend.native.functions)
        self._model = model
        self.context = 0
        self.destroyed = 0  # the context that the teardown has destroyed
        self._stack = ExitStack()
        self._blocks: tuple[int, int, int] = (0, 0, 0)
        self._copy_seconds = 0.0

    # -- opening and closing ----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Initialise ACL and make a context on the device; what was open in the process already will do."""
        acl = self.acl
        ret = acl.init()
        if ret != codes.REPEAT_INITIALIZE:
            self.good(ret, "acl.init")
        ret = acl.rt.set_device(self.index)
        self.good(ret, "acl.rt.set_device")
        self.context, ret = acl.rt.create_context(self.index)
        self.good(ret, "acl.rt.create_context")

    def close(self) -> None:
        """Give everything back, as far as it goes."""
        acl = self.acl
        for address in self._blocks[:2]:
            if address:
                acl.rt.free(address)
        if self.context:
            acl.rt.destroy_context(self.context)
            acl.rt.reset_device(self.index)
            acl.finalize()

    def __enter__(self) -> Bench:
        if self.context:
            self.acl.rt.set_context(self.context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, ExitStack()
        if self.context:
            self.acl.rt.set_context(self.context)
        stack.close()

    # -- for checks -------------------------------------------------------------------------------------------------

    def good(self, ret: int, call: str) -> None:
        """Raise `Failed` unless a call succeeded."""
        if ret:
            acl = self.acl
            message = " ".join(str(acl.get_recent_err_msg() or "").split())[:200]
            raise Failed(f"{call} returned {ret} ({codes.describe(ret).name}) {message}".rstrip())

    @property
    def c(self) -> Functions:
        """The C library; raises `Unavailable` where it is missing or lacks functions."""
        if self._native.reason is None:
            raise Unavailable("there is no C library behind this acl module")
        if self._native.reason:
            raise Unavailable(self._native.reason)
        return self._functions

    @property
    def model(self) -> str:
        """The path of a model; raises `Unavailable` without one."""
        if self._model is None:
            raise Unavailable("needs --model MODEL.om")
        return self._model

    def later(self, function: Any, *args: Any) -> None:
        """Call this when the check is over, in reverse order."""
        self._stack.callback(function, *args)

    def stream(self) -> int:
        """A stream, synchronised and destroyed after the check."""
        acl = self.acl
        stream, ret = acl.rt.create_stream()
        self.good(ret, "acl.rt.create_stream")
        self.later(self._end_stream, stream)
        return int(stream)

    def _end_stream(self, stream: int) -> None:
        acl = self.acl
        acl.rt.synchronize_stream(stream)
        acl.rt.destroy_stream(stream)

    def event(self, flavour: str, flags: int = 1) -> int:
        """An event of a flavour: "plain", "legacy" (with_flag) or "ex" (ex_with_flag)."""
        acl = self.acl
        if flavour == "plain":
            event, ret = acl.rt.create_event()
        elif flavour == "legacy":
            event, ret = acl.rt.create_event_with_flag(flags)
        else:
            event, ret = acl.rt.create_event_ex_with_flag(flags)
        self.good(ret, f"creating an event ({flavour})")
        self.later(self._end_event, event)
        return int(event)

    def _end_event(self, event: int) -> None:
        acl = self.acl
        acl.rt.destroy_event(event)

    @property
    def flavour(self) -> str:
        """Of the events that aioascend uses here: "ex", on an old CANN "plain" (pyACL reference §7)."""
        return "ex" if hasattr(self.acl.rt, "create_event_ex_with_flag") else "plain"

    def malloc(self, size: int) -> int:
        """Device memory, freed after the check."""
        acl = self.acl
        address, ret = acl.rt.malloc(size, 0)
        self.good(ret, f"acl.rt.malloc of {size} bytes")
        self.later(self._end_memory, address)
        return int(address)

    def _end_memory(self, address: int) -> None:
        acl = self.acl
        acl.rt.free(address)

    def malloc_host(self, size: int) -> int:
        """Pinned memory, freed after the check."""
        acl = self.acl
        address, ret = acl.rt.malloc_host(size)
        self.good(ret, f"acl.rt.malloc_host of {size} bytes")
        self.later(self._end_pinned, address)
        return int(address)

    def _end_pinned(self, address: int) -> None:
        acl = self.acl
        acl.rt.free_host(address)

    def pageable(self, size: int) -> int:
        """Ordinary host memory with a 64-byte aligned start, there until the check is over."""
        buffer = ctypes.create_string_buffer(size + 64)
        self.later(lambda: buffer.raw[:0])
        return -(-ctypes.addressof(buffer) // 64) * 64

    def subscribed(self, stream: int) -> ReportThread:
        """A thread that runs the callbacks of a stream until the check is over."""
        return ReportThread(self, stream)

    @property
    def large(self) -> int:
        """Bytes that it takes a while to copy."""
        return 1 << 20 if self.emulated else 256 << 20

    # -- being busy -------------------------------------------------------------------------------------------------

    def busy(self, stream: int, seconds: float) -> None:
        """Queue copies on the device that take at least about so long; returns when they are queued.

        Needs neither a model nor a callback: a callback would wait for the GIL, and some calls hold it.
        """
        one, other, size = self._two_blocks()
        if not self._copy_seconds:
            self._copy_seconds = self._measure()
        tasks = math.ceil(seconds / self._copy_seconds)
        if tasks > _MOST_TASKS:
            raise Unavailable(
                f"a copy on the device takes {self._copy_seconds * 1e6:.0f} us: too quick to keep it busy"
            )
        for _ in range(tasks):
            self._copy(other, one, size, stream)

    def _measure(self) -> float:
        acl = self.acl
        one, other, size = self._two_blocks()
        stream = self.stream()
        # The first copy takes longer than those after it, and a few take no longer than their submission.
        self._copy(other, one, size, stream)
        ret = acl.rt.synchronize_stream(stream)
        self.good(ret, "acl.rt.synchronize_stream")
        number, took = 1, 0.0
        while took < 0.1 and number < _MOST_TASKS:
            number = min(number * 4, _MOST_TASKS)
            started = time.perf_counter()
            for _ in range(number):
                self._copy(other, one, size, stream)
            ret = acl.rt.synchronize_stream(stream)
            self.good(ret, "acl.rt.synchronize_stream")
            took = time.perf_counter() - started
        return took / number

    def _copy(self, destination: int, source: int, size: int, stream: int) -> None:
        acl = self.acl
        ret = acl.rt.memcpy_async(destination, size, source, size, _D2D, stream)
        self.good(ret, "acl.rt.memcpy_async on the device")

    def _two_blocks(self) -> tuple[int, int, int]:
        if not self._blocks[2]:
            acl = self.acl
            size = self.large
            while True:
                one, ret = acl.rt.malloc(size, 0)
                if not ret:
                    other, ret = acl.rt.malloc(size, 0)
                    if not ret:
                        break
                    acl.rt.free(one)
                size //= 2
                if size < 1 << 20:
                    raise Unavailable(f"no memory to keep the device busy with: acl.rt.malloc returned {ret}")
            self._blocks = (int(one), int(other), size)
        return self._blocks


class ReportThread:
    """A thread that is subscribed to a stream and runs its callbacks."""

    def __init__(self, bench: Bench, stream: int) -> None:
        self._bench = bench
        self._stream = stream
        self._begin, self._stop = threading.Event(), threading.Event()
        self.raised: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        acl = bench.acl
        ident = self.ident
        ret = acl.rt.subscribe_report(ident, stream)
        bench.good(ret, "acl.rt.subscribe_report")
        self._open = True
        bench.later(self._end)
        self._begin.set()

    @property
    def ident(self) -> int:
        """Its pthread id."""
        assert self._thread.ident is not None
        return self._thread.ident

    def _run(self) -> None:
        acl = self._bench.acl
        self._begin.wait()
        acl.rt.set_context(self._bench.context)
        while not self._stop.is_set():
            try:
                acl.rt.process_report(50)
            except BaseException as error:
                self.raised.append(error)

    def forget(self) -> None:
        """Its subscription was ended by somebody else: end the thread."""
        self._open = False
        self._stop.set()
        self._thread.join(1.0)

    def unsubscribe(self) -> int:
        """End the subscription and the thread; the code of `unsubscribe_report`."""
        acl = self._bench.acl
        ret = acl.rt.unsubscribe_report(self.ident, self._stream)
        self.forget()
        return int(ret)

    def _end(self) -> None:
        if self._open:
            acl = self._bench.acl
            acl.rt.synchronize_stream(self._stream)
            self.unsubscribe()
