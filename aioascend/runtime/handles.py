"""What streams, events and buffers of a `Device` have in common: a core, a context generation, one release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol, TypeVar

from ..errors import AclError, AioascendError, StaleLease
from ..scheduling.health import Severity
from .background import wait_for
from .core import DeviceCore
from .draining import glance
from .residents import severity
from .signal import Signal
from .uncopyable import Uncopyable

__all__ = ["Handle", "Kept", "Point"]

T = TypeVar("T")

_AGAIN_S = 0.005  # until the control thread looks again at a stream that is not empty; twice as long each time, up to
_LATEST_AGAIN_S = 0.2


def _nothing() -> None:
    """What follows where nothing has to."""


class Checked(Protocol):
    """What can be used until it was released or its context is gone."""

    def check(self) -> None:
        """Raise `StaleLease` unless it may be used."""


class Kept(ABC):
    """Something in one context of a device that is given back once: released, or before that gone with its context."""

    def __init__(self, core: DeviceCore) -> None:
        self._core = core
        self.released = False  # by its owner: not to be used any more
        self._given_back = False
        self._gone = False  # with its context
        self._waiting: list[Future[None]] | None = None  # for its release, once that has begun
        self.on_release: Callable[[], object] = lambda: None

    def release_soon(self) -> Future[None]:
        """Give it back once the device is done with it, other work of the control thread going between; any thread."""
        outcome: Future[None] = Future()
        self._core.control(self._begin_release, outcome)
        return outcome

    def drop(self) -> None:
        """The same where nobody waits for it; control thread."""
        self._begin_release(None)

    def _begin_release(self, outcome: Future[None] | None) -> None:
        waiting = [] if outcome is None else [outcome]
        if self._given_back:
            for one in waiting:
                one.set_result(None)
        elif self._waiting is not None:
            self._waiting += waiting
        else:
            self._waiting = waiting
            self.released = True
            self._try_release(_AGAIN_S)

    def _try_release(self, pause: float) -> None:
        if self._given_back or self._gone or self.is_idle():
            if self._waiting:
                with suppress(BaseException):  # those who wait are told
                    self.release_blocking()
            else:
                self._core.quietly(self.release_blocking)
        else:
            self._core.control_later(pause, self._try_release, min(2 * pause, _LATEST_AGAIN_S))

    def is_idle(self) -> bool:
        """Whether giving it back waits for nothing; control thread."""
        return True

    def release_blocking(self) -> None:
        """Give it back, however long the device takes; control thread. A second call does nothing."""
        if self._given_back:
            return
        self.released = self._given_back = True
        waiting, self._waiting = self._waiting or [], []
        try:
            self.on_release()
            if not self._gone:
                self._release()
        except BaseException as error:
            for one in waiting:
                one.set_exception(error)
            raise
        for one in waiting:
            one.set_result(None)

    def go_stale(self) -> None:
        """The context goes: give back what must not outlive it; control thread."""
        if not self._given_back and not self._gone:
            self._gone = True
            self._release()

    @abstractmethod
    def _release(self) -> None: ...


class Handle(Uncopyable, Kept):
    """A thing on a device that belongs to one context of it; using it after its release raises `StaleLease`."""

    _what = "handle"

    def __init__(self, core: DeviceCore) -> None:
        super().__init__(core)
        self._generation = core.generation

    def check(self) -> None:
        """Raise `StaleLease` unless the handle may be used."""
        if self.released:
            raise StaleLease(f"this {self._what} of {self._core.name} was released; make a new one")
        self._core.check_generation(self._generation, self._what)

    async def _on_device_thread(
        self, function: Callable[[], T], *others: Checked, after: Callable[[], None] = _nothing
    ) -> T:
        """Run `function`, which uses this handle and the others, unless the context goes before its turn comes.

        `after` is called in any case, on the device thread if it is reached.
        """

        def checked() -> T:
            try:
                for handle in (self, *others):
                    handle.check()
                return function()
            except AclError as error:
                self._core.recovery.report(error)
                raise
            except AioascendError:
                raise
            except Exception as failure:
                raise self._core.driver.as_error(failure, f"a call for this {self._what}") from failure
            finally:
                after()

        try:
            self.check()
            outcome = self._core.call(checked)
        except BaseException:
            after()
            raise
        return await wait_for(outcome)

    async def release(self) -> None:
        """Give it back to the driver, after the device is done with it; a second call does nothing."""
        if not self.released:
            await wait_for(self.release_soon())


class Point:
    """A point on a stream that can be awaited; reaching it asks the stream for the status of what ran before.

    `passed` is called on the device thread or the control thread when the stream is known to have reached it; `ended`
    tells whether the stream was given back.
    """

    def __init__(
        self, core: DeviceCore, stream: int, passed: Callable[[], None], ended: Callable[[], bool] = lambda: False
    ) -> None:
        self._core = core
        self.stream = stream
        self._ended = ended
        self._passed = passed
        self._signal = Signal()
        self._error: AioascendError | None = None

    def arm(self) -> None:
        """Queue the completion; device thread. Raises `AclError`."""
        self._core.arm(self.stream, self._reached)
        self._core.points[self] = None
        self._core.recovery.watch()

    def fail(self, error: AioascendError) -> None:
        """The stream goes, alone or with the context; device thread."""
        self._error = error
        self._signal.set(self._core.touch)

    def ask(self) -> None:
        """Ask the stream for the status of what ran; device thread.

        Also where nothing has come for a while: a dead context may have dropped the callback.
        """
        driver = self._core.driver
        try:
            driver.stream_query(self.stream)
        except Exception as failure:
            error = driver.as_error(failure, "acl.rt.stream_query")
            self._error = self._error or error
            self._core.recovery.report(error)

    def _reached(self, error: AclError | None) -> None:
        if error is not None and not severity(error):
            # The point may not have been reached: only the control thread may wait for the stream.
            self._error = error
            self._core.control(self._synchronize, _AGAIN_S)
            return
        self._core.points.pop(self, None)
        if error is not None:
            self._core.recovery.report(error)
            self.fail(error)
            return
        self._passed()
        self.ask()
        self._signal.set(self._core.touch)

    def _synchronize(self, pause: float) -> None:
        core = self._core
        if core.valid and not self._ended():
            empty, failures = glance(core.driver, self.stream)
            for error in failures:
                self._error = error
                core.recovery.report(error)
            if empty is None:
                core.control_later(pause, self._synchronize, min(2 * pause, _LATEST_AGAIN_S))
                return
            if empty:
                self._passed()
            elif core.valid:  # only failures, again and again
                core.recovery.report(failures[-1], Severity.CONTEXT)
        core.post(lambda _: core.points.pop(self, None), None)
        self._signal.set(lambda port: port.wake())

    async def wait(self, *, status: bool = True) -> None:
        """Wait until the stream is here; with `status`, raise what a task before it failed with."""
        await self._signal.wait()
        if status and self._error is not None:
            raise self._error

    def wait_blocking(self, timeout: float) -> bool:
        """Block until the stream is here; False on timeout (seconds)."""
        return self._signal.wait_blocking(timeout)
