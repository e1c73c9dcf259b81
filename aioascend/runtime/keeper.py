"""Requests that have something on the device beside their own way: inputs that are there, results that stay there.

And results that leave in the pinned memory that they arrived in. `Pipeline` builds on this; device thread.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from ..errors import AioascendError, InvalidInput, StaleLease
from ..memory.blocks import Array
from ..memory.layout import plan
from ..model import Outputs
from .buffers import OutputBuffer
from .core import DeviceCore
from .equipment import Recipe
from .lane import Lane
from .place import Place
from .request import Request
from .results import DeviceResult
from .tenant import Tenant
from .tensors import DeviceOutputs, DeviceTensor
from .ties import OutputKind, Ties

__all__ = ["Keeper"]

Kept = tuple[Outputs | DeviceOutputs, OutputBuffer]


class Keeper(Tenant):
    """What a request needs before it stands in line, what becomes of its outputs, and what it lets go of at its end."""

    def __init__(self, core: DeviceCore, recipe: Recipe, *, max_waiting: int, max_waiting_bytes: int) -> None:
        super().__init__(core, recipe, max_waiting=max_waiting, max_waiting_bytes=max_waiting_bytes)
        self.output_index = self.signature.output_index()
        self._parked: dict[Request, bool] = {}  # waiting for memory or for another's run; then they are offered again
        self._unsure: dict[Request, None] = {}  # whose own run is over, but not yet the one that made their inputs

    @abstractmethod
    def _offer(self, request: Request) -> None:
        """A request comes, or comes again after it was parked."""

    @abstractmethod
    def _conclude(self, index: int, place: Place, now: float) -> None:
        """The run of a place is over."""

    @abstractmethod
    def _end(self, request: Request) -> None:
        """The request has its outcome."""

    def knows(self, request: Request) -> bool:
        """Whether the request is in line, on the device, waits for memory or others, or has been handed over."""
        return request in self._parked or super().knows(request)

    # -- from any thread -----------------------------------------------------------------------------------------------

    def tie(self, given: list[Any], kind: OutputKind) -> tuple[Ties, list[Array]]:
        """What a request with these checked inputs has on the device, and leaves there, and its inputs on the host.

        Raises `InvalidInput` for a tensor on another device or with too little room, and `StaleLease`.
        """
        core, signature = self._core, self.signature
        residents: dict[int, DeviceTensor] = {}
        arrays: list[Array] = []
        for index, value in enumerate(given):
            if isinstance(value, DeviceTensor):
                self._check_tensor(index, value)
                residents[index] = value
            else:
                arrays.append(value)
        stayed = None
        if kind == "device":
            result = DeviceResult(core, plan(signature.output_nbytes))
            stayed = DeviceOutputs(result, signature.outputs, self.output_index, signature.synthetic)
        return Ties(kind, residents, stayed), arrays

    def _check_tensor(self, index: int, tensor: DeviceTensor) -> None:
        spec, nbytes = self.signature.inputs[index], self.signature.input_nbytes[index]
        if tensor.device != self._core.name:
            raise InvalidInput(
                f"input {spec.name!r}: the tensor is on {tensor.device}, and this session on {self._core.name}: "
                "bring it to the host with `await tensor.to_host()`"
            )
        tensor.check()
        if tensor.room < nbytes:
            raise InvalidInput(
                f"input {spec.name!r}: the driver wants {nbytes} bytes for it, and has given the tensor {tensor.room}: "
                "bring it to the host with `await tensor.to_host()`"
            )

    # -- before it stands in line --------------------------------------------------------------------------------------

    def _tied(self, request: Request, ties: Ties) -> bool:
        """Whether it has what it needs to stand in line; else it was failed, or is offered again when it has."""
        problems = [
            request.error,
            *(source.problem() for source in ties.sources),
        ]  # the former where memory has run out
        problem = next(filter(None, problems), None)
        if isinstance(problem, StaleLease):
            self._fail(request, problem)
        elif problem is not None:
            self._fail_on_device(request, problem)
        else:
            return self._reads(request, ties) and self._has_room(request, ties)
        return False

    def _reads(self, request: Request, ties: Ties) -> bool:
        if not ties.reading:
            ties.reading = True
            for source in ties.sources:
                source.hold(reading=True)
        for source in ties.sources:
            if not source.ready:
                self._park(request)
                source.follow(lambda: self._resume(request))
                return False
        return True

    def _has_room(self, request: Request, ties: Ties) -> bool:
        if ties.kind == "owned":
            return True
        spares = self.device_spares if ties.kind == "device" else self.pinned_spares
        if not ties.promised:
            full = spares.promise()
            if full is not None:
                self.counters.refused += 1
                self._fail(request, full)
                return False
            ties.promised = True
        if spares.fill():
            return True

        def made(error: AioascendError | None) -> None:
            if error is not None and ties.kind == "device":
                request.error = error
            elif error is not None:
                self._unpromise(ties)
                ties.kind = "owned"  # the result is copied
            self._resume(request)

        self._park(request)
        spares.make(made)
        return False

    def _park(self, request: Request) -> None:
        self._parked[request] = True

    def _resume(self, request: Request) -> None:
        if request not in self._parked:
            return  # the session was closed meanwhile
        self._parked[request] = False
        self._offer(request)
        if not self._parked[request]:
            del self._parked[request]
        self._core.settle(self._settle)

    # -- when its run is over ------------------------------------------------------------------------------------------

    def _concluded(self, index: int, place: Place, request: Request, ties: Ties) -> bool:
        """Whether the outcome of a run is known, once what made its inputs has one; else it is concluded then."""
        ties.run_over()
        self._unsure.pop(request, None)
        again = self._again(index, self._lanes[index], place)
        for source in ties.sources:
            if not source.done:
                self._unsure[request] = None
                source.follow(again)
                return False
        for problem in filter(None, (source.problem() for source in ties.sources)):
            # What the run has made of such inputs, an error included, means nothing.
            place.error, request.error = None, problem
        kept = ties.kept
        if place.queued and ties.outdated and request.error is None and not request.abandoned:
            place.forget_run()
            if place.may_write(again):
                self._run_on_new_inputs(index, place)
            else:
                self._unsure[request] = None
            return False
        if kept is not None and kept.block is place.outputs:  # else its run was never queued
            good = place.error is None and request.error is None and not request.abandoned
            # Where others may be reading it, the block is not the place's to write to, whatever they make of it.
            if kept.readers or (good and kept.holds):
                place.part_with_outputs(self.device_spares.part(kept))
        return True

    def _run_on_new_inputs(self, index: int, place: Place) -> None:
        """What it has read was made again since: so is the run. It keeps its place, which is free for this moment."""
        lane, request, outlet = self._lanes[index], place.request, place.outlet
        assert request is not None
        assert outlet is not None
        self._repeated += 1
        lane.outlets.append(outlet)
        lane.free(place)
        lane.launch(request)

    def _again(self, index: int, lane: Lane, place: Place) -> Callable[[], None]:
        generation = place.generation

        def again() -> None:
            if lane in self._lanes and place.generation == generation:
                self._conclude(index, place, time.monotonic())
                self._core.settle(self._settle)

        return again

    def _keep(self, request: Request, ties: Ties, outlet: OutputBuffer) -> Kept | None:
        """The outputs of a run that went well, as far as they need no copy, and the outlet that is free then."""
        if ties.stayed is not None:
            return ties.stayed, outlet
        lent = None if ties.kind == "owned" else self.pinned_spares.lend(outlet)
        if lent is None:
            return None
        signature = self.signature
        arrays, fresh = lent
        return Outputs(arrays, signature.outputs, self.output_index, signature.synthetic, leased=True), fresh

    def _succeed_with(self, request: Request, kept: Kept) -> OutputBuffer:
        self.counters.completed += 1
        request.outputs, outlet = kept
        self._end(request)
        return outlet

    # -- at its end ----------------------------------------------------------------------------------------------------

    def _untie(self, request: Request, ties: Ties) -> None:
        """Let go of everything; its own run does not read or write any of it any more."""
        ties.run_over()
        if ties.reading:
            ties.reading = False
            for source in ties.sources:
                source.let_go(reading=True)
        ties.residents, ties.sources = {}, ()  # who keeps a result, or an error, does not keep what it was made from
        self._unpromise(ties)
        if ties.kept is not None:
            error = request.error
            if error is None and request.outputs is None:
                error = StaleLease("the run whose result on the device was asked for was given up: run it again")
            ties.kept.end(error)

    def _unpromise(self, ties: Ties) -> None:
        if ties.promised:
            ties.promised = False
            (self.device_spares if ties.kind == "device" else self.pinned_spares).unpromise()
