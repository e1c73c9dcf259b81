"""Streams and events one level below a session, all awaitable.

Calls that queue work return when it has been queued; the work itself happens when the stream gets there.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..driver.constants import EventFlag
from ..errors import InvalidInput, StaleLease
from .core import DeviceCore
from .draining import glance
from .handles import Handle, Point
from .memory import Buffer, DeviceBuffer, PinnedBuffer

__all__ = ["Event", "Stream"]


class Event(Handle):
    """A marker in a stream: await it for what its last `record` captured, or let another stream wait for it.

    Awaiting an event that was never recorded returns at once. Raises what a task before it failed with.
    """

    _what = "event"

    def __init__(self, core: DeviceCore, timing: bool) -> None:
        super().__init__(core)
        self.timing = timing
        flags = EventFlag.SYNC | EventFlag.CAPTURE_STREAM_PROGRESS
        self._flags = flags | EventFlag.TIME_LINE if timing else flags
        self._event = core.driver.create_event(self._flags)
        self._recorded = False
        self._point: Point | None = None

    def record_on(self, stream: Stream) -> None:
        """Record it; device thread."""
        driver = self._core.driver
        if self._recorded and not driver.has_ex_events:
            # A plain event serves once (pyACL reference §7). The old one goes last: this has an event whatever fails.
            fresh, old = driver.create_event(self._flags), self._event
            self._event, self._recorded = fresh, False
            driver.destroy_event(old)
        driver.record_event(self._event, stream.handle)
        self._recorded = True
        self._point = stream.new_point()  # now that it is going to be reached

    def wait_on(self, stream: int) -> None:
        """Let later work of `stream` wait for it; device thread."""
        if not self._recorded:
            raise InvalidInput("this event was never recorded, so that nothing could be waited for: record it first")
        self._core.driver.stream_wait_event(stream, self._event)

    def __await__(self) -> Generator[Any, None, None]:
        self.check()
        if self._point is not None:
            yield from self._point.wait().__await__()

    def elapsed(self, end: Event) -> float:
        """Milliseconds on the device from this event to `end`; both made with ``timing=True``, recorded and awaited.

        Takes a round trip to the device thread (about 0.1 ms). Raises `AclError` when either is not complete.
        """
        self.check()
        _check_event("elapsed", self._core, end)
        if not (self.timing and end.timing):
            raise InvalidInput("elapsed needs two events made with create_event(timing=True)")
        driver = self._core.driver
        return self._core.call(lambda: driver.event_elapsed_ms(self._event, end._event)).result()

    def _release(self) -> None:
        self._core.driver.destroy_event(self._event)


class Stream(Handle):
    """A queue of device work, executed in order; different streams run side by side."""

    _what = "stream"

    def __init__(self, core: DeviceCore) -> None:
        super().__init__(core)
        self._stuck = False  # it hung, and was left behind
        self.queued = 0  # uses of memory
        self.passed = 0  # of those, how many the host knows to be over
        self._stream = core.driver.create_stream()
        try:
            core.attach(self._stream)
        except BaseException:
            core.quietly(core.driver.destroy_stream, self._stream)
            raise

    async def copy(self, destination: DeviceBuffer | PinnedBuffer, source: DeviceBuffer | PinnedBuffer) -> None:
        """Queue a copy of the whole `source` between pinned and device memory.

        The bytes are read when the stream gets there: leave both alone until then. Raises `InvalidInput` for two
        buffers on the same side or a destination that is too small.
        """
        for argument, buffer in (("destination", destination), ("source", source)):
            if not isinstance(buffer, Buffer):
                raise InvalidInput(
                    f"copy: wanted a buffer of device.malloc or device.malloc_host as {argument}, "
                    f"given {type(buffer).__name__}"
                )
            _check_device("copy", self._core, buffer.core, f"a buffer as {argument}")
            buffer.check()
        self.check()
        to_device = isinstance(destination, DeviceBuffer)
        if to_device is isinstance(source, DeviceBuffer):
            side = "device" if to_device else "pinned"
            raise InvalidInput(f"copy: wanted one pinned and one device buffer, given two {side} buffers")
        count = source.nbytes
        if count > destination.nbytes:
            raise InvalidInput(f"copy: the source has {count} bytes, the destination only {destination.nbytes}")
        driver = self._core.driver
        queue = driver.memcpy_to_device if to_device else driver.memcpy_to_host

        holdings = (destination.holding, source.holding)

        def submit() -> None:
            self.queued += 1
            for holding in holdings:
                holding.used_by(self)
            queue(destination.address, destination.nbytes, source.address, count, self._stream)

        def over() -> None:
            for holding in holdings:
                holding.over()

        for holding in holdings:
            holding.announce()
        await self._on_device_thread(submit, destination, source, after=over)

    async def record(self, event: Event) -> None:
        """Queue the recording of `event`: it is complete when everything queued here before is."""
        _check_event("record", self._core, event)
        await self._on_device_thread(lambda: event.record_on(self), event)

    async def wait(self, event: Event) -> None:
        """Let later work of this stream wait, on the device, for what `event` captured last."""
        _check_event("wait", self._core, event)
        await self._on_device_thread(lambda: event.wait_on(self._stream), event)

    async def callback(self) -> None:
        """Return when the stream has reached this point; says nothing about failures before it."""
        await (await self._on_device_thread(self.new_point)).wait(status=False)

    async def synchronize(self) -> None:
        """Return when everything queued so far is done; raises `AclError` for what a task of it failed with."""
        await (await self._on_device_thread(self.new_point)).wait()

    @property
    def handle(self) -> int:
        """ACL's stream."""
        return self._stream

    def new_point(self) -> Point:
        """A point behind everything that is queued now; device thread."""
        point = Point(self._core, self._stream, partial(self._reached, self.queued), self._is_over)
        point.arm()
        return point

    def _reached(self, queued: int) -> None:
        self.passed = max(self.passed, queued)

    def _is_over(self) -> bool:
        return self._given_back or self._gone

    def is_idle(self) -> bool:
        """Whether the stream is empty, or answers with nothing but failures; control thread."""
        return self._is_over() or self._look() is not None

    def _look(self) -> bool | None:
        queued = self.queued
        empty, failures = glance(self._core.driver, self._stream)
        for failure in failures:
            self._core.teardown.note(str(failure))
        if empty:
            self._reached(queued)
        return empty

    def drain_blocking(self) -> bool:
        """Block until the stream is empty, whatever its tasks failed with; control thread. False if it hangs."""
        if not self._is_over():
            queued = self.queued
            self._core.teardown.finish_stream(self._stream)
            if self._stream in self._core.teardown.stuck:
                return False
            self._reached(queued)
            return True
        return not self._stuck

    def _release(self) -> None:
        core = self._core
        if core.valid:
            core.quietly(self._pass_last_point if self._look() else self._fail_points)
        core.teardown.finish_stream(self._stream)
        core.quietly(core.detach, self._stream)
        core.teardown.destroy_stream(self._stream)
        self._stuck = self._stream in core.teardown.stuck

    def _pass_last_point(self) -> None:
        # Callbacks that are still on their way would arrive at a thread without a subscription (pyACL reference §22).
        self._core.call(self.new_point).result().wait_blocking(timeout=5.0)

    def _fail_points(self) -> None:
        # It is not waited for any longer, and what is armed on it may never come.
        name = self._core.name
        gone = StaleLease(
            f"this stream of {name} was closed before it had done what was queued on it, which was given up"
        )
        self._core.call(lambda: self._core.disarm_stream(self._stream, gone)).result()


def _check_event(call: str, core: DeviceCore, event: Event) -> None:
    if not isinstance(event, Event):
        raise InvalidInput(f"{call}: wanted an event of device.create_event, given {type(event).__name__}")
    _check_device(call, core, event._core, "an event")
    event.check()


def _check_device(call: str, core: DeviceCore, given: DeviceCore, what: str) -> None:
    if given is not core:
        raise InvalidInput(f"{call}: wanted {what} of {core.name}, given one of {given.name}: devices share none")


def numpy_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape as numpy takes it."""
    if isinstance(shape, (int, np.integer)):
        return (operator.index(shape),)
    return tuple(operator.index(size) for size in shape)
