"""One loaded instance of a model with its three streams, its places and its pinned output buffers.

While one request computes, the next is copied in and the one before is copied out: each stage has a stream, and events
order a request's way through them on the device. A *place* holds what a request needs there: device memory for inputs
and outputs, the dataset pair over it and the events. Everything is made at open, so that a launch allocates nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AclError, ExecutionFailed, StaleLease
from ..memory.layout import plan
from ..model import LoadedModel
from ..scheduling.health import Severity
from ..scheduling.watchdog import Sight
from .buffers import OutputBuffer
from .core import DeviceCore
from .draining import drain
from .place import Place
from .request import Request
from .residents import severity, shared_by
from .timing import PlaceEvents

if TYPE_CHECKING:
    from .equipment import Recipe
    from .results import DeviceResult
    from .supplies import Supplies

__all__ = ["Extra", "Lane"]

_COPY_IN, _COMPUTE, _COPY_OUT = range(3)
_LATE_S = 0.0005  # how much later than its end a run may be told, to save the callbacks of those before others
_ABORT_MS = 200  # how long a stream may take to be empty after it was aborted
_SYNC_MS = 500  # how long the control thread waits for a stream without looking up


@dataclass(frozen=True)
class Extra:
    """One more place and one more pinned output buffer for a lane."""

    place: Place
    outlet: OutputBuffer


class Lane:
    """A model instance on three streams; built and torn down on the control thread, otherwise used on the device's."""

    def __init__(
        self, core: DeviceCore, model: LoadedModel, recipe: Recipe, stack: ExitStack, supplies: Supplies
    ) -> None:
        driver = core.driver
        self._supplies = supplies
        self._signature = signature = model.signature
        self._core = core
        self._later = core.settle
        self._driver = driver
        self._model_id = model.model_id
        inputs, outputs = plan(signature.input_nbytes), plan(signature.output_nbytes)
        self._inputs, self._input_nbytes, self._output_nbytes = inputs, inputs.nbytes, outputs.nbytes
        self._free: list[Place] = []
        self._running: deque[Place] = deque()  # in the order of launch, which is the order of every stream
        self.done: list[Place] = []  # told to be over, and not confirmed
        self.suspects: deque[Place] = deque()  # to be run again, each alone
        self.upset = False  # whether it may be `held`: to be looked at
        self._repeating = False
        self._draining = 0  # synchronisations under way on the control thread
        self._dead = False  # the whole context has failed: the recovery will come
        self._retired = False
        self._hung = False  # its streams make no progress and are being aborted
        self._ended = 0
        self.unarmed: list[tuple[Place, int]] = []  # queued, with the runs that they are, and no callback behind them
        self._most_unarmed = 1
        self.train: list[Place] = []  # copied in together, and not queued to run
        self._run_s = 1.0  # what a run takes of the pipeline's time, as far as known
        self._told_at = 0.0
        self._limit = recipe.stall_timeout
        self._watch = core.recovery.watch
        self.repeated = 0
        self.settle: Callable[[], None] = lambda: None  # set by the pipeline: what follows a burst of completions
        self.live: Collection[Request] = ()  # the same: the session's requests that have no outcome
        self.outlets = [
            OutputBuffer(supplies.pinned(outputs.nbytes, stack), outputs, signature.outputs, supplies)
            for _ in range(recipe.outlets)
        ]
        self._streams: list[int] = []
        self._attached = False
        stack.callback(self._destroy_streams)
        for _ in range(3):
            self._streams.append(driver.create_stream())
        self._h2d, self._compute, self._d2h = self._stages = tuple(self._streams)
        self.places = [Place(core, inputs, outputs, stack, supplies) for _ in range(recipe.depth)]
        self._free.extend(self.places)
        core.attach(self._d2h)
        self._attached = True
        stack.callback(self.finish_streams)

    def make_extra(self, stack: ExitStack) -> Extra:
        """Make one more place and outlet; control thread."""
        core, signature = self._core, self._signature
        inputs, outputs = plan(signature.input_nbytes), plan(signature.output_nbytes)
        supplies = self._supplies
        outlet = OutputBuffer(supplies.pinned(outputs.nbytes, stack), outputs, signature.outputs, supplies)
        return Extra(Place(core, inputs, outputs, stack, self._supplies), outlet)

    def add(self, extra: Extra) -> None:
        """Use it from now on."""
        self.places.append(extra.place)
        self._free.append(extra.place)
        self.outlets.append(extra.outlet)

    def take(self, extra: Extra) -> None:
        """Stop using it; nothing of the lane is in use."""
        self.places.remove(extra.place)
        self._free.remove(extra.place)
        self.outlets.remove(extra.outlet)

    def finish_streams(self) -> None:
        """Wait for the streams and end the completions on them; control thread. A second call does nothing."""
        core = self._core
        if self._attached:
            self._attached = False
            for stream in reversed(self._streams):
                core.teardown.finish_stream(stream)
            core.quietly(core.detach, self._d2h)
            for stream in core.teardown.stuck.intersection(self._streams):
                core.teardown.destroy_stream(stream)
                self._streams.remove(stream)

    def _destroy_streams(self) -> None:
        while self._streams:
            self._core.quietly(self._driver.destroy_stream, self._streams.pop())

    # -- launching --------------------------------------------------------------------------------------------------

    def launch(self, request: Request, *, together: bool = False) -> None:
        """Queue a request's way through the three streams; never blocks and never raises.

        The caller sees to it that there is a free place and a free outlet. If a call fails, the request is failed, and
        its place comes back like any other once the streams have passed what was queued. `together` with others that
        follow: brief runs share the events between the streams, and are complete when `arm` is called.
        """
        place = self._free.pop()
        place.request, place.outlet = request, self.outlets.pop()
        self._running.append(place)
        if self._hung:
            return  # its streams are being aborted; what runs is queued anew then, and must not be there twice
        driver = self._driver
        timing = place.timing
        try:
            if not driver.has_ex_events:
                self._renew_events(place)
            plain = timing is None and request.ties is None and not place.binding.foreign
            together = together and plain and self._most_unarmed > 1 and driver.has_ex_events
            if self.train and not together:  # first, as every stream is in the order of launch
                self._queue_train()
            if plain:
                buffer = request.buffer
                assert buffer is not None
                target, source, nbytes = place.inputs.address, buffer.block.address, self._input_nbytes
                if together:
                    driver.memcpy_to_device(target, nbytes, source, nbytes, self._h2d)
                    self.train.append(place)
                    if len(self.train) >= self._most_unarmed:
                        self._queue_train()
                    return
                driver.queue_in(target, source, nbytes, self._h2d, place.copied_in, self._compute)
            else:
                self._bring_in(place, request, timing)
            self._queue_run(place)
        except Exception as error:
            self._not_launched(place, driver.as_error(error, "a launch"))

    def _queue_train(self) -> None:
        """Queue the runs of those whose inputs are being copied in together, and the way out of their outputs."""
        train, self.train = self.train, []
        if self._dead:
            return  # whoever comes finds them among those that were launched
        driver, compute, d2h, nbytes = self._driver, self._compute, self._d2h, self._output_nbytes
        last = train[-1]
        try:
            driver.record_event(last.copied_in, self._h2d)
            driver.stream_wait_event(compute, last.copied_in)
        except Exception as error:
            self._none_launched(train, error)
            return
        queued = []
        for place in train:
            place.last = last
            try:
                driver.execute_async(self._model_id, place.input_dataset, place.output_dataset, compute)
            except Exception as error:
                self._none_launched([place], error)
            else:
                place.queued = True
                queued.append(place)
        try:
            driver.record_event(last.computed, compute)
            driver.stream_wait_event(d2h, last.computed)
        except Exception as error:
            self._none_launched(queued, error)
            return
        for place in queued:
            outlet = place.outlet
            assert outlet is not None
            try:
                driver.memcpy_to_host(outlet.block.address, nbytes, place.outputs.address, nbytes, d2h)
            except Exception as error:
                self._none_launched([place], error)
            else:
                self.unarmed.append((place, place.generation))
        if len(self.unarmed) >= self._most_unarmed:
            self.arm()

    def _none_launched(self, places: list[Place], error: Exception) -> None:
        for place in places:
            if not self._dead:
                self._not_launched(place, self._driver.as_error(error, "a launch"))

    def _bring_in(self, place: Place, request: Request, timing: PlaceEvents | None) -> None:
        """Queue the copies of what is not on the device yet, and have the compute stream wait for them."""
        driver, h2d, ties = self._driver, self._h2d, request.ties
        if timing is not None:
            timing.launched(request.marks)
            timing.record(0, h2d)
        if ties is not None or place.binding.foreign:
            place.binding.bind(place.outputs.address, {} if ties is None else ties.residents)
        buffer = request.buffer
        if buffer is None:
            request.take(self._core.touch)  # who submitted it has waited for this place
        elif ties is None or not ties.residents:
            driver.memcpy_to_device(
                place.inputs.address, self._input_nbytes, buffer.block.address, self._input_nbytes, h2d
            )
        else:
            for index, (offset, size) in enumerate(zip(self._inputs.offsets, self._inputs.sizes, strict=True)):
                if index not in ties.residents:
                    target, source = place.inputs.address + offset, buffer.block.address + offset
                    driver.memcpy_to_device(target, size, source, size, h2d)
        if timing is not None:
            timing.record(1, h2d)
        driver.record_event(place.copied_in, h2d)
        driver.stream_wait_event(self._compute, place.copied_in)

    def _not_launched(self, place: Place, error: AclError) -> None:
        self._watch()
        if severity(error):
            self._die(error, [one for one in (*self.done, *self._running) if one.queued])
        else:
            place.error = error
            self._drain(place)

    def _queue_run(self, place: Place) -> None:
        """Queue the run of a place whose inputs are, or will be, on the device, and the way out of its outputs."""
        driver, compute, d2h = self._driver, self._compute, self._d2h
        outlet, request = place.outlet, place.request
        assert outlet is not None
        assert request is not None
        timing, ties = place.timing, request.ties
        if ties is not None:
            ties.run_queued()
            for source in ties.sources:
                if source.event:  # else the host has seen the end of that run
                    driver.stream_wait_event(compute, source.event)
        if timing is not None:
            timing.record(2, compute)
        driver.execute_async(self._model_id, place.input_dataset, place.output_dataset, compute)
        place.queued = True
        place.last = place
        if timing is None and ties is None:
            target, origin = outlet.block.address, place.outputs.address
            driver.queue_out(compute, place.computed, target, origin, self._output_nbytes, d2h)
        else:
            self._bring_out(place, outlet, timing, None if ties is None else ties.kept)
        group = self.unarmed
        group.append((place, place.generation))
        if len(group) >= self._most_unarmed:
            self.arm()

    def _bring_out(
        self, place: Place, outlet: OutputBuffer, timing: PlaceEvents | None, kept: DeviceResult | None
    ) -> None:
        """Queue the copy of what is not to stay on the device, behind the run."""
        driver, d2h, nbytes = self._driver, self._d2h, self._output_nbytes
        if timing is not None:
            timing.record(3, self._compute)
        driver.record_event(place.computed, self._compute)
        driver.stream_wait_event(d2h, place.computed)
        if timing is not None:
            timing.record(4, d2h)
        if kept is None:
            driver.memcpy_to_host(outlet.block.address, nbytes, place.outputs.address, nbytes, d2h)
        else:
            kept.run_queued(place.outputs, place.computed)
        if timing is not None:
            timing.record(5, d2h)

    def arm(self) -> None:
        """Have the runs that were queued since the last time told when the latest of them is over.

        A stream is in order, so that its end is the end of those before it.
        """
        if self.train:
            self._queue_train()
        group, self.unarmed = self.unarmed, []
        if not group or self._dead or self._hung:  # then what follows has its own account of what runs
            return
        self._watch()
        armed_at = time.monotonic()

        def reached(error: AclError | None) -> None:
            now = time.monotonic()
            self._learn((now - max(armed_at, self._told_at)) / len(group))
            self._told_at = now
            self._later(self.settle)
            running, done = self._running, self.done
            if len(self.live) == 1:
                next(iter(self.live)).done.rouse()  # a lone caller wakes up while we conclude
            for place, generation in group:
                if error is None and generation == place.generation and running and running[0] is place:
                    running.popleft()
                    done.append(place)
                    self._ended += 1
                else:
                    self.finished(place, generation, error)

        try:
            self._core.arm(self._d2h, reached)
        except Exception as error:
            place, _ = group.pop()
            self._not_launched(place, self._driver.as_error(error, "acl.rt.launch_callback"))
            for other, _ in group:  # nobody will tell of them: wait for them as well
                if not self._dead:
                    self._drain(other)

    def _learn(self, seconds: float) -> None:
        """A run has taken so long: for how many one callback may stand without the first being told much later.

        The figure follows a slow run at once and fast ones bit by bit, as those may only have been told late.
        """
        self._run_s = max(seconds, 0.9 * self._run_s, 1e-6)
        self._most_unarmed = max(1, int(_LATE_S / self._run_s))

    def _renew_events(self, place: Place) -> None:
        # Old CANN: a plain event serves one dependency only (pyACL reference §7). The place was free, so that nothing
        # queued refers to its old ones; those go last, so that the place keeps events that exist whatever fails.
        driver = self._driver
        fresh, old = driver.create_event(), place.copied_in
        place.copied_in = fresh
        driver.destroy_event(old)
        fresh, old = driver.create_event(), place.computed
        place.computed = fresh
        driver.destroy_event(old)

    def _drain(self, place: Place) -> None:
        """Have the control thread wait for the streams: what was queued for `place` may still be under way.

        Synchronising takes the status of whatever failed there, once. Until that status is back here nothing is
        confirmed and nothing launched, and then it goes to everybody it may belong to.
        """
        self._draining += 1
        self.upset = True
        self._core.control(self._synchronize, place, place.generation)

    def _synchronize(self, place: Place, generation: int) -> None:
        failures: list[AclError] = []
        empty = True
        for stream in (self._h2d, self._compute, self._d2h):
            empty, failed = drain(self._driver, stream, lambda: _SYNC_MS, self._waits)
            failures += failed
            if not empty:
                break
        self._core.post(self._synchronized, (place, generation, empty, failures))

    def _waits(self) -> bool:
        return not (self._retired or self._hung)

    def _synchronized(self, result: tuple[Place, int, bool, list[AclError]]) -> None:
        place, generation, empty, failures = result
        if self._retired:
            return
        self._draining -= 1
        for error in failures:
            if severity(error):
                self._die(error, [one for one in (*self.done, *self._running) if one.queued])
                return
            blamed = [other for other in (*self.done, *self._running) if other.error is None]
            for other in blamed:
                other.error = shared_by(error, len(blamed))
        if not empty and not self._hung:  # only failures, again and again
            self._die(failures[-1], [], Severity.CONTEXT)
        elif empty and generation == place.generation:  # else the abort has given, or will give, its outcome
            self.finished(place, generation, None)

    # -- completion -------------------------------------------------------------------------------------------------

    def finished(self, place: Place, generation: int, error: AclError | None) -> None:
        """The way of a place is over, or with an error may be; what it is worth is asked once a burst, in `confirm`.

        Raises `StaleLease` when the place serves another request by now, whose memory this says nothing about.
        """
        if generation != place.generation:
            raise StaleLease(f"a completion of run {generation} of a place came in its run {place.generation}")
        if error is not None:
            if severity(error):
                self._die(error, [one for one in (*self.done, *self._running) if one.queued])
                return
            place.error = place.error or error
            self._drain(place)
            return
        running = self._running
        if running and running[0] is place:  # in all but odd cases
            running.popleft()
        elif place in running:
            running.remove(place)
        else:
            return  # its stream was aborted meanwhile
        self._ended += 1
        self.done.append(place)
        self._core.settle(self.settle)

    def confirm(self) -> list[Place]:
        """The places whose outcome is known after this burst, each with the error of its run if there was one.

        A callback carries no status: only a query of the streams tells whether what ran on them failed, and it does
        not tell which task (pyACL reference §17, §22). Where several runs may be meant, each of them is repeated alone,
        from the inputs that its place still holds on the device, so that each request gets its own outcome. Any other
        failure is given to every request that it may belong to.
        """
        if self._draining:
            return []
        if not self._dead:
            self._ask_streams()
        if self._dead:
            return []
        done, self.done = self.done, []
        if not (self._repeating or self.suspects):
            return done
        known = []
        for place in done:
            if place.suspect and place.error is None and place.request is not None and not place.request.abandoned:
                self.suspects.append(place)
                if place.request.ties is not None:
                    place.request.ties.run_over()
            else:
                known.append(place)
        if self.suspects and not self._running:
            if self.suspects[0].may_write(self.settle):
                self._repeat(self.suspects.popleft())
        elif not self._running:
            self._repeating = False
        return known

    @property
    def held(self) -> bool:
        """Whether nothing may be launched: runs are being repeated alone, or the streams are being synchronised."""
        return self._repeating or self._draining > 0 or self._dead or self._hung

    def _repeat(self, place: Place) -> None:
        place.suspect = False
        self._running.append(place)
        self.repeated += 1
        try:
            if not self._driver.has_ex_events:
                self._renew_events(place)
            self._queue_run(place)
        except Exception as error:
            self._not_launched(place, self._driver.as_error(error, "a repeated launch"))

    def _ask_streams(self) -> None:
        for stage, error in self._driver.failures_of(self._stages):
            self._blame(error, stage)

    def _blame(self, error: AclError, stage: int) -> None:
        blamed = [place for place in self.done if place.error is None]
        unpassed: Place | None = None
        for place in self._running:
            if unpassed is not None and place.last is not unpassed:
                break  # later ones had not begun this stage when the failure was seen
            if place.error is None:
                blamed.append(place)
            if not self._passed(place.last, stage):
                unpassed = place.last
        if severity(error):
            self._die(error, blamed)
            return
        repeatable = stage == _COMPUTE and isinstance(error, ExecutionFailed) and len(blamed) > 1
        for place in blamed:
            if repeatable:
                place.suspect = self._repeating = self.upset = True
                place.forget_run()
            else:
                place.error = shared_by(error, len(blamed))

    def _passed(self, place: Place, stage: int) -> bool:
        if stage == _COPY_OUT:
            return True  # nothing tells: take it that it has
        try:
            return self._driver.event_recorded(place.copied_in if stage == _COPY_IN else place.computed)
        except Exception:
            return True

    # -- when it makes no progress -----------------------------------------------------------------------------------

    @property
    def sight(self) -> Sight:
        """What the watchdog sees."""
        busy = bool(self._running) and not self._retired
        request = self._running[0].request if busy else None
        ties = None if request is None else request.ties
        waits = ties is not None and not all(source.done for source in ties.sources)
        return Sight(self._ended, busy, self._limit, waits)

    def ask(self) -> None:
        """Nothing has come for a while: a dead context may have dropped the callbacks, so ask the streams."""
        if not (self._draining or self._dead or self._hung or self._retired):
            self._ask_streams()

    def hang(self) -> None:
        """The streams are going to be aborted: nothing that they tell counts any more."""
        self._hung = self.upset = True
        for place in self._running:
            place.forget_run(aborted=True)
        self._core.disarm_stream(self._d2h)

    def abort_streams(self) -> bool:
        """Abort the streams, where the product can; control thread. Whether they are empty now."""
        driver = self._driver
        try:
            # All of them, whatever became of the first.
            freed = [driver.abort_stream(stream) for stream in self._streams]
            return all(freed) and all(driver.synchronize_stream(stream, _ABORT_MS) for stream in self._streams)
        except AclError as error:
            self._core.recovery.report(error)
            return False

    def aborted(self, error: AclError) -> None:
        """The streams are free again: the run that hung has failed, and those behind it are queued anew."""
        self._hung = False
        self._ended += 1
        running, self._running = list(self._running), deque()
        again = []
        for place in running:
            assert place.request is not None
            if place is running[0]:
                place.error = place.error or error
            if place.error is None and not place.repeatable:
                place.error = shared_by(error, 1)
            if place.error is not None or place.request.abandoned:
                self.done.append(place)
            else:
                again.append(place)
        for place in again:
            request, outlet = place.request, place.outlet
            assert request is not None
            assert outlet is not None
            self.outlets.append(outlet)
            self.free(place)
            self.launch(request)
        self._core.settle(self.settle)

    # -- when the context is dead -----------------------------------------------------------------------------------

    def _die(self, error: AclError, suspects: list[Place], reach: Severity | None = None) -> None:
        """The whole context has failed: nothing is confirmed or launched any more until the recovery comes."""
        for place in suspects:
            place.suspect = True
        if not self._dead:
            self._dead = self.upset = True
            self._core.recovery.report(error, reach)

    def retire(self) -> list[Place]:
        """Let go of everything, and hand over the places that were in use, oldest first; the lane is not used again.

        Where the failure was seen elsewhere, the streams are asked whether they have seen it too.
        """
        if not self._dead and (self.done or self._running):
            self._ask_streams()
        self._retired = True
        return [*self.suspects, *self.done, *self._running]

    def running_places(self) -> deque[Place]:
        """The places on the device, oldest first."""
        return self._running

    def end_runs(self) -> None:
        """Have the runs of this model fail at once, where the device can; the model is not used afterwards."""
        self._driver.end_runs(self._model_id)

    def free(self, place: Place) -> None:
        """A confirmed place is free again."""
        place.clear()
        place.generation += 1
        self._free.append(place)
