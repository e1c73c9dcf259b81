"""A run that was queued by `Session.submit` and whose outputs are awaited later."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Generic, TypeVar, cast

from .errors import InvalidInput
from .model import Outputs
from .runtime.pipeline import Pipeline
from .runtime.request import Request
from .runtime.tensors import DeviceOutputs
from .runtime.uncopyable import Uncopyable

__all__ = ["Ticket"]


T = TypeVar("T", Outputs, DeviceOutputs)


class Ticket(Generic[T], Uncopyable):
    """Await it for the outputs, from any loop and as often as you like; it keeps them alive.

    Cancelling such an await leaves the run alone; `cancel` gives it up.
    """

    __slots__ = ("_pipeline", "_request")

    def __init__(self, pipeline: Pipeline, request: Request) -> None:
        self._pipeline = pipeline
        self._request = request

    def __await__(self) -> Generator[Any, None, T]:
        yield from self._request.done.wait().__await__()
        try:
            return self._outcome()
        finally:
            del self  # see `Request.result`

    @property
    def tensors(self) -> DeviceOutputs:
        """The outputs of a ``submit(..., outputs="device")``, which may be given to a session before the run is over.

        Raises `InvalidInput` where the outputs do not stay on the device.
        """
        ties = self._request.ties
        if ties is None or ties.stayed is None:
            raise InvalidInput('the outputs of this run leave the device: tensors are of submit(..., outputs="device")')
        return ties.stayed

    def _outcome(self) -> T:
        if self._request.abandoned and self._request.outputs is None and self._request.error is None:
            raise asyncio.CancelledError("the ticket was cancelled")
        try:
            return cast(T, self._request.result())
        finally:
            del self

    def done(self) -> bool:
        """Whether the outcome is there, so that awaiting it would not wait."""
        return bool(self._request.done)

    def cancel(self) -> None:
        """Give the run up; if it is still queued it never reaches the device. Awaiting it raises CancelledError."""
        if not self._request.done:
            self._pipeline.abandon(self._request)

    def __repr__(self) -> str:
        state = "done" if self.done() else "cancelled" if self._request.abandoned else "pending"
        return f"<aioascend.Ticket {self._request.number}: {state}>"
