"""How a task waits for a request: with a limit, and without leaving a copy of the caller's arrays behind."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel

from .model import Outputs
from .runtime.pipeline import Pipeline
from .runtime.ports import current_port
from .runtime.request import Request, too_late
from .runtime.tensors import DeviceOutputs

__all__ = [
    "hand_over",
    "prepare_anyio",
    "run_request",
    "run_request_blocking",
    "submit",
    "until_taken",
]


async def run_request(pipeline: Pipeline, request: Request) -> Outputs | DeviceOutputs:
    """Submit a request and wait for its outcome; raises `DeadlineExceeded` when its time is up."""
    try:
        done, deadline = request.done, request.deadline
        try:
            loop, port = current_port()  # before anything is queued: raises where no loop runs
            future = loop.create_future()
            done.expect(future, port)
            if deadline is not None:
                submit(pipeline, request)
            else:
                pipeline.submit(request)
        except BaseException:
            request.claim()
            raise
        try:
            if deadline is not None:
                port.watch(future, deadline)
            await future
        except BaseException as error:
            await _leave(pipeline, request, future, error)
            raise
        finally:
            if deadline is not None:
                port.unwatch(future)
        if deadline is not None:
            if not done.is_set:
                await _leave(pipeline, request, future)
            return _outcome(request)
        return request.result()
    finally:
        del request  # see `Request.result`


async def _leave(
    pipeline: Pipeline, request: Request, future: asyncio.Future[None], error: BaseException | None = None
) -> None:
    """Give a request up unless its outcome is there: because of `error`, or because its time is up."""
    if not request.done.is_set:
        request.done.leave(future)
        if not request.abandoned:
            pipeline.abandon(request, expired=error is None)
        if not isinstance(error, GeneratorExit):  # else the task was thrown away with its loop: nobody is left to wait
            await until_taken(request)


def run_request_blocking(pipeline: Pipeline, request: Request) -> Outputs | DeviceOutputs:
    """`run_request` for a plain thread."""
    try:
        submit(pipeline, request)
    except BaseException:
        request.claim()
        raise
    waited = False
    try:
        request.done.wait_blocking(request.timeout)
        waited = True
    finally:
        if not request.done:
            pipeline.abandon(request, expired=waited)
            request.taken.wait_blocking()
    try:
        return _outcome(request)
    finally:
        del request


def hand_over(pipeline: Pipeline, request: Request) -> None:
    """Submit a request on a running loop; what is raised keeps nothing of it alive."""
    try:
        current_port()  # before anything is queued: raises where no loop runs
        submit(pipeline, request)
    except BaseException:
        request.claim()
        raise


def submit(pipeline: Pipeline, request: Request) -> None:
    """Submit a request unless it is too late; raises `DeadlineExceeded`, and what `Pipeline.submit` raises."""
    if request.timeout is not None and request.timeout <= 0:
        pipeline.turn_away()
        raise too_late(request.timeout)
    pipeline.submit(request)


def _outcome(request: Request) -> Outputs | DeviceOutputs:
    if request.abandoned and request.error is None:
        raise too_late(request.timeout)
    try:
        return request.result()
    finally:
        del request


async def until_taken(request: Request) -> None:
    """Wait until nothing reads the caller's arrays any more, and only then let a cancellation through."""
    cancelled: asyncio.CancelledError | None = None
    while not request.taken:
        with anyio.CancelScope(shield=True):
            try:
                await request.taken.wait()
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


def prepare_anyio() -> None:
    """Have anyio import its asyncio backend now, in a thread that may take the 30 ms, instead of on a caller's loop."""
    asyncio.run(anyio.lowlevel.checkpoint())
