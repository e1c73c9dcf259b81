"""What a session has on its device, and how it leaves a context that goes and enters the next one.

The way of requests is `Pipeline`'s, which builds on this; what `Recovery` asks of a resident is answered here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from ..errors import AclError, AioascendError, StaleLease, again
from ..memory.layout import plan
from ..scheduling.admission import Admission, Where
from ..scheduling.watchdog import Sight
from ..telemetry.recording import Recorder
from ..telemetry.statistics import Counters
from .core import DeviceCore
from .equipment import Equipment, Growth, Recipe
from .lane import Lane
from .leases import LeasePool
from .request import Array, Request
from .residents import Casualty
from .spares import DeviceSpares, PinnedSpares
from .timing import Timing

__all__ = ["Tenant"]

_INLINE_BYTES = 1 << 20
"""Copies up to this size are made on the device thread: handing them to a worker would take longer than the copy."""


class Tenant(ABC):
    """A session's equipment in the present context, its queue, and the requests that a dead context hands back.

    Device thread, unless a method says otherwise.
    """

    def __init__(self, core: DeviceCore, recipe: Recipe, *, max_waiting: int, max_waiting_bytes: int) -> None:
        core.recovery.check()
        self._core = core
        self._recipe = recipe
        equipment = core.memory.retrying(Equipment, core, recipe)
        self.signature = equipment.signature
        self._input_inline = sum(spec.nbytes for spec in self.signature.inputs) <= _INLINE_BYTES
        self._output_inline = sum(spec.nbytes for spec in self.signature.outputs) <= _INLINE_BYTES
        self.counters = Counters()
        self.recorder: Recorder | None = None  # while a recording is on
        self.admission: Admission[Request] = Admission(
            lanes=recipe.instances,
            depth=recipe.depth,
            staging=recipe.staging,
            outlets=recipe.outlets,
            max_waiting=max_waiting,
            max_waiting_bytes=max_waiting_bytes,
            at_once=self._input_inline,
        )
        self.leases = LeasePool(
            core,
            plan(self.signature.input_nbytes),
            self.signature.inputs,
            limit=recipe.leases,
            ordinary_bytes=max_waiting_bytes,
        )
        outputs = plan(self.signature.output_nbytes)
        self.device_spares = DeviceSpares(core, outputs, recipe.device_results)
        self.pinned_spares = PinnedSpares(core, outputs, self.signature.outputs, lambda: self._recipe.kept_outlets)
        self.timing = Timing(core, self)
        self._held = False  # nothing new reaches the device: its context is being rebuilt, or somebody runs alone
        self._refused: AioascendError | None = None  # what everybody is refused with while the device is lost
        self._handed_over: dict[Request, None] = {}  # to the recovery
        self._retired_from = 0  # the generation of the context that it had to let go of last, and why
        self._retired_for: AclError | None = None
        self._live: set[Request] = set()  # all that have no outcome
        self._to_save: list[Request] = []
        self._alone: tuple[Request, Callable[[], None]] | None = None
        self._repeated = 0
        self._uncounted = 0  # requests that have worked and are in no counter
        self._equip(equipment)

    def when_all_back(self, function: Callable[[], object]) -> bool:
        """True when no pinned memory of the closed session is in callers' hands; else call `function` when none is."""

        def look() -> None:
            if not (self.leases.leased or self.pinned_spares.lent):
                function()

        leases, outlets = self.leases.when_all_back(look), self.pinned_spares.when_all_back(look)
        return leases and outlets

    def move_in(self) -> None:
        """From now on rebuilds of the context are this one's concern; control thread."""
        try:
            self._core.recovery.join(self)
        except BaseException:
            self.dismantle()
            raise
        self._core.memory.add(self.leases.give_back_idle)
        self._core.memory.add(self.pinned_spares.give_back_idle)

    def _equip(self, equipment: Equipment) -> None:
        self._equipment: Equipment | None = equipment
        self._fitted = equipment
        self._staging = list(equipment.staging)
        self._lanes: list[Lane] = equipment.lanes
        for lane in self._lanes:
            lane.settle, lane.live = self._settle, self._live

    @property
    def lanes(self) -> list[Lane]:
        """The instances of the model."""
        return self._lanes

    @property
    def repeated(self) -> int:
        """Runs that were made again."""
        return self._repeated + sum(lane.repeated for lane in self._lanes)

    @property
    def refused(self) -> AioascendError | None:
        """What requests are refused with at present, because the device is lost or the model cannot be restored."""
        return self._refused

    # -- how many places there are ----------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """The places of each lane."""
        return self._recipe.depth

    def grow(self) -> None:
        """Give every lane one place more; control thread, while the session has no requests.

        Raises `OutOfMemory` and what else making it raises; then everything is as it was.
        """
        equipment = self._equipment
        growth = None if equipment is None else self._core.memory.retrying(equipment.make_growth)

        def add() -> None:
            if growth is not None:
                assert equipment is not None
                equipment.add(growth)
                if self._fitted is equipment:
                    self._staging += growth.staging
            self._resize(self.depth + 1)

        self._core.call(add).result()

    def shrink(self) -> None:
        """Undo the last `grow`; control thread, while the session has no requests.

        Where the context was rebuilt since, or is about to be, the place stays where it is, unused, until then.
        """
        equipment = self._equipment

        def take() -> Growth | None:
            # Without lanes: the context goes, and with it the equipment, which a stream that hangs may still touch.
            growth = equipment.take_last() if equipment is not None and self._lanes else None
            if growth is not None:
                self._staging = [buffer for buffer in self._staging if buffer not in growth.staging]
            self._resize(self.depth - 1)
            return growth

        growth = self._core.call(take).result()
        if growth is not None:
            growth.free()

    def recount(self, counters: Counters) -> None:
        """Go on counting from an earlier state of the counters; device thread."""
        self._uncounted += self.counters.completed - counters.completed
        self.counters = counters

    def _resize(self, depth: int) -> None:
        self._recipe = recipe = replace(self._recipe, depth=depth)
        self.admission.resize(depth=depth, staging=recipe.staging, outlets=recipe.outlets)
        self.leases.resize(recipe.leases)

    # -- what the way of a request gives -----------------------------------------------------------------------------

    @abstractmethod
    def _settle(self) -> None:
        """Do whatever can be done next."""

    @abstractmethod
    def _copy_in_elsewhere(self, request: Request, arrays: list[Array]) -> None:
        """Have the copy worker copy inputs into the request's buffer; `_copied_in` follows."""

    @abstractmethod
    def _free_input(self, request: Request) -> None:
        """The request's staging buffer is free."""

    @abstractmethod
    def _give_up(self, request: Request) -> None:
        """The end of a request that nobody waits for."""

    @abstractmethod
    def _fail(self, request: Request, error: Exception) -> None:
        """The end of a request that never got to the device."""

    @abstractmethod
    def _fail_on_device(self, request: Request, error: Exception) -> None:
        """The end of a request that the device, or its loss, has failed."""

    # -- when the context is rebuilt: what `Recovery` asks of a resident ---------------------------------------------

    @property
    def at_rest(self) -> bool:
        """Nothing of the session is on the device or being copied."""
        admission = self.admission
        return not (admission.running or admission.draining or admission.copying)

    @property
    def worked(self) -> int:
        """How many requests have worked."""
        return self._uncounted + self.counters.completed

    def knows(self, request: Request) -> bool:
        """Whether the request is in line, on the device, or has been handed over."""
        return request in self._handed_over or self.admission.knows(request)

    def give_up_lost(self, error: AclError) -> None:
        """Fail every request that an interrupted step has lost track of."""
        for request in list(self._live):
            if request.done:
                request.done.set(self._core.touch)  # its caller may not have been told
            elif not self.knows(request):
                self._fail_on_device(request, again(error))
            else:
                continue
            self._live.discard(request)
            self.admission.purge(request)

    def sights(self) -> dict[Lane, Sight]:
        """What the watchdog sees of the lanes."""
        return {lane: lane.sight for lane in self._lanes}

    def hold(self) -> None:
        """Start nothing more on the device."""
        self._held = True

    def retire(self, cause: AclError | None) -> list[Casualty]:
        """Hand over the requests that are on the device, oldest first."""
        self._held = True
        self._retired_from = self._core.generation
        self._retired_for = cause
        self.leases.hold()
        casualties = []
        for lane in self._lanes:
            for place in lane.retire():
                request, error, suspect = place.request, place.error, place.suspect
                assert request is not None
                place.clear()  # who keeps a place that is not used any more keeps no request by it, nor its results
                if request.abandoned:
                    self._give_up(request)
                    continue
                self._handed_over[request] = None
                casualties.append(Casualty(self, request, error, suspect))
            self._repeated += lane.repeated
        self._lanes = []
        self._alone = None
        # Those that were not in a lane at this moment: about to be run alone or again, or lost half-way to a lane.
        known = {one.request for one in casualties}
        for request in self.admission.launched():
            if request not in known and not request.done:
                self._handed_over[request] = None
                casualties.append(Casualty(self, request, None, suspect=False))
        return sorted(casualties, key=lambda one: one.request.number)

    def recall(self, innocent: list[Request]) -> None:
        """Put these and the staged requests back in line; their inputs are saved before the pinned memory goes."""
        for request in innocent:
            self._handed_over.pop(request, None)
        again_in_line = []
        for request in innocent:
            if request.error is not None:  # a copy of its inputs
                self._fail(request, request.error)
            elif self._has_lost_inputs(request):
                self._fail_on_device(request, self._lost_inputs())
            elif self._is_cut_short(request):
                self._fail_on_device(request, self._cut_short())
            else:
                again_in_line.append(request)
        self._repeated += len(again_in_line)
        self.admission.recall(again_in_line, lambda request: (request.priority, request.deadline))
        for request in self.admission.pending():
            if self._has_lost_inputs(request) or self._is_cut_short(request):
                self.admission.withdraw(request)
                lost = self._lost_inputs() if self._has_lost_inputs(request) else self._cut_short()
                self._fail_on_device(request, lost)
        self._staging = []
        self._to_save = [*self._handed_over, *self.admission.pending()]

    def _has_lost_inputs(self, request: Request) -> bool:
        return request.ties is not None and bool(request.ties.residents)

    def _is_cut_short(self, request: Request) -> bool:
        # The thread was interrupted between the time when its inputs were taken and the end of their copy, or when its
        # outcome was being made.
        return not (request.abandoned or request.has_inputs)

    def _cut_short(self) -> AioascendError:
        return again(self._retired_for or AioascendError("the run was cut short"))

    def _lost_inputs(self) -> StaleLease:
        return self._core.gone(
            f"inputs of this request were on {self._core.name}, whose context was rebuilt before the run was over, and "
            "went with it: run again what they came from",
            self._retired_from,
        )

    def save(self) -> None:
        """Copy the inputs that lie in pinned memory out of it; control thread."""
        for request in self._to_save:
            request.save()

    def dismantle(self) -> None:
        """Give back everything in the context; control thread. A second call does nothing."""
        self.timing.leave_context()
        equipment, self._equipment = self._equipment, None
        if equipment is not None:
            equipment.close()
        self.leases.close()
        self.device_spares.close()
        self.pinned_spares.close()

    def restore(self) -> None:
        """Load the model again and make every buffer anew; control thread."""
        core = self._core
        self._equipment = core.memory.retrying(Equipment, core, self._recipe, self.signature)
        try:
            self.device_spares.restock()
        except BaseException:
            self.dismantle()
            raise

    def resume(self) -> None:
        """Go on, with new equipment if there is any."""
        self._renew()
        self._held = False
        self.leases.resume(None)
        self._settle()

    def _renew(self) -> None:
        for request in self._to_save:
            self._leave_lease(request)
        self._to_save = []
        self._refused = None
        self.device_spares.renew()
        self.pinned_spares.renew()
        equipment = self._equipment
        if equipment is not None and equipment is not self._fitted:
            self._equip(equipment)

    def refuse(self, error: AioascendError) -> None:
        """Fail everything that waits, and whatever comes until `resume`."""
        self._held = True
        self._refused = error
        self.leases.resume(error)
        self._to_save = []
        for request in self.admission.pending():
            if self.admission.withdraw(request) is Where.STAGING:
                request.error = again(error)
            else:
                request.buffer = None
                self._fail_on_device(request, again(error))
        self._core.settle(self._settle)

    def fail(self, request: Request, error: AioascendError) -> None:
        """A request that was handed over has failed."""
        self._handed_over.pop(request, None)
        self._fail_on_device(request, error)
        self._core.settle(self._settle)

    def run_alone(self, request: Request, then: Callable[[], None]) -> None:
        """Run a request that was handed over, with nothing else on the device."""
        self._renew()
        if request.abandoned or self._has_lost_inputs(request):
            self._handed_over.pop(request)
            if request.abandoned:
                self._give_up(request)
            else:
                self._fail_on_device(request, self._lost_inputs())
            self._core.settle(then)
            return
        arrays = request.claim()
        assert arrays is not None
        self._repeated += 1
        self._alone = (request, then)
        self.admission.seize(request, 0, time.monotonic())
        request.buffer = self._staging.pop()
        self._copy_in_elsewhere(request, arrays)

    def _launch_alone(self, request: Request) -> None:
        if self._alone is None or self._alone[0] is not request:
            return  # the context has died again meanwhile, and the request was handed over again
        if request.error is not None:
            self.admission.finished(request, time.monotonic())
            self.admission.drained(request)
            self._free_input(request)
            self._end_alone(request)
            self._fail(request, request.error)
        else:
            self._lanes[0].launch(request)

    def _end_alone(self, request: Request) -> None:
        assert self._alone is not None
        then = self._alone[1]
        self._alone = None
        self._handed_over.pop(request, None)
        self._core.settle(then)

    def _leave_lease(self, request: Request) -> None:
        """A request over memory that its caller has filled has been copied out of it."""
        self.leases.ended(request)
        request.lease, request.in_place, request.buffer = None, False, None
