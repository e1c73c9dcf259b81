"""`Session.request`: a request whose inputs the caller writes into pinned memory itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Literal, overload

import numpy as np

from .arguments import limit_of, outputs_of, priority_of
from .errors import SessionClosed, StaleLease
from .model import Outputs
from .runtime.leases import Lease
from .runtime.pipeline import Pipeline
from .runtime.request import Array, Request
from .runtime.tensors import DeviceOutputs
from .runtime.ties import OutputKind
from .runtime.uncopyable import Uncopyable
from .waiting import run_request

__all__ = ["PinnedInputs", "PinnedRequest"]


class PinnedInputs(Mapping[str, Array]):
    """Writable arrays over pinned memory, by name (or by index); fill them in place: ``inputs["x"][:] = frame``.

    They hold whatever the memory held before. Raises `StaleLease` once the request was left, or the context that the
    memory belongs to was rebuilt.
    """

    def __init__(self, arrays: list[Array], pipeline: Pipeline, lease: Lease) -> None:
        self._arrays: list[Array] | None = arrays
        self._pipeline = pipeline
        self._lease = lease

    def __getitem__(self, key: str | int) -> Array:
        if self._arrays is None:
            raise StaleLease("these inputs were given back when their request was left; make a new request")
        self._pipeline.leases.check_present(self._lease)
        if isinstance(key, str):
            index = self._pipeline.input_index.get(key)
            if index is None:
                raise KeyError(f"no input is named {key!r}; there are {', '.join(self)}")
            return self._arrays[index]
        return self._arrays[key]

    def __setitem__(self, key: str | int, value: object) -> None:
        raise TypeError(f"inputs cannot be replaced: write into the memory with inputs[{key!r}][...] = value")

    def __iter__(self) -> Iterator[str]:
        return (spec.name for spec in self._pipeline.signature.inputs)

    def __len__(self) -> int:
        return len(self._pipeline.signature.inputs)

    def drop(self) -> None:
        """Let go of the arrays."""
        self._arrays = None


class PinnedRequest(Uncopyable):
    """A lease on pinned input memory, from ``async with session.request() as request``.

    The memory is handed to the next request when this one was left, its runs are over, and no array over it is alive.
    When all of it is lent the request has ordinary memory, and its runs cost one copy more (`pinned` tells).
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._lease: Lease | None = None
        self._inputs: PinnedInputs | None = None

    @property
    def inputs(self) -> PinnedInputs:
        """The inputs to write into; raises `StaleLease` outside the `async with` block."""
        if self._inputs is None:
            raise StaleLease("use `async with session.request() as request:`, and the inputs inside the block only")
        return self._inputs

    @property
    def pinned(self) -> bool:
        """Whether it has pinned memory, so that its runs copy nothing on the host."""
        return self._lease is not None and self._lease.buffer is not None

    @overload
    async def run(
        self, *, timeout: float | None = ..., priority: int = ..., outputs: Literal["owned", "leased"] = ...
    ) -> Outputs: ...
    @overload
    async def run(
        self, *, timeout: float | None = ..., priority: int = ..., outputs: Literal["device"]
    ) -> DeviceOutputs: ...
    async def run(
        self, *, timeout: float | None = None, priority: int = 0, outputs: OutputKind = "owned"
    ) -> Outputs | DeviceOutputs:
        """Run the model on what the inputs hold now; do not write into them until it returns.

        May be called again after writing new values. Takes, returns and raises what `Session.infer` does. After a
        cancel or a timeout the device may still be reading the inputs: leave the request and make another, whose memory
        is never that of a run under way.
        """
        lease = self._lease
        if lease is None or self._inputs is None:
            raise StaleLease("run() outside its `async with session.request()` block: the memory was given back")
        self._pipeline.leases.check_present(lease)
        self._pipeline.rouse()
        limit, urgency = limit_of(timeout), priority_of(priority)
        arrays = [] if self.pinned else [*self._inputs.values()]
        ties = None if outputs == "owned" else self._pipeline.tie([], outputs_of(outputs))[0]
        request = Request(arrays, patient=False, priority=urgency, timeout=limit, lease=lease, ties=ties)
        del arrays
        try:
            return await run_request(self._pipeline, request)
        finally:
            del request  # see `Request.result`

    async def __aenter__(self) -> PinnedRequest:
        if self._lease is not None:
            raise StaleLease("a request can be entered once; make a new one with session.request()")
        leases = self._pipeline.leases
        lease = self._lease = Lease(leases.place())
        leases.ask(lease)
        try:
            await lease.granted.wait()
            if lease.error is not None:
                raise lease.error
            self._inputs = PinnedInputs(self._lend(lease), self._pipeline, lease)
        except BaseException:
            leases.let_go(lease)
            raise
        return self

    def _lend(self, lease: Lease) -> list[Array]:
        if lease.ordinary:
            return [np.zeros(spec.shape, spec.dtype) for spec in self._pipeline.signature.inputs]
        buffer = lease.buffer
        if buffer is None:
            raise SessionClosed("the session was closed meanwhile")
        leases = self._pipeline.leases
        lease.arrays_alive = True
        return buffer.lend(lambda: leases.arrays_dropped(lease))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def __del__(self) -> None:
        self._leave()  # a request that was entered and dropped

    def _leave(self) -> None:
        inputs, self._inputs = self._inputs, None
        if inputs is not None:
            inputs.drop()
        lease = self._lease
        if lease is not None and not lease.abandoned:
            self._pipeline.leases.let_go(lease)
