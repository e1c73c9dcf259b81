"""The threads and the ACL context of one device.

The *device thread* runs an event loop of its own on which all submission happens; nothing on it ever waits. The
*control thread* makes the slow calls (load, unload, malloc, teardown) in the same context. The completion bridge has a
report thread, and large copies have a worker.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, TypeVar

from ..driver import Backend, DeviceName, Driver
from ..errors import AclError, AioascendError, SessionClosed, StaleLease
from .completion import Completion, make_completion
from .device_loop import DeviceLoop
from .worker import Worker

__all__ = ["DeviceCore", "Then", "quietly"]

logger = logging.getLogger("aioascend.runtime")

T = TypeVar("T")

Then = Callable[[AclError | None], None]
"""What follows a completion; the error says that the point may not have been reached."""


def quietly(function: Callable[..., object], *args: Any) -> None:
    """Run one step of a teardown: what it fails with is logged, so that the steps after it still happen."""
    try:
        function(*args)
    except AioascendError as error:
        logger.warning("while closing: %s", error)


class DeviceCore:
    """One device of this process, shared by everybody who uses it here.

    `generation` counts the contexts it has had: a handle belongs to one of them.
    """

    def __init__(self, name: DeviceName, backend: Backend) -> None:
        self.name = str(name)
        self.driver = Driver(backend, self.name)
        self.generation = 0
        self.context = 0
        self._fork_error: Callable[[], AioascendError] | None = None
        self.abandoned = False
        self._index = name.index
        self._control = Worker(f"aioascend-control-{self.name}")
        self._copier = Worker(f"aioascend-copy-{self.name}")
        self._device = DeviceLoop(f"aioascend-device-{self.name}", lambda: self.driver.set_context(self.context))
        self.post = self._device.post
        self.settle = self._device.settle
        self.touch = self._device.touch
        self._stack = ExitStack()
        self._completion: Completion | None = None
        self._armed: dict[int, tuple[int, Then]] = {}  # token -> stream, what follows
        self._next_token = itertools.count(1)

    # -- threads ----------------------------------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the device thread and give its outcome as a future; from any thread."""
        return self._device.call(function)

    def control(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run `function` on the control thread, one after the other; from any thread."""
        if self._fork_error is not None:
            raise self._fork_error()
        try:
            return self._control.submit(function, *args)
        except RuntimeError:
            raise SessionClosed(f"{self.name} is closed") from None

    def copy(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run a large copy on the device's copy worker; from any thread."""
        try:
            return self._copier.submit(function, *args)
        except RuntimeError:
            raise SessionClosed(f"{self.name} is closed") from None

    # -- opening and closing ----------------------------------------------------------------------------------------

    def start(self, initialise: Callable[[Driver], None]) -> None:
        """Open the device and start its threads; control thread. Raises what the first failing call raised."""
        driver = self.driver
        with ExitStack() as stack:
            initialise(driver)
            driver.set_device(self._index)
            stack.callback(quietly, driver.reset_device, self._index)
            driver.read_run_mode()
            self.context = driver.create_context(self._index)
            self.generation += 1
            stack.callback(quietly, self._destroy_context)
            self._completion = make_completion(driver, self.context, self._deliver, self._lost)
            stack.callback(self._completion.stop)
            self._device.start()
            stack.callback(self._device.stop)
            self._stack = stack.pop_all()

    def stop(self) -> None:
        """Close what `start` opened, in reverse order; control thread, when nobody uses the device any more."""
        self._stack.close()
        self._copier.stop()

    def join(self) -> None:
        """End the control thread; from any other thread, after `stop` (or a failed `start`)."""
        self._control.stop()
        self._copier.stop()

    def abandon(self) -> None:
        """Interpreter exit: let the threads end without another ACL call."""
        self.abandoned = True
        if self._completion is not None:
            self._completion.abandon()
        self._device.abandon()
        self._control.abandon()
        self._copier.abandon()

    def join_abandoned(self, limit: float) -> None:
        """Wait for the threads to end, until `limit` of `time.monotonic` at the longest.

        A thread that is still in a vendor call when the interpreter goes down is ended in the middle of it.
        """
        for part in (self._completion, self._device, self._control, self._copier):
            if part is not None:
                part.join(max(0.0, limit - time.monotonic()))

    def _destroy_context(self) -> None:
        context, self.context = self.context, 0
        self.driver.destroy_context(context)

    def check_generation(self, generation: int, what: str) -> None:
        """Raise `StaleLease` unless `generation` is the present context's."""
        if generation != self.generation or not self.context:
            raise StaleLease(f"this {what} belongs to an earlier context of {self.name}, which is gone; make a new one")

    # -- completions ------------------------------------------------------------------------------------------------

    def attach(self, stream: int) -> None:
        """Let completions be armed on `stream`; control thread."""
        assert self._completion is not None
        self._completion.attach(stream)

    def detach(self, stream: int) -> None:
        """Undo `attach`; control thread, after the stream is synchronised and its completions have arrived."""
        assert self._completion is not None
        self._completion.detach(stream)

    def arm(self, stream: int, then: Then) -> None:
        """Call `then` on the device thread when `stream` has done what was queued so far; device thread.

        A completion carries no status (pyACL reference §22): `then` asks the streams. It is given an error when the
        completion itself failed: the point may not have been reached, and the stream has to be synchronised, by the one
        who can give the status that this takes to everybody it may concern.
        """
        assert self._completion is not None
        token = next(self._next_token)
        self._armed[token] = (stream, then)
        try:
            self._completion.arm(stream, token)
        except BaseException:
            del self._armed[token]
            raise

    def _deliver(self, token: int, error: AclError | None) -> None:
        # On a report or event thread, perhaps inside a vendor callback: append, wake, nothing else, and never raise.
        try:
            self._device.post(self._arrived, (token, error))
        except Exception:
            if not self.abandoned:
                logger.exception("a completion of %s was lost", self.name)

    def _arrived(self, delivery: tuple[int, AclError | None]) -> None:
        token, error = delivery
        armed = self._armed.pop(token, None)
        if armed is not None:
            armed[1](error)

    def _lost(self, error: AclError) -> None:
        # On the report thread: reports do not come.
        for token in list(self._armed):
            self._deliver(token, error)

    # -- forking ----------------------------------------------------------------------------------------------------

    def mark_forked(self, error: Callable[[], AioascendError]) -> None:
        """In a forked child: nothing of this exists here; whoever asks for it gets `error`."""
        self._fork_error = error
        self._device.forked(error)
