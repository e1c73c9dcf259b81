"""How the device thread learns that a stream has reached a point: two ways behind one small interface.

*callback* (the default): `launch_callback` with one permanent function and an int token, run by one report thread a
device. *event*: an event recorded on the stream, and one thread a stream that waits for its events in order, with the
GIL released. `AIOASCEND_COMPLETION=callback|event` chooses, because how old CANN binaries treat Python callbacks could
not be verified (pyACL reference §3, §19). Neither carries a status: who receives a token asks the streams for it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ..driver import Driver, codes
from ..driver.codes import ErrorClass
from ..driver.constants import EventFlag
from ..errors import AclError, InvalidInput
from .background import go_on, start_thread

__all__ = ["Completion", "make_completion"]

logger = logging.getLogger("aioascend.runtime")

_REPORT_MS = 100  # how long one process_report waits: the delay of a stop nobody announces
_REPORT_S = _REPORT_MS / 1000
_EVENT_MS = 250
_PATIENCE = 4  # failing reports in a row before those who wait for one are told
_JOIN_S = 5.0

Deliver = Callable[[list[int], AclError | None], None]
Lost = Callable[[AclError], None]


class StandIn(Protocol):
    """The device loop, for a thread that has nothing else to wait for."""

    def stand_by(self, seconds: float, idle: Callable[[], bool]) -> bool:
        """Wait for posts while `idle`, and work them off; False when there will be none."""

    def call_off(self) -> bool:
        """End the wait; from any thread."""


class Completion(Protocol):
    """Delivers the tokens armed on a stream, in order, once the stream has reached them."""

    def attach(self, stream: int) -> None:
        """Make a stream usable; control thread."""

    def arm(self, stream: int, token: int) -> None:
        """Have `token` delivered when everything queued on `stream` so far is done; device thread."""

    def detach(self, stream: int) -> None:
        """Undo `attach`; control thread, after the stream is synchronised and its tokens were delivered."""

    def forget(self, stream: int) -> None:
        """Undo `attach` for a stream that hangs: callbacks queued on it never run, and it is going to be discarded."""

    def hurry(self) -> None:
        """Nobody waits for a token any more: `detach` and `stop` need not wait for those that are armed."""

    def stop(self) -> None:
        """End the threads; control thread, after every stream was detached."""

    def abandon(self) -> None:
        """Let the threads end by themselves and make no further ACL call (interpreter exit)."""

    def join(self, seconds: float) -> None:
        """Wait for the threads to end, for no more than `seconds` each."""


def make_completion(
    driver: Driver, context: int, deliver: Deliver, lost: Lost, device: StandIn | None = None
) -> Completion:
    """The completion way that `AIOASCEND_COMPLETION` names.

    `deliver` takes tokens in their order, and an error where the point may not have been reached; `lost` is told that
    reports fail again and again. Both must be thread-safe and never raise. They are called on a thread of the
    completion, which is in `context`, outside any callback. While no callback is to come its thread works for `device`.
    """
    way = os.environ.get("AIOASCEND_COMPLETION", "").strip() or "callback"
    if way == "callback":
        return _Callbacks(driver, context, deliver, lost, device)
    if way == "event":
        return _Events(driver, context, deliver)
    raise InvalidInput(f'AIOASCEND_COMPLETION: wanted "callback" or "event", given {way!r}')


class _Callbacks:
    def __init__(self, driver: Driver, context: int, deliver: Deliver, lost: Lost, device: StandIn | None) -> None:
        self._driver = driver
        self._context = context
        self._lost = lost
        self._device = device
        self._launched = 0  # callbacks, and those that have run; what a dead context drops stays missing
        self._returned = 0
        self._deliver = deliver
        self._reached: deque[int] = deque()
        self._function: Callable[[int], None] = self._reached.append  # the one permanent callback
        self._stopping = False
        self._stopped = threading.Event()  # the same, for who waits a while
        # process_report returns at once while its thread has no subscription (107012): the gate keeps it from spinning.
        self._gate = threading.Event()
        self._lock = threading.Lock()
        self._streams = 0
        self._ident = 0  # the thread's
        self._thread = start_thread(f"aioascend-report-{driver.device}", self._enter, self._run)

    def attach(self, stream: int) -> None:
        self._driver.subscribe_report(self._ident, stream)
        with self._lock:
            self._streams += 1
            self._gate.set()

    def arm(self, stream: int, token: int) -> None:
        self._launched += 1
        try:
            self._driver.launch_callback(self._function, token, stream)
        except BaseException:
            self._launched -= 1
            raise
        if self._device is not None and threading.get_ident() != self._ident:
            self._device.call_off()

    def forget(self, stream: int) -> None:
        with self._lock:
            self._streams -= 1
            if not self._streams:
                self._gate.clear()

    def detach(self, stream: int) -> None:
        self.forget(stream)
        self._driver.unsubscribe_report(self._ident, stream)

    def _deliver_reached(self) -> None:
        """Deliver the tokens of the callbacks that have returned.

        Not from within them: `unsubscribe_report` waits for a callback in progress, with the GIL held that it needs to
        return (pyACL reference §3), and what a token leads to are calls that a callback may not make (§9).
        """
        reached = self._reached
        if reached:
            tokens = [reached.popleft() for _ in range(len(reached))]
            self._returned += len(tokens)
            if not self._stopping:
                self._deliver(tokens, None)

    def _idle(self) -> bool:
        """Whether no callback is to come."""
        return self._returned == self._launched and not self._stopping

    def hurry(self) -> None:
        pass  # the callbacks that still come have to run: a subscription may not end before (pyACL reference §9)

    def stop(self) -> None:
        self.abandon()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            logger.warning("the report thread of %s has not ended", self._driver.device)

    def abandon(self) -> None:
        self._stopping = True
        self._stopped.set()
        self._gate.set()
        if self._device is not None:
            self._device.call_off()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _enter(self) -> None:
        self._ident = threading.get_ident()
        self._driver.set_context(self._context)

    def _run(self) -> None:
        go_on(self._serve, self._interrupted)

    def _interrupted(self, error: BaseException) -> None:
        if not self._stopping:
            self._lost(self._driver.as_error(error, "the report thread"))
            logger.error("the report thread of %s was interrupted by %r and goes on", self._driver.device, error)

    def _serve(self) -> None:
        failures, device = 0, self._device
        while True:
            if not self._streams:
                self._gate.wait()
            if self._stopping:
                return
            if device is not None and self._returned == self._launched and device.stand_by(_REPORT_S, self._idle):
                continue
            try:
                try:
                    self._driver.process_report(_REPORT_MS)
                finally:
                    self._deliver_reached()
                failures = 0
            except BaseException as error:  # a callback that raised surfaces here as SystemError (pyACL reference §9)
                if self._stopped.is_set():
                    return
                failures += 1
                failure = self._driver.as_error(error, "acl.rt.process_report")
                if failures == 1:
                    logger.warning("reports of %s fail: %r", self._driver.device, error)
                lost = codes.describe(failure.code).error_class is ErrorClass.DEVICE_LOST
                # What is no `Exception` was thrown into the thread, and a callback may have been interrupted by it.
                if lost or failures % _PATIENCE == 0 or not isinstance(error, Exception):
                    self._lost(failure)
                self._stopped.wait(min(0.01 * 2**failures, 1.0))


class _Events:
    def __init__(self, driver: Driver, context: int, deliver: Deliver) -> None:
        self._driver = driver
        self._context = context
        self._deliver = deliver
        self._waiters: dict[int, _EventWaiter] = {}

    def attach(self, stream: int) -> None:
        self._waiters[stream] = _EventWaiter(self._driver, self._context, self._deliver)

    def arm(self, stream: int, token: int) -> None:
        self._waiters[stream].arm(stream, token)

    def detach(self, stream: int) -> None:
        self._waiters.pop(stream).stop()

    def forget(self, stream: int) -> None:
        self.detach(stream)

    def hurry(self) -> None:
        self.abandon()

    def stop(self) -> None:
        self.abandon()  # of those that were left behind with their streams, if any

    def abandon(self) -> None:
        for waiter in self._waiters.values():
            waiter.abandon()

    def join(self, seconds: float) -> None:
        for waiter in self._waiters.values():
            waiter.join(seconds)


class _EventWaiter:
    """One thread that waits for one stream's events, in the order in which they were recorded."""

    def __init__(self, driver: Driver, context: int, deliver: Deliver) -> None:
        self._driver = driver
        self._context = context
        self._deliver = deliver
        # An event stays in line until its token was delivered, so that an interrupted thread goes on where it was.
        self._armed: deque[tuple[int, int] | None] = deque()
        self._wake = threading.Semaphore(0)
        self._idle_events: list[int] = []
        self._abandoned = False
        self._thread = start_thread(f"aioascend-events-{driver.device}", self._enter, self._run)

    def arm(self, stream: int, token: int) -> None:
        driver = self._driver
        event = (
            self._idle_events.pop()
            if self._idle_events
            else driver.create_event(EventFlag.SYNC | EventFlag.CAPTURE_STREAM_PROGRESS)
        )
        try:
            driver.record_event(event, stream)
        except Exception:
            _quiet_destroy(driver, event)
            raise
        self._put((event, token))

    def _put(self, item: tuple[int, int] | None) -> None:
        self._armed.append(item)
        self._wake.release()

    def stop(self) -> None:
        self._put(None)
        self._thread.join(_JOIN_S)
        self._idle_events += [item[0] for item in self._armed if item is not None]  # which the thread has not come to
        self._armed.clear()
        while self._idle_events:
            _quiet_destroy(self._driver, self._idle_events.pop())

    def abandon(self) -> None:
        self._abandoned = True
        self._put(None)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _enter(self) -> None:
        self._driver.set_context(self._context)

    def _run(self) -> None:
        go_on(self._serve, self._interrupted)

    def _interrupted(self, error: BaseException) -> None:
        logger.error("the event thread of %s was interrupted by %r and goes on", self._driver.device, error)

    def _serve(self) -> None:
        driver, armed = self._driver, self._armed
        while not self._abandoned:
            if not armed:
                self._wake.acquire()  # one for every item, so that it may be behind: look again
                continue
            item = armed[0]
            if item is None:
                return
            event, token = item
            reached, error = self._wait(event)
            if not reached:
                return
            self._deliver([token], error)
            armed.popleft()
            if driver.has_ex_events:
                self._idle_events.append(event)
            else:
                _quiet_destroy(driver, event)  # old CANN: a fresh event for every use (pyACL reference §7)

    def _wait(self, event: int) -> tuple[bool, AclError | None]:
        """Wait for an event: whether there is anything to tell; what the wait fails with is told with it."""
        try:
            while not self._driver.synchronize_event(event, _EVENT_MS):
                if self._abandoned:
                    return False, None
        except Exception as error:
            return not self._abandoned, self._driver.as_error(error, "acl.rt.synchronize_event")
        return not self._abandoned, None


def _quiet_destroy(driver: Driver, event: int) -> None:
    """Destroy an event; a failure is logged, because the completion it served must go on."""
    try:
        driver.destroy_event(event)
    except AclError as error:
        logger.warning("%s", error)
