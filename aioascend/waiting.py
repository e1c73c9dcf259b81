"""How a task waits for a request: with a limit, and without leaving a copy of the caller's arrays behind."""

from __future__ import annotations

import asyncio
import math

import anyio
import anyio.lowlevel
import numpy as np

from .errors import DeadlineExceeded, InvalidInput
from .model import Outputs
from .runtime.pipeline import Pipeline
from .runtime.ports import current_port
from .runtime.request import Request

__all__ = ["expired", "limit_of", "prepare_anyio", "run_request", "until_taken"]


async def run_request(pipeline: Pipeline, request: Request, timeout: float | None) -> Outputs:
    """Submit a request and wait for its outcome; raises `DeadlineExceeded` after `timeout` seconds."""
    limit = limit_of(timeout)
    if limit is not None and limit <= 0:
        raise expired(timeout)
    current_port()  # before anything is queued: raises where no loop runs
    pipeline.submit(request)
    try:
        await request.done.wait(limit)
    finally:
        if not request.done:
            pipeline.abandon(request)
            await until_taken(request)
    if request.abandoned and request.error is None:
        raise expired(timeout)
    return request.result()


async def until_taken(request: Request) -> None:
    """Wait until nothing reads the caller's arrays any more, however often the waiting task is cancelled meanwhile."""
    while not request.taken:
        with anyio.CancelScope(shield=True):
            try:
                await request.taken.wait()
            except asyncio.CancelledError:
                continue  # the caller is being cancelled already; its arrays are still being read


def limit_of(timeout: float | None) -> float | None:
    """The seconds that `timeout` allows, None for no limit; raises `InvalidInput`."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float, np.number)) or math.isnan(timeout):
        raise InvalidInput(f"timeout: wanted seconds as a number or None, given {timeout!r}")
    return None if math.isinf(timeout) and timeout > 0 else float(timeout)


def expired(timeout: float | None) -> DeadlineExceeded:
    """The error of a request whose time ran out."""
    return DeadlineExceeded(f"the request was not finished within {timeout} s")


def prepare_anyio() -> None:
    """Have anyio import its asyncio backend now, in a thread that may take the 30 ms, instead of on a caller's loop."""
    asyncio.run(anyio.lowlevel.checkpoint())
