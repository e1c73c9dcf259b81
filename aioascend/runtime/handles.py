"""What streams, events and buffers of a `Device` have in common: a core, a context generation, one release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from ..errors import AclError, StaleLease
from .background import wait_for
from .core import DeviceCore
from .signal import Signal
from .uncopyable import Uncopyable

__all__ = ["Handle", "Point"]

T = TypeVar("T")


class Handle(Uncopyable, ABC):
    """A thing on a device that belongs to one context of it; using it after its release raises `StaleLease`."""

    _what = "handle"

    def __init__(self, core: DeviceCore) -> None:
        self._core = core
        self._generation = core.generation
        self._released = False
        self.on_release: Callable[[], object] = lambda: None

    def check(self) -> None:
        """Raise `StaleLease` unless the handle may be used."""
        if self._released:
            raise StaleLease(f"this {self._what} of {self._core.name} was released; make a new one")
        self._core.check_generation(self._generation, self._what)

    async def _on_device_thread(self, function: Callable[[], T]) -> T:
        self.check()
        return await wait_for(self._core.call(function))

    async def _on_control_thread(self, function: Callable[[], T]) -> T:
        self.check()
        return await wait_for(self._core.control(function))

    def release_blocking(self) -> None:
        """Give it back to the driver; control thread. A second call does nothing."""
        if not self._released:
            self._released = True
            self.on_release()
            self._release()

    @abstractmethod
    def _release(self) -> None: ...

    async def release(self) -> None:
        """Give it back to the driver, after the device is done with it; a second call does nothing."""
        if not self._released:
            await wait_for(self._core.control(self.release_blocking))


class Point:
    """A point on a stream that can be awaited; reaching it asks the stream for the status of what ran before."""

    def __init__(self, core: DeviceCore, stream: int) -> None:
        self._core = core
        self._stream = stream
        self._signal = Signal()
        self._error: AclError | None = None

    def arm(self) -> None:
        """Queue the completion; device thread. Raises `AclError`."""
        self._core.arm(self._stream, self._reached)

    def _reached(self, error: AclError | None) -> None:
        if error is not None:
            # The point may not have been reached: only the control thread may wait for the stream.
            self._error = error
            self._core.control(self._synchronize)
            return
        try:
            self._core.driver.stream_query(self._stream)
        except AclError as failure:
            self._error = failure
        self._signal.set(self._core.touch)

    def _synchronize(self) -> None:
        try:
            self._core.driver.synchronize_stream(self._stream)
        except AclError as failure:
            self._error = failure
        self._signal.set(lambda port: port.wake())

    async def wait(self, *, status: bool = True) -> None:
        """Wait until the stream is here; with `status`, raise what a task before it failed with."""
        await self._signal.wait()
        if status and self._error is not None:
            raise self._error

    def wait_blocking(self, timeout: float) -> bool:
        """Block until the stream is here; False on timeout (seconds)."""
        return self._signal.wait_blocking(timeout)
