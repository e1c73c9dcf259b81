"""`Session.map`: many items, results in order, no more read ahead than keeps the device busy."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from .errors import InvalidInput
from .ticket import Ticket

__all__ = ["map_ordered"]

Submit = Callable[[Any], Awaitable[Ticket[Any]]]
Items = Iterable[Any] | AsyncIterable[Any]


def map_ordered(submit: Submit, items: Items, ahead: int) -> AsyncIterator[Any]:
    """Yield the outputs of every item in order; at most `ahead` runs are under way or wait for the consumer."""
    if not isinstance(items, (AsyncIterable, Iterable)):
        raise InvalidInput(f"map: wanted an iterable or asynchronous iterable, given {type(items).__name__}")
    return _map_ordered(submit, items, ahead)


async def _map_ordered(submit: Submit, items: Items, ahead: int) -> AsyncIterator[Any]:
    # No asyncio.Queue and no Semaphore: thrown away with a loop that is closed, they want something of it.
    tickets: deque[Ticket[Any] | None] = deque()
    arrived, freed = asyncio.Event(), asyncio.Event()
    under_way = 0

    async def feed() -> None:
        nonlocal under_way
        try:
            async for item in _each(items):
                while under_way >= ahead:
                    freed.clear()
                    await freed.wait()
                under_way += 1
                tickets.append(await submit(item))
                arrived.set()
        finally:
            tickets.append(None)
            if not loop.is_closed():
                arrived.set()

    loop, feeding = asyncio.get_running_loop(), feed()
    # A task of its own, because a result must not wait until a slow source has its next item.
    feeder = loop.create_task(feeding, name="aioascend-map")
    ticket: Ticket[Any] | None = None
    try:
        while True:
            while not tickets:
                arrived.clear()
                await arrived.wait()
            ticket = tickets.popleft()
            if ticket is None:
                break
            try:
                yield await ticket
            finally:
                ticket.cancel()  # does nothing to one that is done
            under_way -= 1
            freed.set()
        await feeder  # raises what the source or a submission raised, after the results before it
    finally:
        try:
            if loop.is_closed():  # this was thrown away with it
                with contextlib.suppress(RuntimeError):  # a source that wants to wait once more, without a loop
                    feeding.close()
            else:
                feeder.cancel()
                await asyncio.gather(feeder, return_exceptions=True)
        finally:
            for left in tickets:
                if left is not None:
                    left.cancel()
            tickets.clear()
            # What is raised has this frame in its traceback, and must not be kept by it (see `Request.result`).
            del feeder, feeding
            ticket = left = None


async def _each(items: Items) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
