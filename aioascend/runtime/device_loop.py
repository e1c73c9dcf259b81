"""The device thread: an event loop of its own, reached from other threads by posts.

A post costs one wake-up a burst. What a burst leads to is done once at its end: settlers first (confirm, decide,
launch), then every port that was touched is woken once.

Bursts run one at a time, but not always on the thread itself: one that is in the device's context as well works them
off where it is when it has news of the device (`serve`), and when there is none to come it waits for posts in place of
the thread (`stand_by`), so that what a post starts on the device is told by whoever started it. Each hand-over that is
saved is a wake-up of a thread, which takes longer than the burst, and with the GIL taken by others up to 5 ms.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from ..errors import AioascendError, SessionClosed
from .background import go_on, start_thread
from .ports import Port

__all__ = ["DeviceLoop"]

logger = logging.getLogger("aioascend.runtime")

T = TypeVar("T")

_JOIN_S = 5.0
_ROUNDS = 4  # bursts in a row that a thread which stands in runs before it looks at the device again
_UNTIL_DONE = 1 << 30
_SOON, _SOON_S = 8, 0.001  # so many waits are so short after a burst whose ports get the GIL late (`ports`)


class DeviceLoop:
    """The thread named `name`; `enter` runs in it first.

    `broken` is told on the thread when something that was posted has not been done to its end: an error that nobody
    expected, or `SystemExit` thrown into the thread; with the argument of the post where there was one.
    """

    def __init__(
        self, name: str, enter: Callable[[], None], broken: Callable[[BaseException, Any], None] = lambda *_: None
    ) -> None:
        self._name = name
        self._enter = enter
        self._broken = broken
        self._argument: Any = None  # of the post that is being run
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Reentrant, because a finalizer that posts may run in the middle of a post.
        self._lock = threading.RLock()
        self._closed = True
        self._abandoned = False
        self._forked: Callable[[], AioascendError] | None = None
        self._armed = False
        self._soon = 0  # how many waits to come are short, because the GIL is scarce
        self._inbox: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._turn = threading.Lock()  # whoever has it works off the inbox, and looks again after letting go of it
        self._stand_in: threading.Lock | None = None  # what the thread that stands by waits for: released to wake it
        self._entries: deque[Future[None]] = deque()  # those who wait for the thread to enter the device again
        self._settlers: dict[Callable[[], None], None] = {}
        self._touched: dict[Port, None] = {}
        # `settle(function)`: run it once at the end of this burst. `touch(port)`: wake it once after that. On the
        # thread, for every request: a function of ours around each would take several times as long.
        self.settle: Callable[[Callable[[], None]], object] = self._settlers.setdefault
        self.touch: Callable[[Port], object] = self._touched.setdefault

    def start(self) -> None:
        """Start the thread; raises what `enter` raised."""
        self._thread = start_thread(self._name, self._begin, self._run)

    def stop(self) -> None:
        """End the thread, after everything that was posted; from any other thread."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN_S)

    def abandon(self) -> None:
        """Interpreter exit: end the thread without running anything that is still posted."""
        self._abandoned = True
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(loop.stop)
            except RuntimeError:
                return

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, for no more than `seconds`."""
        if self._thread is not None:
            self._thread.join(seconds)

    def forked(self, error: Callable[[], AioascendError]) -> None:
        """In a forked child, where the thread does not exist: refuse everything with `error`."""
        self._forked = error

    def post(self, function: Callable[[Any], None], argument: Any) -> None:
        """Run ``function(argument)`` on the thread soon, in the order of the posts; from any thread.

        What was posted runs: after the thread's end a post raises `SessionClosed`, in a forked child `ForkedProcess`.
        """
        if self._forked is not None:
            raise self._forked()  # before the lock, which another thread of the parent may have held
        post = (function, argument)
        self._inbox.append(post)
        # Looked at after the post is there: the drain that is on its way will find it, or the next look of whoever has
        # the turn, or the thread's last one.
        if self._closed or not (self._armed or self._turn.locked()):
            self._arm(post)

    def _arm(self, post: tuple[Callable[[Any], None], Any]) -> None:
        with self._lock:
            if self._closed:
                try:
                    self._inbox.remove(post)
                except ValueError:
                    return  # the thread's last look has found it
                raise SessionClosed(f"{self._name} is closed")
            if not self._armed:
                self._armed = True
                wake, self._stand_in = self._stand_in, None
                if wake is not None:
                    wake.release()
                else:
                    assert self._loop is not None
                    self._loop.call_soon_threadsafe(self._drain)

    def serve(self, posts: list[tuple[Callable[[Any], None], Any]]) -> None:
        """`post` all of these, and work off everything that was posted unless that is being done already.

        For threads in the device's context that may call what the device thread calls.
        """
        if self._forked is not None:
            raise self._forked()
        with self._lock:
            if self._closed:
                raise SessionClosed(f"{self._name} is closed")
            self._inbox.extend(posts)
        try:
            self._work(_ROUNDS)
        except BaseException as error:  # such as SystemExit, thrown into the thread by somebody who ends it
            self._interrupted(error)

    def stand_by(self, seconds: float, idle: Callable[[], bool]) -> bool:
        """In place of the thread, wait up to so many seconds for posts and work them off; False when it has ended.

        For one thread at a time, of which the same is asked as for `serve`. It does not wait unless `idle`, which is
        looked at when a `call_off` can no longer be missed.
        """
        if self._closed:
            return False
        wake = threading.Lock()
        wake.acquire()
        try:
            self._stand_in = wake
            if self._soon:  # to be in line for the GIL when the next post comes
                self._soon -= 1
                seconds = _SOON_S
            chosen = idle() and wake.acquire(timeout=seconds)
            if not chosen:
                with self._lock:
                    chosen = self._stand_in is not wake  # at the last moment
                    self._stand_in = None
        except BaseException:  # such as SystemExit, thrown into the thread by somebody who ends it
            self._stand_in = None
            self._armed = False
            self._hand_over()
            raise
        if chosen:
            try:
                self._drain(_ROUNDS)
            except BaseException as error:
                self._interrupted(error)
        return True

    def rouse(self) -> None:
        """Something is about to be posted: wake the thread that stands by, if there is one; from any thread.

        A thread takes longer to wake up than a request takes to make, and so both go on side by side. Where it comes
        first nonetheless, it finds nothing, stands by again, and the post wakes it as ever.
        """
        if self._stand_in is not None and self._forked is None:
            with self._lock:
                wake, self._stand_in = self._stand_in, None
                if wake is not None:
                    self._armed = True
                    wake.release()

    def call_off(self) -> bool:
        """Have the thread that stands by look at what there is to do; from any thread. Whether there was one."""
        with self._lock:
            wake, self._stand_in = self._stand_in, None
        if wake is None:
            return False
        wake.release()
        return True

    def enter(self) -> Future[None]:
        """Have the thread itself run what it ran first once more; from any other thread."""
        outcome: Future[None] = Future()
        with self._lock:
            if self._closed:
                raise SessionClosed(f"{self._name} is closed")
            self._entries.append(outcome)
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._enter_again)
        return outcome

    def _enter_again(self) -> None:
        while self._entries:
            outcome = self._entries[0]  # it stays there until it has its outcome: the thread may be interrupted
            try:
                self._enter()
            except BaseException as error:
                if not outcome.done():
                    outcome.set_exception(error)
            else:
                if not outcome.done():
                    outcome.set_result(None)
            self._entries.popleft()

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the thread and give its outcome as a future; from any thread."""
        outcome: Future[T] = Future()

        def run(_: None) -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        self.post(run, None)
        return outcome

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` after so many seconds, unless the thread has ended by then; in a burst."""
        with self._lock:
            if not self._closed:
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._timed, function)

    def _begin(self) -> None:
        self._enter()
        self._loop = _new_loop()
        self._closed = False

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            go_on(loop.run_forever, self._interrupted)
        finally:
            with self._lock:
                self._closed = True
                self._armed = False  # no drain comes any more
                loop.close()
            with self._turn:  # when the thread has ended nobody else is at it either
                while self._inbox and not self._abandoned:
                    self._burst()  # nobody may be left waiting for a post that was accepted

    def _interrupted(self, error: BaseException) -> None:
        """What was being done is half done: tell, and go on with the rest."""
        if self._abandoned:
            return  # the interpreter exits, and nothing goes on
        assert self._loop is not None
        self._broken(error, self._argument)  # first: another one may come in the middle of this
        self._argument = None
        logger.error("%s was interrupted by %r and goes on", self._name, error)
        with self._lock:
            if not self._closed:  # else the thread works off what is left
                self._armed = True
                self._inbox.append((_nothing, None))  # for a burst, which does what this one has left
                self._loop.call_soon_threadsafe(self._enter_again)
                self._loop.call_soon_threadsafe(self._drain)

    def _failed(self, error: BaseException, argument: Any) -> None:
        if self._abandoned:
            logger.debug("a device thread failed while the interpreter exits", exc_info=error)
        elif isinstance(error, SessionClosed):
            logger.debug("work for a device that is closed was dropped", exc_info=error)
        else:
            logger.error("unexpected error on a device thread", exc_info=error)
            self._broken(error, argument)

    def _timed(self, function: Callable[[], None]) -> None:
        self._inbox.append((lambda _: function(), None))
        self._work()

    def _drain(self, rounds: int = _UNTIL_DONE) -> None:
        self._armed = False  # first: whatever is posted from now on arms a drain of its own
        self._work(rounds)

    def _work(self, rounds: int = _UNTIL_DONE) -> None:
        """Run bursts until nothing is posted any more, or somebody else is at it.

        After so many `rounds` the thread itself goes on.
        """
        inbox, turn = self._inbox, self._turn
        for _ in range(rounds):
            if not inbox or self._abandoned or not turn.acquire(False):
                return
            try:
                self._burst()
            finally:
                turn.release()
        self._hand_over()

    def _hand_over(self) -> None:
        with self._lock:
            if self._inbox and not (self._armed or self._closed):
                self._armed = True
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._drain)

    def _burst(self) -> None:
        inbox = self._inbox
        for _ in range(len(inbox)):
            try:
                # Known before it is taken out: what interrupts the thread from now on is told with it.
                self._argument = inbox[0][1]
                function, argument = inbox.popleft()
            except IndexError:  # taken back meanwhile, as the thread has ended
                break
            try:
                function(argument)
            except BaseException as error:
                self._failed(error, argument)
            self._argument = None
        settlers, touched = self._settlers, self._touched
        while settlers:
            due = list(settlers)
            settlers.clear()
            for settler in due:
                try:
                    settler()
                except BaseException as error:
                    self._failed(error, None)
        if touched:
            for port in list(touched):
                if port.wake():
                    self._soon = _SOON
            touched.clear()  # last: whoever interrupts this leaves them to the next burst, and twice does no harm


def _nothing(_: object) -> None:
    """What is posted for the burst that comes of it."""


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
