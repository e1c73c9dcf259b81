"""Starting threads: those that live as long as a device, and short ones for the slow steps of opening and closing."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from .signal import Signal

__all__ = [
    "done_within", "forget_frames", "go_on", "in_background", "join_all", "run_in_background", "start_thread",
    "wait_for",
]  # fmt: skip

T = TypeVar("T")

_under_way: set[threading.Thread] = set()
os.register_at_fork(after_in_child=_under_way.clear)


def join_all(seconds: float) -> None:
    """Wait for everything that runs in the background, for no more than `seconds`."""
    limit = time.monotonic() + seconds
    for thread in list(_under_way):
        if thread.ident is not None:  # else its start has not come to anything yet
            thread.join(max(0.0, limit - time.monotonic()))


def in_background(name: str, function: Callable[[], T]) -> Future[T]:
    """Run `function` in a thread of its own and give its outcome as a future; it goes on if nobody waits."""
    outcome: Future[T] = Future()
    run_in_background(name, function, outcome)
    return outcome


def run_in_background(name: str, function: Callable[[], T], outcome: Future[T]) -> None:
    """`in_background` with a future that is known before the thread starts: Ctrl-C may come in the middle of that."""
    outcome.set_running_or_notify_cancel()
    calls = [function]

    def run() -> None:
        try:
            call = calls.pop()
        except IndexError:
            return  # the start was interrupted, and whoever wanted it has been told that it did not happen
        try:
            result = call()
            del call  # no reference is left when the waiter goes on: it may want to drop what this used
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)
        finally:
            _under_way.discard(thread)

    thread = threading.Thread(target=run, name=name, daemon=True)
    _under_way.add(thread)  # before it runs: an exit in between has to wait for it too
    try:
        thread.start()
    except BaseException as error:
        # The thread may run or not, and nothing tells: whoever takes the call first decides.
        try:
            calls.pop()
        except IndexError:
            pass
        else:
            _under_way.discard(thread)
            outcome.set_exception(error)
        raise


async def wait_for(future: Future[T]) -> T:
    """Await a thread's future; cancelling the wait leaves what it waits for alone, and a closed loop harms nobody."""
    await done_within(future, None)
    return future.result()


async def done_within(future: Future[T], seconds: float | None) -> bool:
    """Await a thread's future for so many seconds at most: whether it has ended. Raises what it ended with."""
    if not future.done():
        signal = Signal()
        future.add_done_callback(lambda _: signal.set(lambda port: port.wake()))
        await signal.wait(None if seconds is None else time.monotonic() + seconds)
    if not future.done():
        return False
    future.result()
    return True


def forget_frames(error: BaseException) -> None:
    """Let go of what the frames of an exception hold: who keeps one must not keep a model's bytes by it."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


def go_on(serve: Callable[[], None], interrupted: Callable[[BaseException], None]) -> None:
    """Run `serve` until it returns, again after whatever it raises, such as `SystemExit` thrown into the thread.

    `interrupted` is told first, and may be hit itself: who ends all threads may do so twice.
    """
    error: BaseException | None = None
    while True:
        try:
            if error is not None:
                interrupted(error)
                error = None
            serve()
            return
        except BaseException as raised:
            error = raised


def start_thread(name: str, enter: Callable[[], None], run: Callable[[], None]) -> threading.Thread:
    """Start a thread and return once `enter` has worked in it; raises what `enter` raised."""
    entered: Future[None] = Future()

    def main() -> None:
        try:
            enter()
        except BaseException as error:
            entered.set_exception(error)
            return
        entered.set_result(None)
        run()

    thread = threading.Thread(target=main, name=name, daemon=True)
    thread.start()
    entered.result()
    return thread
