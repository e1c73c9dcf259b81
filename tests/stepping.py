"""Cancelling a coroutine at a chosen point where it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

__all__ = ["cancelled_at", "every_cancel"]


class _Stepped:
    """Awaits a coroutine and cancels its own task at the suspensions whose numbers are given, the first being 1."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: set[int]) -> None:
        self.coroutine = coroutine
        self.at = at
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        error: BaseException | None = None
        value: Any = None
        while True:
            try:
                yielded = self.coroutine.send(value) if error is None else self.coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            self.suspensions += 1
            if self.suspensions in self.at:
                task.cancel()
            error = value = None
            try:
                value = yield yielded
            except BaseException as thrown:
                error = thrown


async def cancelled_at(at: set[int], coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """Run a coroutine in a task that is cancelled at the given suspensions; its outcome and how often it waited.

    The outcome is what it returned, or the CancelledError it ended with.
    """
    stepped = _Stepped(coroutine, at)

    async def main() -> Any:
        return await stepped

    task = asyncio.create_task(main())
    done, _ = await asyncio.wait([task], timeout=30)
    assert done, f"it hangs after a cancel at {at}"
    if task.cancelled():
        return asyncio.CancelledError(), stepped.suspensions
    return task.result(), stepped.suspensions


async def every_cancel(make: Callable[[], Coroutine[Any, Any, Any]], most: int = 60) -> list[tuple[set[int], Any]]:
    """Run ``make()`` anew for every k, cancelled at its k-th suspension, and at that and the next.

    Ends with the first k that it does not reach, and gives what became of each.
    """
    outcomes: list[tuple[set[int], Any]] = []
    for k in range(1, most):
        for at in ({k}, {k, k + 1}):
            outcome, suspensions = await cancelled_at(at, make())
            outcomes.append((at, outcome))
        if suspensions < k:
            return outcomes
    raise AssertionError(f"it still waits after {most} suspensions")
