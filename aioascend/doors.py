"""The doors through which a session is used."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from functools import partial
from typing import Any, Literal, overload

from .arguments import limit_of, outputs_of, priority_of
from .errors import BlockingCallInLoop, InvalidInput, Overloaded, SessionClosed
from .mapping import map_ordered
from .model import Outputs, check_inputs
from .pinned import PinnedRequest
from .runtime.pipeline import Pipeline
from .runtime.request import Request
from .runtime.tensors import DeviceOutputs, DeviceTensor
from .runtime.ties import OutputKind
from .ticket import Ticket
from .waiting import hand_over, run_request, run_request_blocking, until_taken

__all__ = ["Doors", "refuse_in_loop"]

OnHost = Literal["owned", "leased"]
OnDevice = Literal["device"]


class Doors(ABC):
    """What may be asked of a session."""

    @abstractmethod
    def _usable(self) -> Pipeline:
        """The pipeline of the open session; raises `SessionClosed` and `ForkedProcess`."""

    @property
    @abstractmethod
    def _ahead(self) -> int:
        """How many items `map` reads ahead."""

    @overload
    async def infer(
        self, inputs: Any, *, timeout: float | None = ..., priority: int = ..., outputs: OnHost = ...
    ) -> Outputs: ...
    @overload
    async def infer(
        self, inputs: Any, *, timeout: float | None = ..., priority: int = ..., outputs: OnDevice
    ) -> DeviceOutputs: ...
    async def infer(
        self, inputs: Any, *, timeout: float | None = None, priority: int = 0, outputs: OutputKind = "owned"
    ) -> Outputs | DeviceOutputs:
        """Run the model on `inputs` and return its outputs.

        `inputs` is one array (for a model of one input), a list or tuple of arrays in the model's order, or a mapping
        of names to arrays; dtype and shape must be the model's, the layout may be any. A Python number is taken for a
        0-d input, and a `DeviceTensor` of the same device for an array. The arrays are borrowed until the call returns
        or raises: do not write into them before, and do as you like after.

        `outputs` says what becomes of the results. ``"owned"``: new arrays that belong to the caller. ``"leased"``:
        arrays over the pinned memory that the device wrote to, without a copy. They are the caller's until the last one
        over that memory is gone; who keeps many gets copies, as soon as ``2 * depth * instances`` results are kept
        (`Outputs.leased` tells). ``"device"``: they stay on the device, as `DeviceTensor` objects, to be given to
        another session or fetched with ``await outputs.to_host()``; no more than ``device_results`` of them at once.

        Waits in the queue: the smaller `priority` first (-100 to 100, as ACL's streams and `asyncio.PriorityQueue`
        count), within a priority in the order of arrival. At least one of 8 turns goes to whoever has waited longest,
        so that nobody waits for ever. `timeout` is the limit in seconds for everything. Cancelling frees the caller at
        once, and so does the limit (after a copy of its arrays in progress has stopped). What is still queued then
        never reaches the device; what runs there keeps its place, and its memory, until the device is done.

        Raises `InvalidInput` before anything is queued, `Overloaded` when the queue is full or too many results are on
        the device, `DeadlineExceeded` when the limit has passed (or a little earlier, when the device is busy and the
        time left is shorter than any recent run took), `SessionClosed`, `StaleLease` for a tensor whose memory is gone,
        and `AclError` (`ExecutionFailed`, `OutOfMemory`, `DeviceLost`) for what the device reports.
        """
        pipeline = self._usable()
        box = [inputs]
        del inputs  # an exception that is kept must not keep the arrays
        return await run_request(pipeline, self._request(pipeline, box, timeout, priority, False, outputs))

    @overload
    async def submit(self, inputs: Any, *, priority: int = ..., outputs: OnHost = ...) -> Ticket[Outputs]: ...
    @overload
    async def submit(self, inputs: Any, *, priority: int = ..., outputs: OnDevice) -> Ticket[DeviceOutputs]: ...
    async def submit(
        self, inputs: Any, *, priority: int = 0, outputs: OutputKind = "owned"
    ) -> Ticket[Outputs] | Ticket[DeviceOutputs]:
        """Queue a run and return, once `inputs` have been copied, a ticket to await the outputs with.

        From then on the arrays are the caller's again, and writing into them changes nothing. If it raises or is
        cancelled they are the caller's too, and nothing runs. Waits for a place, by `priority` as `infer` does, instead
        of being refused: for producers that want to be slowed down to the device's pace. `outputs` is as for `infer`;
        with ``"device"`` the tensors are there at once (`Ticket.tensors`), and another session on the device may be
        given them before the run is over: the device puts the runs in order, and if this run fails so does that one.
        Raises what `infer` raises, except `DeadlineExceeded`, and `Overloaded` only for too many results on the device.
        """
        pipeline = self._usable()
        box = [inputs]
        del inputs
        request = self._request(pipeline, box, priority=priority, patient=True, outputs=outputs)
        hand_over(pipeline, request)
        try:
            await request.taken.wait()
        except BaseException as error:
            pipeline.abandon(request)
            if not isinstance(error, GeneratorExit):  # else the task was thrown away with its loop: nobody is left
                await until_taken(request)
            raise
        try:
            if isinstance(request.error, (SessionClosed, Overloaded)):
                raise request.error
            return Ticket(pipeline, request)
        finally:
            del request  # see `Request.result`

    @overload
    def map(
        self, items: Iterable[Any] | AsyncIterable[Any], *, priority: int = ..., outputs: OnHost = ...
    ) -> AsyncIterator[Outputs]: ...
    @overload
    def map(
        self, items: Iterable[Any] | AsyncIterable[Any], *, priority: int = ..., outputs: OnDevice
    ) -> AsyncIterator[DeviceOutputs]: ...
    def map(
        self, items: Iterable[Any] | AsyncIterable[Any], *, priority: int = 0, outputs: OutputKind = "owned"
    ) -> AsyncIterator[Any]:
        """Run the model on every item and yield the outputs in the items' order.

        Takes a plain or an asynchronous iterable of what `infer` takes. Bounded: it reads ahead only as far as keeps
        the device busy, and waits for a slow consumer. The first failing item raises at its place in the order;
        leaving the loop gives up what has not run yet. `priority` and `outputs` are those of `submit`.
        """
        submit: Any = partial(self.submit, priority=priority_of(priority), outputs=outputs_of(outputs))
        return map_ordered(submit, items, ahead=self._ahead)

    def request(self) -> PinnedRequest:
        """Pinned memory to write the inputs into yourself, so that nothing is copied on the host.

        Used as ``async with session.request() as request``: fill ``request.inputs["name"][:]``, then
        ``await request.run()``. There are ``depth * instances`` pinned buffers (at least 2). When all are lent, or
        arrays over them are kept alive, the request gets ordinary memory instead, of which up to ``max_waiting_bytes``
        are lent, and only past that does it wait for its turn: who idles in a request holds up nobody.
        """
        return PinnedRequest(self._usable())

    @overload
    def infer_sync(
        self, inputs: Any, *, timeout: float | None = ..., priority: int = ..., outputs: OnHost = ...
    ) -> Outputs: ...
    @overload
    def infer_sync(
        self, inputs: Any, *, timeout: float | None = ..., priority: int = ..., outputs: OnDevice
    ) -> DeviceOutputs: ...
    def infer_sync(
        self, inputs: Any, *, timeout: float | None = None, priority: int = 0, outputs: OutputKind = "owned"
    ) -> Outputs | DeviceOutputs:
        """`infer` for scripts, notebooks and plain threads: blocks the calling thread.

        Raises `BlockingCallInLoop` on the thread of a running event loop, which it would block.
        """
        refuse_in_loop("infer_sync", "infer")
        pipeline = self._usable()
        box = [inputs]
        del inputs
        return run_request_blocking(pipeline, self._request(pipeline, box, timeout, priority, False, outputs))

    def _request(
        self,
        pipeline: Pipeline,
        inputs: list[Any],
        timeout: float | None = None,
        priority: int = 0,
        patient: bool = False,
        outputs: OutputKind = "owned",
    ) -> Request:
        """A checked request for what is in the list `inputs`, which it takes out: no frame of ours keeps it."""
        pipeline.rouse()
        limit = None if timeout is None else limit_of(timeout)
        urgency = priority_of(priority)
        ties = None
        try:
            arrays: list[Any] = check_inputs(inputs.pop(), pipeline.signature.inputs, pipeline.input_index)
            if outputs != "owned" or DeviceTensor in map(type, arrays):
                ties, arrays = pipeline.tie(arrays, outputs_of(outputs))
        except InvalidInput as error:
            error.__context__ = None
            raise error.with_traceback(None) from None
        return Request(arrays, patient, urgency, limit, None, ties)


def refuse_in_loop(called: str, instead: str) -> None:
    """Raise `BlockingCallInLoop` on the thread of a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BlockingCallInLoop(f"{called} would block the running event loop: use `await session.{instead}(...)`")
