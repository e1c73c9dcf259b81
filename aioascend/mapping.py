"""`Session.map`: many items, results in order, no more read ahead than keeps the device busy."""

from __future__ import annotations

import asyncio
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
    tickets: asyncio.Queue[Ticket[Any] | None] = asyncio.Queue()
    room = asyncio.Semaphore(ahead)

    async def feed() -> None:
        try:
            async for item in _each(items):
                await room.acquire()
                tickets.put_nowait(await submit(item))
        finally:
            tickets.put_nowait(None)

    # A task of its own, because a result must not wait until a slow source has its next item.
    feeder = asyncio.create_task(feed(), name="aioascend-map")
    try:
        while (ticket := await tickets.get()) is not None:
            try:
                yield await ticket
            finally:
                ticket.cancel()  # does nothing to one that is done
            room.release()
        await feeder  # raises what the source or a submission raised, after the results before it
    finally:
        feeder.cancel()
        await asyncio.gather(feeder, return_exceptions=True)
        while not tickets.empty():
            left = tickets.get_nowait()
            if left is not None:
                left.cancel()


async def _each(items: Items) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
