"""The threads and the ACL context of one device.

The *device thread* runs an event loop of its own on which all submission happens; nothing on it ever waits. The
*control thread* makes the slow calls (load, unload, malloc, teardown) in the same context. The completion bridge has a
report thread, and large copies have a worker.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..driver import Backend, DeviceName, Driver
from ..errors import AclError, AioascendError, ForkedProcess, SessionClosed, StaleLease, add_note, again
from ..memory.pool import Pools
from ..memory.relief import Relief
from .completion import Completion, make_completion
from .device_loop import DeviceLoop
from .recovery import Recovery
from .teardown import Teardown
from .worker import Worker

if TYPE_CHECKING:
    from .handles import Point

__all__ = ["DeviceCore", "Then"]

logger = logging.getLogger("aioascend.runtime")

T = TypeVar("T")

_NO_DEVICE = (
    "NPU {index} did not open. See whether `npu-smi info` lists it, whether this user and container may open "
    "/dev/davinci{index} and /dev/davinci_manager, and whether other processes use up its memory or the number of "
    "processes that a device takes (64; 32 in a virtual machine)."
)

Then = Callable[[AclError | None], None]
"""What follows a completion; the error says that the point may not have been reached."""


def _nothing(error: AclError | None) -> None:
    """What follows a completion that nobody waits for any more."""


class DeviceCore:
    """One device of this process, shared by everybody who uses it here.

    `generation` counts the contexts it has had: a handle belongs to one of them.
    """

    def __init__(self, name: DeviceName, backend: Backend) -> None:
        self.name = str(name)
        self.driver = Driver(backend, self.name)
        self.generation = 0
        self.context = 0
        self.valid = False  # whether handles of the present generation may be used
        self._fork_error: Callable[[], AioascendError] | None = None
        self.abandoned = False
        self._index = name.index
        self._control = Worker(f"aioascend-control-{self.name}")
        self._copier = Worker(f"aioascend-copy-{self.name}")
        self._device = DeviceLoop(f"aioascend-device-{self.name}", self._enter_context, self._broken)
        self.post = self._device.post
        self.settle = self._device.settle
        self.touch = self._device.touch
        self.rouse = self._device.rouse
        self.later = self._device.later
        self._stack = ExitStack()
        self._context_stack = ExitStack()
        self._completion: Completion | None = None
        self._armed: dict[int, tuple[int, Then]] = {}  # token -> stream, what follows
        self._next_token = itertools.count(1)
        self.points: dict[Point, None] = {}  # those that somebody awaits on a stream of his own
        self.teardown = Teardown(self.driver)
        self._left_behind = False  # a stream that hangs, in the present context
        self._lost_to: tuple[int, AclError] | None = None  # the latest context that a failure has ended
        self.pools = Pools(self.driver, self.quietly, self._dispose)
        self.memory = Relief(self.driver, self.pools.trim)
        self.recovery = Recovery(self)

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

    def control_later(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        """Run `function` on the control thread after so many seconds, unless the device is closed; from any thread."""

        def again() -> None:
            with suppress(SessionClosed):
                self.control(function, *args)

        with suppress(SessionClosed):
            self.post(lambda _: self.later(seconds, again), None)

    def copy(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run a large copy on the device's copy worker; from any thread."""
        try:
            return self._copier.submit(function, *args)
        except RuntimeError:
            raise SessionClosed(f"{self.name} is closed") from None

    # -- opening and closing ----------------------------------------------------------------------------------------

    def start(self, initialise: Callable[[Driver], None]) -> None:
        """Open the device and start its threads; control thread. Raises what the first failing call raised."""
        with ExitStack() as stack:
            initialise(self.driver)
            self.open_context()
            stack.callback(self.close_context)
            self._device.start()
            stack.callback(self._device.stop)
            self._stack = stack.pop_all()

    def stop(self) -> None:
        """Close what `start` opened, in reverse order; control thread, when nobody uses the device any more."""
        self.recovery.stop()
        self._copier.stop()  # first: copies that are under way read from the context and its memory
        self.pools.report()
        self._stack.close()

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

    # -- the context ------------------------------------------------------------------------------------------------

    def open_context(self) -> None:
        """Set the device, make a context and the completion bridge; control thread. Nothing is left when it raises."""
        driver = self.driver
        with ExitStack() as stack:
            try:
                driver.set_device(self._index)
            except AclError as error:
                if driver.backend.kind == "npu":
                    add_note(error, _NO_DEVICE.format(index=self._index))
                raise
            stack.callback(self.quietly, driver.reset_device, self._index)
            driver.read_product()
            self.context = driver.create_context(self._index)
            stack.callback(self.quietly, self._destroy_context)
            self.generation += 1
            self._completion = make_completion(driver, self.context, self._deliver, self._lost, self._device)
            stack.callback(self._completion.stop)
            self.pools.open(self.generation)
            stack.callback(lambda: self.pools.close(stuck=bool(self.teardown.stuck)))
            self._context_stack = stack.pop_all()
        self.valid = True

    def close_context(self) -> None:
        """Undo `open_context`, if it is open: our own `set_device` and no other user's; control thread."""
        if self._left_behind:
            self.leave_context()
            return
        self.valid = False
        self._context_stack.close()

    def leave_context(self) -> None:
        """Leave an open context behind, because something in it hangs and destroying it would never return."""
        self.valid = False
        assert self._completion is not None
        self._left_behind = False
        self.pools.close(stuck=True)
        self._completion.stop()
        self._context_stack.pop_all()
        self.context = 0

    def enter_context(self) -> None:
        """Have the device thread use the present context; control thread."""
        self._device.enter().result()

    def _broken(self, error: BaseException, argument: object) -> None:
        """Something on the device thread was not done to its end: what is on the device cannot be trusted."""
        self.recovery.interrupted(self.driver.as_error(error, "the device thread"), argument)

    def _enter_context(self) -> None:
        self.driver.set_context(self.context)

    def _dispose(self) -> None:
        # From any thread, finalizers included: they may post, but take no lock of the control thread's worker.
        def sweep(_: None) -> None:
            self.control(self.pools.sweep)

        try:
            self.post(sweep, None)
        except (SessionClosed, ForkedProcess):
            pass  # swept when the context is closed, or the parent's

    def _destroy_context(self) -> None:
        context, self.context = self.context, 0
        self.driver.destroy_context(context)

    def check_generation(self, generation: int, what: str) -> None:
        """Raise `StaleLease` unless `generation` is the present context's."""
        if generation != self.generation or not self.valid:
            text = f"this {what} belongs to an earlier context of {self.name}, which is gone; make a new one"
            raise self.gone(text, generation)

    def lose(self, cause: AclError | None) -> None:
        """The present context is of no use any more, because of `cause` if not at somebody's wish; device thread."""
        self.valid = False
        if cause is not None:
            # A copy, without the traceback: that would keep alive what the failing call had.
            self._lost_to = self.generation, again(cause)

    def gone(self, text: str, generation: int) -> StaleLease:
        """What those are told who want something of a context that is gone: with the first cause, where it is known."""
        stale = StaleLease(text)
        lost = self._lost_to
        if lost is not None and lost[0] == generation:
            stale.__cause__ = lost[1]
            add_note(stale, f"the context was given up after: {lost[1]}")
        return stale

    @contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """What is given back meanwhile waits no longer than that for streams; control thread.

        One that hangs and cannot be ended stays behind, and so does the context when it goes.
        """
        teardown, self.teardown = self.teardown, Teardown(self.driver, seconds)
        try:
            yield
        finally:
            teardown, self.teardown = self.teardown, teardown
            self._left_behind = self._left_behind or bool(teardown.stuck)
            for note in teardown.notes[:20]:
                logger.warning("while closing: %s", note)

    def quietly(self, function: Callable[..., object], *args: Any) -> None:
        """Run one step of a teardown: what it fails with is noted, so that the steps after it still happen."""
        self.teardown.step(function, *args)

    # -- completions ------------------------------------------------------------------------------------------------

    def attach(self, stream: int) -> None:
        """Let completions be armed on `stream`; control thread."""
        assert self._completion is not None
        self._completion.attach(stream)

    def detach(self, stream: int) -> None:
        """Undo `attach`; control thread, after the stream is synchronised and its completions have arrived."""
        assert self._completion is not None
        if stream in self.teardown.stuck:
            self._completion.forget(stream)
            return
        self.teardown.wait_until(lambda: all(armed != stream for armed, _ in list(self._armed.values())))
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

    def disarm(self, error: AioascendError) -> None:
        """Let nothing follow the completions that have not come; device thread, before the context goes.

        Those who wait for a point on a stream are told `error`.
        """
        points, self.points = self.points, {}
        for point in points:
            point.fail(again(error))
        self._armed = {token: (stream, _nothing) for token, (stream, _) in self._armed.items()}
        assert self._completion is not None
        self._completion.hurry()

    def disarm_stream(self, stream: int, error: AioascendError | None = None) -> None:
        """Let nothing follow the completions of one stream that have not come; device thread.

        Those who wait for a point on it are told `error`; a lane's streams have none.
        """
        if error is not None:
            for point in [point for point in self.points if point.stream == stream]:
                del self.points[point]
                point.fail(again(error))
        for token, (armed, _) in list(self._armed.items()):
            if armed == stream:
                self._armed[token] = (armed, _nothing)

    def forget_armed(self) -> None:
        """The completions of an earlier context will not come; device thread."""
        self._armed.clear()

    def _deliver(self, tokens: list[int], error: AclError | None) -> None:
        # On a report or event thread, which is in the context as well: what follows may run here. Never raises.
        try:
            self._device.serve([(self._arrived, (token, error)) for token in tokens])
        except Exception:
            if not self.abandoned:
                logger.exception("a completion of %s was lost", self.name)

    def _arrived(self, delivery: tuple[int, AclError | None]) -> None:
        token, error = delivery
        armed = self._armed.pop(token, None)
        if armed is not None:
            armed[1](None if error is None else again(error))  # which others are told as well

    def _lost(self, error: AclError) -> None:
        # On the report thread: reports do not come.
        self._deliver(list(self._armed), error)

    # -- forking ----------------------------------------------------------------------------------------------------

    def mark_forked(self, error: Callable[[], AioascendError]) -> None:
        """In a forked child: nothing of this exists here; whoever asks for it gets `error`."""
        self._fork_error = error
        self._device.forked(error)
