"""The threads and the ACL context of one device.

The *device thread* runs an event loop of its own on which all submission happens; nothing on it ever waits. The
*control thread* makes the slow calls (load, unload, malloc, teardown) in the same context. The completion bridge has a
report thread. Other threads reach the device thread through `post`, at the cost of one wake-up a burst.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

from ..driver import Backend, DeviceName, Driver
from ..errors import AclError, AioascendError, SessionClosed, StaleLease
from .background import start_thread
from .completion import Completion, make_completion
from .ports import Port

__all__ = ["DeviceCore", "quietly"]

logger = logging.getLogger("aioascend.runtime")

T = TypeVar("T")

_JOIN_S = 5.0


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
        self.forked = False
        self.abandoned = False
        self._index = name.index
        self._control = ThreadPoolExecutor(1, thread_name_prefix=f"aioascend-control-{self.name}")
        self._copier = ThreadPoolExecutor(1, thread_name_prefix=f"aioascend-copy-{self.name}")
        self._stack = ExitStack()
        self._completion: Completion | None = None
        self._tokens: dict[int, Callable[[], None]] = {}
        self._next_token = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inbox: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._armed = False
        self._settlers: dict[Callable[[], None], None] = {}
        self._touched: dict[Port, None] = {}

    # -- control thread ---------------------------------------------------------------------------------------------

    def control(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run `function` on the control thread, one after the other; from any thread."""
        try:
            return self._control.submit(function, *args)
        except RuntimeError:
            raise SessionClosed(f"{self.name} is closed") from None

    def copy(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run a large copy on the device's copy worker; from any thread."""
        return self._copier.submit(function, *args)

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
            self._completion = make_completion(driver, self.context, self._deliver)
            stack.callback(self._completion.stop)
            self._thread = start_thread(f"aioascend-device-{self.name}", self._enter, self._run)
            stack.callback(self._stop_device_thread)
            self._stack = stack.pop_all()

    def stop(self) -> None:
        """Close what `start` opened, in reverse order; control thread, when nobody uses the device any more."""
        self._stack.close()
        self._copier.shutdown(wait=True)

    def join(self) -> None:
        """End the control thread; from any other thread, after `stop` (or a failed `start`)."""
        self._control.shutdown(wait=True)
        self._copier.shutdown(wait=True)

    def abandon(self) -> None:
        """Interpreter exit: let the threads end without another ACL call."""
        self.abandoned = True
        if self._completion is not None:
            self._completion.abandon()
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(loop.stop)
            except RuntimeError:
                return
        if self._thread is not None:
            self._thread.join(1.0)

    def _destroy_context(self) -> None:
        context, self.context = self.context, 0
        self.driver.destroy_context(context)

    # -- device thread ----------------------------------------------------------------------------------------------

    def _stop_device_thread(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN_S)
        self._loop = self._thread = None

    def _enter(self) -> None:
        self.driver.set_context(self.context)
        self._loop = _new_loop()

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.run_forever()
        finally:
            loop.close()

    def post(self, function: Callable[[Any], None], argument: Any) -> None:
        """Run ``function(argument)`` on the device thread soon, in the order of the posts; from any thread."""
        self._inbox.append((function, argument))
        if not self._armed:
            self._armed = True
            loop = self._loop
            try:
                if loop is None:
                    raise RuntimeError("no loop")
                loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                raise SessionClosed(f"{self.name} is closed") from None

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the device thread and give its outcome as a future; from any thread."""
        outcome: Future[T] = Future()

        def run(_: None) -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        self.post(run, None)
        return outcome

    def settle(self, function: Callable[[], None]) -> None:
        """Run `function` once at the end of this burst; device thread."""
        self._settlers[function] = None

    def touch(self, port: Port) -> None:
        """Wake `port` once at the end of this burst; device thread."""
        self._touched[port] = None

    def _drain(self) -> None:
        self._armed = False  # first: whatever is posted from now on arms a drain of its own
        inbox = self._inbox
        for _ in range(len(inbox)):
            function, argument = inbox.popleft()
            _guarded(function, argument)
        while self._settlers:
            settlers, self._settlers = self._settlers, {}
            for settler in settlers:
                _guarded(settler)
        touched, self._touched = self._touched, {}
        for port in touched:
            port.wake()
        if inbox and not self._armed and self._loop is not None:
            self._armed = True
            self._loop.call_soon_threadsafe(self._drain)

    # -- completions ------------------------------------------------------------------------------------------------

    def attach(self, stream: int) -> None:
        """Let completions be armed on `stream`; control thread."""
        assert self._completion is not None
        self._completion.attach(stream)

    def detach(self, stream: int) -> None:
        """Undo `attach`; control thread, after the stream is synchronised and its completions have arrived."""
        assert self._completion is not None
        self._completion.detach(stream)

    def arm(self, stream: int, then: Callable[[], None]) -> None:
        """Call `then` on the device thread when `stream` has done what was queued so far; device thread."""
        assert self._completion is not None
        token = next(self._next_token)
        self._tokens[token] = then
        try:
            self._completion.arm(stream, token)
        except AclError:
            del self._tokens[token]
            raise

    def _deliver(self, token: int) -> None:
        # On the report thread, inside a vendor callback: append, wake, nothing else, and never raise.
        try:
            self.post(self._arrived, token)
        except Exception:
            logger.exception("a completion of %s was lost", self.name)

    def _arrived(self, token: int) -> None:
        then = self._tokens.pop(token, None)
        if then is not None:
            then()

    def check_generation(self, generation: int, what: str) -> None:
        """Raise `StaleLease` unless `generation` is the present context's."""
        if generation != self.generation or not self.context:
            raise StaleLease(f"this {what} belongs to an earlier context of {self.name}, which is gone; make a new one")


def _guarded(function: Callable[..., None], *args: Any) -> None:
    try:
        function(*args)
    except Exception:
        logger.exception("unexpected error on a device thread")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
