"""From a queued request to its outcome: what happens on the device thread for one session.

With the queue (`scheduling.Admission`), the pinned input buffers and the lanes of `Tenant`, it reacts to posts and
completions, and at the end of every burst asks the queue what to do next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from ..errors import (
    AioascendError,
    ExecutionFailed,
    ForkedProcess,
    OutOfMemory,
    Overloaded,
    SessionClosed,
    StaleLease,
    again,
)
from ..memory.copying import copy_array
from ..model import Outputs
from ..scheduling.admission import NOTHING, QueueFull, Where
from ..telemetry.marks import Marks, now
from .buffers import OutputBuffer
from .core import DeviceCore
from .equipment import Recipe
from .keeper import Keeper
from .place import Place
from .request import Array, Request, too_late

__all__ = ["Pipeline"]

_HELD_S = 0.01  # between two looks at whether a lane takes a run again

logger = logging.getLogger("aioascend.runtime")


class Pipeline(Keeper):
    """The way of a session's requests; built and closed on the control thread."""

    def __init__(self, core: DeviceCore, recipe: Recipe, *, max_waiting: int, max_waiting_bytes: int) -> None:
        super().__init__(core, recipe, max_waiting=max_waiting, max_waiting_bytes=max_waiting_bytes)
        signature = self.signature
        self.input_index = signature.input_index()
        self._output_specs, self._synthetic = signature.outputs, signature.synthetic
        self._post, self._touch, self._later = core.post, core.touch, core.settle
        self.rouse = core.rouse  # a request is about to be submitted
        self._offered, self._settled = self._offer, self._settle  # bound once, not for every request
        self._announces = core.driver.announces
        self._closing: str | None = None
        self._on_idle: Callable[[], None] | None = None
        self._ended = False  # runs were made to fail, because the session closes
        self.move_in()

    # -- from any thread --------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Hand a checked request to the device thread; from any thread."""
        recorder = self.recorder
        if recorder is not None:
            request.marks = recorder.begin(request.number, request.patient)
        self._post(self._offered, request)

    def turn_away(self) -> None:
        """Count a request whose time was up when it came; from any thread."""

        def count(_: None) -> None:
            self.counters.expired += 1

        self._core.post(count, None)

    def abandon(self, request: Request, *, expired: bool = False) -> None:
        """Nobody waits for this request any more, because its time is up if `expired`; from any thread.

        What has not been launched never reaches the device. `request.taken` is set once its arrays are not read any
        more, which is at once unless a copy of them is under way.
        """
        request.expired = expired
        request.abandoned = True
        if request.claim() is not None:
            request.take(lambda port: port.wake())
        try:
            self._core.post(self._withdraw, request)
        except (SessionClosed, ForkedProcess):
            pass

    # -- the queue --------------------------------------------------------------------------------------------------

    def _offer(self, request: Request) -> None:
        self._live.add(request)
        odd = request.lease is not None or request.abandoned or request.ties is not None
        if (odd or self._closing is not None or self._refused is not None) and not self._may_enter(request):
            return
        try:
            self.admission.offer(
                request, request.priority, request.nbytes, request.deadline, request.patient, request.in_place
            )
        except QueueFull as full:
            self.counters.refused += 1
            self._fail(request, self._overloaded(full))
            return
        self._later(self._settled)

    def _may_enter(self, request: Request) -> bool:
        """Whether a request may join the queue; one that may not has its outcome."""
        if request.lease is not None:
            request.lease.unfinished.add(request)
        if self._closing is not None and request not in self._parked:
            self._fail(request, SessionClosed(self._closing))
            return False
        if self._refused is not None:
            self._fail_on_device(request, again(self._refused))
            return False
        if request.lease is not None:
            try:
                self.leases.check(request.lease, request.buffer)
            except StaleLease as stale:
                self._fail(request, stale)
                return False
        if request.abandoned:
            self._give_up(request)
            return False
        return request.ties is None or self._tied(request, request.ties)

    def _overloaded(self, full: QueueFull) -> Overloaded:
        admission = self.admission
        after = "" if full.retry_after is None else f"; those before it are started in about {full.retry_after:.3f} s"
        return Overloaded(
            f"the queue is full: {full.waiting} requests wait (max_waiting={admission.max_waiting}), which hold "
            f"{full.waiting_bytes} bytes of input (max_waiting_bytes={admission.max_waiting_bytes}){after}. Try again "
            "later, raise the bound that is reached, or use submit or map, which wait for a place",
            retry_after=full.retry_after,
        )

    def _withdraw(self, request: Request) -> None:
        if request.done:
            return
        where = self.admission.withdraw(request)
        if where is Where.STAGED:
            self._free_input(request)
        if where in (Where.WAITING, Where.STAGED):
            self._give_up(request)
            self._core.settle(self._settle)
        elif self._closing is not None:
            self._core.settle(self._settle)

    def _expire(self, request: Request, where: Where) -> None:
        """It cannot be done in time any more, and was taken out of the queue."""
        if not request.abandoned:  # else its withdrawal is on its way
            request.expired = True
        if where is Where.STAGING:
            request.abandoned = True  # which stops the copy; what follows is done at its end
            return
        if where is Where.STAGED:
            self._free_input(request)
        self._give_up(request)

    def _settle(self) -> None:
        """The end of a burst: confirm what the device finished, then do whatever can be done next."""
        admission, now = self.admission, time.monotonic()
        for index, lane in enumerate(self._lanes):
            if lane.done or lane.suspects:
                for place in lane.confirm():
                    self._conclude(index, place, now)
            if lane.upset:
                lane.upset = held = lane.held
                admission.hold(index, held)
        while not self._held and (decision := admission.decide(now)) is not NOTHING:
            for request, where in decision.expired:
                self._expire(request, where)
            for request in decision.stage:
                self._stage(request)
            together = len(decision.launch) > 1
            for request, index in decision.launch:
                if not request.done.is_set:  # else its copy has just failed
                    self._lanes[index].launch(request, together=together)
        for lane in self._lanes:
            if lane.unarmed or lane.train:
                lane.arm()
        if self._held:
            self._core.recovery.proceed()
        if self._closing is not None and not self._ended and self._nobody_waits():
            self.end_runs()
        if self._on_idle is not None and self.admission.idle and not (self._handed_over or self._parked):
            on_idle, self._on_idle = self._on_idle, None
            on_idle()

    def _nobody_waits(self) -> bool:
        """Whether all that is left are runs on the device that their callers have given up."""
        if self.admission.waiting or self.admission.staging or not self.admission.running:
            return False
        if self._parked or self._unsure:
            return False
        requests = [place.request for lane in self._lanes for place in lane.running_places()]
        return all(request is None or request.abandoned for request in requests)

    # -- copying in -------------------------------------------------------------------------------------------------

    def _stage(self, request: Request) -> None:
        arrays = request.claim()
        if arrays is None:  # abandoned a moment ago; its withdrawal is on its way
            if self._input_inline:
                self.admission.copy_failed(request)
            else:
                self.admission.staging_failed(request)
            self.admission.staging_freed()
            self._give_up(request)
            return
        request.buffer = self._staging.pop()
        if not self._input_inline:
            self._copy_in_elsewhere(request, arrays)
            return
        self._copy_in(request, arrays)
        if request.error is None and not request.abandoned:
            request.take(self._touch)
            return
        self.admission.copy_failed(request)
        self._free_input(request)
        if request.abandoned:
            self._give_up(request)
        else:
            self.counters.failed += 1
            self._end(request)

    def _copy_in_elsewhere(self, request: Request, arrays: list[Array]) -> None:
        def over(copied: Future[None]) -> None:
            error = copied.exception()
            if error is not None:  # the worker was interrupted
                request.error = _not_copied("inputs", error)
            self._core.post(self._copied_in, request)

        self._core.copy(self._copy_in, request, arrays).add_done_callback(over)

    def _copy_in(self, request: Request, arrays: list[Array]) -> None:
        assert request.buffer is not None
        marks = request.marks
        stop = None if self._input_inline else lambda: request.abandoned
        if marks is not None:
            marks.copied_from = now()
        if self._announces:
            request.buffer.block.host_access(write=True)
        try:
            views = request.buffer.views if request.ties is None else request.ties.not_resident(request.buffer.views)
            for view, array in zip(views, arrays, strict=True):
                if not copy_array(view, array, stop):
                    return
        except (
            BaseException
        ) as error:  # a memory-mapped file that shrank, a lying array subclass: the request's own fault
            request.error = _not_copied("inputs", error)
        if marks is not None:
            marks.copied_to = now()

    def _copied_in(self, request: Request) -> None:
        request.take(self._core.touch)
        if request in self._handed_over:
            self._launch_alone(request)
            self._core.settle(self._settle)
            return
        abandoned = request.abandoned
        if abandoned:
            self.admission.withdraw(request)  # the copy may have stopped half-way
        if request.error is not None and not abandoned:
            self.admission.staging_failed(request)
            self._free_input(request)
            self.counters.failed += 1
            self._fail(request, request.error)
        elif not self.admission.staged(request):
            self._free_input(request)
            self._give_up(request)
        self._core.settle(self._settle)

    def _free_input(self, request: Request) -> None:
        buffer, request.buffer = request.buffer, None
        if buffer is not None and not request.in_place:
            self._staging.append(buffer)
            self.admission.staging_freed()

    # -- out of memory -----------------------------------------------------------------------------------------------

    def _may_run_again(self, request: Request) -> bool:
        ties = request.ties
        if ties is not None and (request.error is not None or (ties.kept is not None and ties.kept.readers)):
            return False  # it is not its own error, or others may be reading what it was to write
        return not (request.retried or request.abandoned or self._ended) and self._closing is None

    def _run_again(self, request: Request, index: int) -> None:
        """The device had no memory for a run: once more, after idle memory was given back. It keeps its place."""
        request.retried = True
        self._repeated += 1
        self._handed_over[request] = None

        def relieved(_: None = None) -> None:
            # Else the context is being rebuilt or was, and it is in line again.
            if request in self._handed_over and self._lanes:
                if self._lanes[index].held:
                    self._core.later(_HELD_S, relieved)
                    return
                del self._handed_over[request]
                self._lanes[index].launch(request)
                self._core.settle(self._settle)

        def relieve() -> None:
            try:
                self._core.memory.relieve()
            finally:
                self._core.post(relieved, None)

        self._core.control(relieve)

    # -- coming out -------------------------------------------------------------------------------------------------

    def _conclude(self, index: int, place: Place, now: float) -> None:
        request, outlet = place.request, place.outlet
        assert request is not None
        assert outlet is not None
        ties = request.ties
        if ties is not None and not self._concluded(index, place, request, ties):
            return
        error: Exception | None = place.error or request.error
        if place.timing is not None:
            place.timing.told(request.marks, index)
        lane = self._lanes[index]
        lane.free(place)
        if error is not None and isinstance(error, OutOfMemory) and self._may_run_again(request):
            lane.outlets.append(outlet)
            self._run_again(request, index)
            return
        if request.buffer is not None:
            self._free_input(request)
        # Looked at once: its caller may give it up at any moment, and what follows has to be of one mind.
        abandoned = request.abandoned
        good = error is None and not abandoned
        kept = None if ties is None or not good else self._keep(request, ties, outlet)
        elsewhere = not self._output_inline and good and kept is None
        self.admission.finished(request, now, drained=not elsewhere)
        if self._alone is not None and self._alone[0] is request:
            self._end_alone(request)
        if error is not None:
            ended = self._ended and self._closing is not None and isinstance(error, ExecutionFailed)
            failure = SessionClosed(f"{self._closing}, and the run was ended") if ended else error
            self._fail_on_device(request, failure)
        elif abandoned:
            self._give_up(request)
        elif kept is not None:
            outlet = self._succeed_with(request, kept)
        elif elsewhere:
            self._copy_out_elsewhere(request, outlet, index)
            return
        else:
            if self._announces:
                outlet.block.host_access(write=False)
            try:
                arrays = [view.copy() for view in outlet.views]
            except Exception as failure:
                self._fail_on_device(request, _not_copied("outputs", failure))
            else:
                self._succeed(request, tuple(arrays))
        lane.outlets.append(outlet)

    def _copy_out_elsewhere(self, request: Request, outlet: OutputBuffer, index: int) -> None:
        def copy() -> list[Array]:
            arrays: list[Array] = []
            outlet.block.host_access(write=False)
            for view in outlet.views:
                array = np.empty_like(view)
                copy_array(array, view, lambda: request.abandoned)
                arrays.append(array)
            return arrays

        def over(copied: Future[list[Array]]) -> None:
            self._core.post(self._copied_out, (request, outlet, index, copied))

        self._core.copy(copy).add_done_callback(over)

    def _copied_out(self, result: tuple[Request, OutputBuffer, int, Future[list[Array]]]) -> None:
        request, outlet, index, copied = result
        error = copied.exception()
        if error is not None:  # no memory, most likely: the request must still get its outcome
            self._fail_on_device(request, _not_copied("outputs", error))
        elif request.abandoned:
            self._give_up(request)
        else:
            self._succeed(request, tuple(copied.result()))
        self._outlet_freed(index, outlet, request)
        self._core.settle(self._settle)

    def _outlet_freed(self, index: int, outlet: OutputBuffer, request: Request) -> None:
        if self._lanes:  # else it goes with its context
            self._lanes[index].outlets.append(outlet)
        self.admission.drained(request)

    def _succeed(self, request: Request, arrays: tuple[Array, ...]) -> None:
        self.counters.completed += 1
        request.outputs = Outputs(arrays, self._output_specs, self.output_index, self._synthetic)
        if request.marks is None and request.lease is None and request.ties is None:
            request.done.set(self._touch)  # all that is left to do: its inputs were taken
            self._live.discard(request)
        else:
            self._end(request)

    def _give_up(self, request: Request) -> None:
        """The end of a request that nobody waits for, or that was too late."""
        if request.expired:
            self.counters.expired += 1
            request.error = request.error or too_late(request.timeout, queued=not request.abandoned)
        else:
            self.counters.cancelled += 1
        self._end(request)

    def _fail_on_device(self, request: Request, error: Exception) -> None:
        self.counters.failed += 1
        self._fail(request, error)

    def _fail(self, request: Request, error: Exception) -> None:
        request.error = error
        self._end(request)

    def _end(self, request: Request) -> None:
        request.claim()  # let go of the caller's arrays
        if not request.done.is_set:
            if request.marks is not None:
                self._note_end(request, request.marks)
            if request.ties is not None:
                self._untie(request, request.ties)
            if not request.is_taken:
                request.take(self._touch)
            request.done.set(self._touch)
            if request.lease is not None:
                self.leases.ended(request)
        self._live.discard(request)

    def _note_end(self, request: Request, marks: Marks) -> None:
        marks.done = now()
        if request.outputs is not None:
            marks.outcome = "completed"
        else:
            marks.outcome = "expired" if request.expired else "failed" if request.error is not None else "cancelled"
        if self.recorder is not None:
            self.recorder.add(marks)

    # -- closing ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Tear everything down; control thread, when `when_idle` has reported."""
        self._core.memory.remove(self.leases.give_back_idle)
        self._core.memory.remove(self.pinned_spares.give_back_idle)
        self._core.recovery.leave(self)
        self._core.quietly(self.timing.end)
        self.dismantle()

    def end_runs(self) -> None:
        """Have what runs on the device fail at once, where it can be made to; device thread, while closing."""
        self._ended = True
        for lane in self._lanes:
            lane.end_runs()

    def stop_accepting(self, reason: str, *, drain: bool, when_idle: Callable[[], None]) -> None:
        """Refuse new requests with `reason`, give up the queued ones unless `drain`, and report when nothing is left.

        Device thread. What runs on the device is waited for in any case: the memory is the device's until then. Runs
        that nobody waits for any more are ended where that can be done.
        """
        self._closing = reason
        self._on_idle = when_idle
        self.leases.stop(reason)
        if not drain:
            for request in list(self._parked):
                del self._parked[request]
                request.error = SessionClosed(reason)
                request.abandoned = True
                self._give_up(request)
            for request in self.admission.pending():
                request.error = SessionClosed(reason)
                request.abandoned = True
                where = self.admission.withdraw(request)
                if where is Where.STAGED:
                    self._free_input(request)
                if where is not Where.STAGING:
                    self._give_up(request)
        self._core.settle(self._settle)


def _not_copied(what: str, error: BaseException) -> AioascendError:
    return AioascendError(f"copying the {what} failed: {type(error).__name__}: {error}")
