"""Bringing a device back: what is done when its context is dead, the device is lost, or somebody asks for a rebuild.

The decisions are `scheduling.Health`'s. The work goes to and fro between the device thread, where everybody who has
something in the context (a `Resident`) lets go of it, and the control thread, where it is torn down and made anew.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ..driver import codes
from ..errors import (
    AclError,
    AioascendError,
    DeviceLost,
    ExecutionFailed,
    SessionClosed,
    StaleLease,
    add_note,
    again,
)
from ..scheduling.health import Health, HealthState, Severity, Step
from ..scheduling.watchdog import Watchdog
from ..telemetry.statistics import DeviceStatistics
from .request import Request
from .residents import Casualty, Resident, severity
from .teardown import Teardown

if TYPE_CHECKING:
    from .core import DeviceCore
    from .lane import Lane

__all__ = ["Recovery"]

logger = logging.getLogger("aioascend.runtime")

_TEARDOWN_S = 2.0
_PROBE_MS = 1000
_LOOK_S = 0.1  # between two looks at what runs
_ABORT_S = 3.0  # how long aborting the streams that hang may take
_MOST_RECALLS = 3  # a request that was on the device so often when its context died is given up


class Recovery:
    """The recovery of one device; its methods run on the device thread unless they say otherwise."""

    def __init__(self, core: DeviceCore) -> None:
        self._core = core
        self.health = Health()
        # What is kept of errors here are copies, and copies are what others are told: the frames of a traceback hold
        # requests and their results, or whatever those who were told are at.
        self.last_error: AclError | None = None
        self._residents: dict[Resident, None] = {}  # in the order in which they came
        self._broken: dict[Resident, AioascendError] = {}  # the device is well, but they could not be restored
        self._asked: list[Future[None]] = []
        self._draining = False
        self._suspects: deque[Casualty] = deque()  # to be run again, each alone on the device
        self._alone = False
        self._stopped = False
        self._retry = 0.25
        self._watchdog: Watchdog[Lane] = Watchdog()
        self._watching = False
        self._attempts = 0  # at aborting streams
        self._letting_go = False  # the device is lost, and copies to or from its pinned memory are under way
        self._interrupted: list[tuple[Request, AclError]] = []  # on their way to their session, perhaps
        self._interruption: AclError | None = None  # the latest, until the context is rebuilt

    # -- from any thread --------------------------------------------------------------------------------------------

    def join(self, resident: Resident) -> None:
        """Somebody has made something in the present context; control thread."""

        def enter() -> None:
            self._residents[resident] = None
            if self.health.state is not HealthState.HEALTHY or self._alone or self._draining:
                resident.hold()
            if not self.health.serves:
                resident.refuse(self.why())

        self._core.call(enter).result()

    def leave(self, resident: Resident) -> None:
        """It has given back everything; control thread."""

        def forget() -> None:
            self._residents.pop(resident, None)
            self._broken.pop(resident, None)

        try:
            self._core.call(forget).result()
        except SessionClosed:
            pass

    def check(self) -> None:
        """Raise what the device was lost with if it was, or could not be rebuilt; in any thread but the device's.

        Its answer comes from the device thread, where the outcome of the latest rebuild has arrived by then.
        """
        self._core.call(self._check).result()

    def _check(self) -> None:
        if not self.health.serves:
            raise self.why()

    def rebuild(self) -> Future[None]:
        """Rebuild the context, after what is on the device is done; joins a rebuild that is under way."""
        done: Future[None] = Future()
        self._core.post(self._ask, done)
        return done

    def report(self, error: AclError, reach: Severity | None = None) -> None:
        """Somebody has seen a failure; if it reaches beyond a task, the recovery begins with the next burst.

        `reach` is how far it does where that is more than its code says.
        """
        reach = severity(error) if reach is None else reach
        if reach is not Severity.TASK:
            self._core.post(self._observe, (again(error), reach))

    def statistics(self) -> tuple[DeviceStatistics]:
        """How the device is; from any thread."""
        error, health = self.last_error, self.health
        return (
            DeviceStatistics(
                name=self._core.name,
                state=health.state.value,
                generation=self._core.generation,
                rebuilds=health.rebuilds,
                last_error=None if error is None else str(error),
            ),
        )

    # -- what begins it ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The device is being closed; control thread."""
        self._stopped = True
        try:
            self._core.call(lambda: self._tell(SessionClosed(f"{self._core.name} is closed"))).result()
        except SessionClosed:
            pass  # it was never open

    def why(self) -> AclError:
        """What a request is refused with while the device is lost."""
        error = self.last_error
        assert error is not None
        fresh = again(error)
        add_note(fresh, f"{self._core.name} is lost; it is probed again and again, and used when it answers")
        return fresh

    def _ask(self, done: Future[None]) -> None:
        if self._stopped:
            done.set_exception(SessionClosed(f"{self._core.name} is closed"))
            return
        self._asked.append(done)
        step = self.health.ask()
        if step is Step.REBUILD:
            self._drain()
        elif step is Step.PROBE:
            self._work(step, None)

    def _drain(self) -> None:
        """A rebuild was asked for: it begins when nothing is on the device any more."""
        self._draining = True
        for resident in self._residents:
            resident.hold()
        self.proceed()

    def proceed(self) -> None:
        """Something on the device has ended: if a rebuild waits for that, it may go on."""
        if self._draining and all(resident.at_rest for resident in self._residents):
            self._begin(None)

    def _observe(self, seen: tuple[AclError, Severity]) -> None:
        error, reach = seen
        step = self.health.fault(reach, time.monotonic(), sum(one.worked for one in self._residents))
        if step is None and self._draining:
            self.last_error = error
            self._begin(error)  # a rebuild was waiting for the device; now it need not wait any more
        elif step is Step.REBUILD:
            self.last_error = error
            logger.warning("%s: its context is rebuilt after %s", self._core.name, error)
            self._begin(error)
        elif step is Step.QUARANTINE:
            self.last_error = error
            self._quarantine(error)

    # -- looking after what runs ------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Something has been queued on the device: look after it now and then until nothing is there."""
        if not self._watching:
            self._watching = True
            self._core.later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._watching = False
        sights = {lane: sight for resident in self._residents for lane, sight in resident.sights().items()}
        quiet, stalled = self._watchdog.look(time.monotonic(), sights)
        for lane in quiet:
            lane.ask()
        for point in list(self._core.points):
            point.ask()
        if stalled and self.health.stalled(draining=self._draining) is Step.ABORT:
            self._abort(stalled)
        if self._core.points or any(sight.busy for sight in sights.values()):
            self.watch()

    def _abort(self, lanes: list[Lane]) -> None:
        """Free the streams of lanes that hang, or give the device up."""
        self._attempts += 1
        attempt = self._attempts
        logger.warning("%s: %d stream(s) make no progress", self._core.name, len(lanes))
        for lane in lanes:
            lane.hang()

        def abort() -> None:
            freed = [lane.abort_streams() for lane in lanes]  # all of them, whatever became of the first
            self._core.post(lambda _: self._aborted(attempt, lanes, all(freed)), None)

        self._core.control(abort)
        self._core.later(_ABORT_S, lambda: self._aborted(attempt, lanes, False))

    def _aborted(self, attempt: int, lanes: list[Lane], freed: bool) -> None:
        if attempt != self._attempts or self.health.state is not HealthState.SUSPECT:
            return
        self._attempts += 1  # whichever comes second, the outcome or the end of the patience for it, says nothing new
        step = self.health.aborted(freed, time.monotonic())
        error = self._stalled(lanes[0], lost=not freed)
        self.last_error = error
        if step is Step.QUARANTINE:
            self._quarantine(error)
            return
        logger.warning("%s: the streams were aborted and go on", self._core.name)
        for lane in lanes:
            lane.aborted(again(error))
        if self._asked and self.health.ask() is Step.REBUILD:  # before the streams hung, or while they were aborted
            self._drain()

    def _stalled(self, lane: Lane, *, lost: bool) -> AclError:
        driver = self._core.driver
        what = (
            "the streams could not be aborted, so that the device counts as lost"
            if lost
            else "its streams were aborted, and the runs behind it are repeated"
        )
        info = codes.describe(codes.STREAM_SYNC_TIMEOUT)
        kind = DeviceLost if lost else ExecutionFailed
        detail = (
            f"nothing (this is aioascend's watchdog): a run has not ended within stall_timeout={lane.sight.limit} s; "
            f"{what}. Raise stall_timeout if a run of this model may take longer"
        )
        return kind(info.code, info.name, info.meaning, "waiting for a run", driver.device, detail)

    def interrupted(self, error: AclError, argument: object) -> None:
        """Something on the device thread was not done to its end: nobody may be left waiting for it."""
        self._interruption = error = again(error)
        if isinstance(argument, Request):
            self._interrupted.append((argument, error))
        self._core.post(self._observe, (error, Severity.CONTEXT))

    # -- letting go -------------------------------------------------------------------------------------------------

    def _begin(self, cause: AclError | None) -> None:
        """Everybody lets go of the device; then the context is rebuilt."""
        self._draining = self._alone = False
        core = self._core
        core.lose(cause)
        casualties = [casualty for resident in self._residents for casualty in resident.retire(cause)]
        innocent = self._judge(casualties, cause)
        core.disarm(cause or StaleLease(f"the context of {core.name} was rebuilt, and its streams are gone"))

        def copied(_: None) -> None:
            for resident in self._residents:
                resident.recall(innocent.get(resident, []))
            self._work(Step.REBUILD, cause)

        self._after_copies(copied)

    def _judge(self, casualties: list[Casualty], cause: AclError | None) -> dict[Resident, list[Request]]:
        """Fail the request that killed the context, or if several may have, keep them to be run alone.

        The others are innocent and run again.
        """
        guilty = [one for one in casualties if one.suspect or (one.error is not None and severity(one.error))]
        innocent: dict[Resident, list[Request]] = {}
        for one in casualties:
            one.request.recalls += 1
            if one.error is not None and one not in guilty:
                one.resident.fail(one.request, one.error)
            elif one in guilty and len(guilty) == 1 and cause is not None:
                one.resident.fail(one.request, one.error or again(cause))
            elif one in guilty:
                self._suspects.append(one)
            elif one.request.recalls > _MOST_RECALLS and cause is not None:
                error = again(cause)
                add_note(error, f"the context died {one.request.recalls} times while this request was on the device")
                one.resident.fail(one.request, error)
            else:
                innocent.setdefault(one.resident, []).append(one.request)
        return innocent

    def _after_copies(self, then: Callable[[None], None]) -> None:
        """Go on when no copy to or from pinned memory is under way any more."""
        core = self._core
        core.copy(lambda: core.post(then, None))

    def _quarantine(self, error: AclError) -> None:
        """The device is lost: nobody waits for it."""
        logger.error("%s is lost: %s", self._core.name, error)
        self._draining = self._alone = False
        core = self._core
        core.lose(error)
        for resident in self._residents:
            for casualty in resident.retire(error):
                casualty.resident.fail(casualty.request, again(casualty.error or error))
        self._fail_suspects(error)
        core.disarm(error)
        for resident in self._residents:
            resident.refuse(error)
        self._tell(error)
        self._letting_go = True

        def copied(_: None) -> None:
            for resident in self._residents:
                resident.recall([])
                resident.refuse(error)
            core.control(self._take_down, error)
            self._letting_go = False
            if self.health.state is HealthState.PROBING:  # somebody could not wait
                self._work(Step.PROBE, error)

        self._after_copies(copied)
        self._wait_for_probe()

    def _fail_suspects(self, error: AclError) -> None:
        while self._suspects:
            one = self._suspects.popleft()
            one.resident.fail(one.request, again(error))

    def _wait_for_probe(self) -> None:
        due = self.health.next_probe
        assert due is not None  # it is lost
        self._core.later(max(0.0, due - time.monotonic()) + 0.001, self._probe)

    def _probe(self) -> None:
        if self._stopped:
            return
        step = self.health.due(time.monotonic())
        if step is not None:
            self._work(step, self.last_error)
        elif self.health.state is HealthState.LOST:
            self._wait_for_probe()

    # -- the control thread -----------------------------------------------------------------------------------------

    def _work(self, step: Step, cause: AclError | None) -> None:
        if not self._letting_go:  # else it follows, when nobody has anything in the context any more
            self._core.control(self._rebuild, step, cause)

    def _present(self) -> list[Resident]:
        """Those who have something in the context now; control thread, on which nobody can come meanwhile."""
        return self._core.call(lambda: list(self._residents)).result()

    def _take_down(self, cause: AclError | None) -> None:
        """Give back everything in the context and the context; control thread."""
        core = self._core
        residents = self._present()
        core.teardown = teardown = Teardown(core.driver, _TEARDOWN_S)
        try:
            for resident in reversed(residents):
                resident.dismantle()
            if teardown.stuck:
                core.leave_context()
            else:
                core.close_context()
        finally:
            core.teardown = Teardown(core.driver)
        for note in teardown.notes[:20]:
            logger.info("%s: giving back: %s", core.name, note)
            if cause is not None:
                add_note(cause, f"while giving back what was on the device: {note}")

    def _rebuild(self, step: Step, cause: AclError | None) -> None:
        core = self._core
        broken: dict[Resident, AioascendError] = {}
        failure: BaseException | None = None
        if self._stopped:
            return  # it was closed meanwhile
        try:
            residents = self._present()
            for resident in residents:
                resident.save()
            self._take_down(cause)
            core.open_context()
            core.enter_context()
            self._try_device()
            if step is Step.PROBE:
                core.call(self.health.answered).result()
            for resident in residents:
                try:
                    resident.restore()
                except AioascendError as error:
                    if severity(error) is not Severity.TASK:
                        raise
                    broken[resident] = again(error)
        except BaseException as error:
            failure = error
            self._take_down(None)

        def finished(_: None) -> None:
            self._finished(cause, failure, broken)

        core.post(finished, None)

    def _try_device(self) -> None:
        """Whether the device does anything in its new context; raises what it answers."""
        driver = self._core.driver
        stream = driver.create_stream()
        try:
            if not driver.synchronize_stream(stream, _PROBE_MS):
                raise driver.error(codes.STREAM_SYNC_TIMEOUT, "acl.rt.synchronize_stream_with_timeout")
        finally:
            self._core.quietly(driver.destroy_stream, stream)

    # -- going on ---------------------------------------------------------------------------------------------------

    def _finished(
        self, cause: AclError | None, failure: BaseException | None, broken: dict[Resident, AioascendError]
    ) -> None:
        if failure is not None:
            error = self._core.driver.as_error(failure, "the rebuild")
            if isinstance(failure, AioascendError) and isinstance(failure.__cause__, AclError):
                error = failure.__cause__
            error = again(error)
            if cause is not None:
                add_note(error, f"the context was being rebuilt after: {cause}")
            self.last_error = error
            self.health.failed(time.monotonic())
            logger.error("%s could not be rebuilt: %s", self._core.name, failure)
            self._fail_suspects(error)
            for resident in self._residents:
                resident.refuse(error)
            self._wait_for_probe()
            self._tell(failure if isinstance(failure, AioascendError) else error)
            return
        self.health.rebuilt()
        logger.info("%s serves again, with its context number %d", self._core.name, self._core.generation)
        self._core.forget_armed()
        self._broken = {one: error for one, error in broken.items() if one in self._residents}
        for resident, why in self._broken.items():
            logger.error("%s: a session could not be restored: %s", self._core.name, why)
            resident.refuse(why)
        if self._broken:
            self._core.later(self._retry, self._restore_broken)
        self._tell(next(iter(broken.values()), None))
        self._next_suspect()

    def _tell(self, error: AioascendError | None) -> None:
        interrupted, self._interrupted = self._interrupted, []
        for request, why in interrupted:
            if not any(resident.knows(request) for resident in self._residents):
                request.give_up(again(why), self._core.touch)
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            for resident in self._residents:
                resident.give_up_lost(interruption)
        asked, self._asked = self._asked, []
        for future in asked:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(again(error))

    def _next_suspect(self) -> None:
        """Run the next request that may have killed the context, alone; without one everybody goes on."""
        if self.health.state is not HealthState.HEALTHY:
            return
        while self._suspects:
            one = self._suspects.popleft()
            if one.resident in self._broken:
                one.resident.fail(one.request, again(self._broken[one.resident]))
                continue
            self._alone = True  # nobody leaves who has handed over a request
            one.resident.run_alone(one.request, self._next_suspect)
            return
        self._alone = False
        for resident in self._residents:
            if resident not in self._broken:
                resident.resume()

    def _restore_broken(self) -> None:
        """Try again to restore those who could not be; the device itself is well."""
        residents = [one for one in self._broken if one in self._residents]
        if self._stopped or not residents or self.health.state is not HealthState.HEALTHY:
            return
        self._retry = min(2 * self._retry, 30.0)

        def restore() -> None:
            outcomes: dict[Resident, AioascendError | None] = {}
            for resident in residents:
                try:
                    resident.restore()
                    outcomes[resident] = None
                except BaseException as error:
                    ours = error if isinstance(error, AioascendError) else None
                    outcomes[resident] = again(ours or self._core.driver.as_error(error, "a restore"))
            self._core.post(self._restored, outcomes)

        self._core.control(restore)

    def _restored(self, outcomes: dict[Resident, AioascendError | None]) -> None:
        for resident, failure in outcomes.items():
            if resident not in self._broken:
                continue  # it was closed, or a rebuild came between
            if failure is None:
                del self._broken[resident]
                if self.health.state is HealthState.HEALTHY and not self._alone:
                    resident.resume()
            else:
                self._broken[resident] = failure
                resident.refuse(failure)
                if isinstance(failure, AclError):
                    self.report(failure)
        if self._broken:
            self._core.later(self._retry, self._restore_broken)
        else:
            self._retry = 0.25
