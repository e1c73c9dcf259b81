"""The threads of one device.

A device has 1 + ``concurrent_executes`` threads (one more with a time profile), and at any time at most one of them
advances the model, under the engine's lock. A thread that comes upon long work (an execute, a large copy) does it
itself with the lock released, and advances the model again when it has finished: between a submission and the host
thread that waits for its result there is one wake-up each way, not one per task. Whoever submits wakes a parked thread
only if no thread is about to look anyway. A host thread that waits for a callback is as good as a parked one (`help`):
where it does the last step itself nobody has to wake it.
"""

from __future__ import annotations

import _thread
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from time import perf_counter, thread_time

from . import codes, gil
from .args import Failure
from .device_model import DeviceModel, Task, Work
from .streams import Fault, Stream
from .timers import EARLY_S, exact_timers, stay_awake


class HostWaiter:
    """One host thread that waits for the device: a raw lock, which costs a fraction of a `threading.Condition`."""

    __slots__ = ("_lock", "code", "kicked", "woken")

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()
        self.code = codes.SUCCESS
        self.woken = False
        self.kicked = False  # it is to advance the model, and has not begun

    def wake(self, code: int) -> None:
        """Let the thread go; the first call counts. The engine's lock is held."""
        if not self.woken:
            self.woken = True
            self.code = code
            if not self.kicked:
                self._lock.release()

    def kick(self) -> None:
        """Have the thread advance the model; it is one that helps. The engine's lock is held."""
        self.kicked = True
        self._lock.release()

    def rest(self, seconds: float) -> bool:
        """Wait until woken or kicked, for no more than `seconds` (below 0: for ever); whether that came."""
        return self._lock.acquire(timeout=seconds) if seconds >= 0 else self._lock.acquire()

    def called(self) -> bool:
        """Whether it was woken or kicked; from any thread."""
        return self.woken or self.kicked

    def wait(self, milliseconds: int) -> bool:
        """False when `milliseconds` went by (negative: never)."""
        return self.rest(milliseconds / 1000)

    def glance(self, seconds: float) -> None:
        """Let other threads run until woken, for at most `seconds`."""
        if self._lock.acquire(timeout=seconds):
            self._lock.release()


# how long a host thread that holds the GIL gives it away for a compute thread to begin, and how often it looks
_BEGINNING = 0.05
_GLANCE = 0.001

# seconds of a run that is not worth waking another thread for, every how many runs of a model it is measured after as
# many, and the seconds of such runs after which other streams have their turn
_BRIEF = 100e-6
_MEASURED = 16
_TURN = 1e-3

_LOOK_S = 0.02  # between two looks at whether a thread that is to end has gone to tell of a failure instead

_HUNG = Fault(codes.SUCCESS, "a task that never ends")


class Engine:
    """Drives one `DeviceModel`.

    `lock` guards the model. `owner` is kept alive by the threads: what is in use must be there to be shut down.
    """

    def __init__(
        self,
        name: str,
        lanes: int = 1,
        clock: Callable[[], float] = perf_counter,
        owner: object = None,
        timed: bool = False,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.owner = owner
        self._started = started
        self.lock = _thread.allocate_lock()
        self.clock = clock
        self.model = DeviceModel(clock, lanes, timed)
        self.stopped = False
        self._why = codes.SUCCESS  # it was stopped
        self.pid = os.getpid()
        # set by whoever injects faults: a code that a task fails with, -1 if it never ends
        self.sabotage: Callable[[Work], int | None] | None = None
        self.hosts: set[HostWaiter] = set()
        self.on_fault: Callable[[Work, Fault], None] | None = None
        self._telling: set[threading.Thread] = set()  # the threads that are in it
        # how many tasks a stream holds, and what waits for room when one more is to be submitted
        self.depth = 1 << 62
        self.on_full: Callable[[Stream, str], None] = lambda stream, call: None
        # the device's streams
        self.streams: Callable[[], Iterable[Stream]] = tuple
        # Where no two runs go on at once, a brief one is like inline work: the thread that does it goes on with what
        # is behind it, and no other is woken to do that meanwhile. A time profile may hold the GIL for others' sake.
        self._alone = lanes == 1 and not timed
        self._turn = 0.0
        # what is done now with the lock released, and what a host thread found that shall be
        self._working: set[Work] = set()
        self._handed: deque[tuple[Work, _thread.LockType]] = deque()
        self._helper: HostWaiter | None = None  # a host thread that may be kicked
        # an exception was thrown into a host thread in the middle of a step of the model: what is queued is of no use
        self.torn = False
        self._expected = False
        self._parked: list[_thread.LockType] = []
        # the deadline that a parked thread wakes up for by itself
        self._alarm: float | None = None
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{'engine' if n == 0 else f'compute{n}'}", daemon=True)
            for n in range(1 + lanes + timed)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """The threads that are alive."""
        return tuple(thread for thread in self._threads if thread.is_alive())

    def submit(self, stream: Stream, task: Task, call: str) -> None:
        """Queue `task` for the function `call`, when there is room for it, and see to it that somebody looks."""
        model, context = self.model, stream.context
        try:
            if len(stream.queue) >= self.depth or (context is not None and context.stopped is not None):
                self.room(stream, call)
            with self.lock:
                if self.stopped:
                    self._check()
                if model.submit(stream, task) and not self._expected:
                    self.kick()
        except BaseException:
            with self.lock:
                task.dropped(model)
            raise
        if model.watch is not None:
            model.watch.tell()

    def room(self, stream: Stream, call: str) -> None:
        """Wait until `stream` takes another task. The lock is not held."""
        context = stream.context
        if context is not None and context.stopped is not None:
            fault = context.stopped
            raise Failure(
                fault.code,
                f"the context takes no more tasks after a failure that was fatal or in stop mode: {fault.text}",
            )
        if len(stream.queue) >= self.depth:
            self.on_full(stream, call)

    def kick(self) -> None:
        """Wake a parked thread unless one is about to advance the model. The lock is held."""
        if self._expected:
            return
        helper = self._helper
        if helper is None or helper.woken or (self._handed and self._parked):  # a helper does no long work
            self._kick_thread()
        else:
            self._helper = None
            self._expected = True
            helper.kick()

    def _kick_thread(self) -> None:
        if not self._expected and self._parked:
            self._expected = True
            self._parked.pop().release()

    def waiter(self) -> HostWaiter:
        """A waiter that shutdown wakes. The lock is held."""
        self._check()
        waiter = HostWaiter()
        self.hosts.add(waiter)
        return waiter

    def wake_hosts(self, code: int) -> None:
        """Let every host thread go that waits for this device."""
        with self.lock:
            for waiter in self.hosts:
                waiter.wake(code)
            self.hosts.clear()

    def _check(self) -> None:
        """Refuse whoever comes too late. The lock is held."""
        if self.stopped:
            raise Failure(self._why, "the device was shut down, or is lost")

    def stop(self, code: int = codes.SOCKET_CLOSE) -> None:
        """End the threads; work in progress is not waited for. Whoever comes now gets `code`. The lock is not held."""
        with self.lock:
            self.stopped = True
            self._why = self._why or code
            while self._handed:  # nobody will do it: what it uses is free again
                work, entered = self._handed.popleft()
                entered.release()
                self.model.finish(work, Fault(self._why, "the device was shut down, or is lost"), inf)
            for gate in self._parked:
                gate.release()
            self._parked.clear()

    def join(self, timeout: float) -> bool:
        """Wait for the threads to end; False when some have not. Never waits for threads that a fork left behind.

        Nor for one that is in a function of the program's, which may wait for what the caller holds: it ends after it.
        """
        if self.pid != os.getpid():
            return True
        end = perf_counter() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                while thread.is_alive() and thread not in self._telling and (left := end - perf_counter()) > 0:
                    thread.join(min(left, _LOOK_S))
        return not self.threads

    def _serve(self) -> None:
        self._started()
        if self.model.timed:
            exact_timers()
        gate = _thread.allocate_lock()
        gate.acquire()
        model = self.model
        lock = self.lock
        lock.acquire()
        try:
            while not self.stopped:
                self._expected = True
                work, handed = self._handed.popleft() if self._handed else (model.advance(self.clock()), None)
                if work is None:
                    self._expected = False
                    self._park(gate)
                elif work.inline:
                    self._do_inline(work)
                elif work.unit is not None and work.unit.brief and self._alone:
                    self._do_brief(work)
                else:
                    self._working.add(work)
                    self._leave()
                    if handed is not None:
                        handed.release()
                    try:
                        fault = self._run_counted(work)
                        if fault is not None:
                            self._tell(work, fault)
                    finally:
                        lock.acquire()
                        self._working.discard(work)
                    self._finish(work, fault)
        finally:
            lock.release()

    def _do_brief(self, work: Work) -> None:
        """Do a run that takes no longer than waking a thread. The lock is let go; nobody is woken meanwhile."""
        self.lock.release()
        try:
            fault = self._run_counted(work)
        finally:
            self.lock.acquire()
        self._tell_unlocked(work, fault)
        now = self.clock()
        self.model.last = now - self._turn >= _TURN
        if self.model.last:
            self._turn = now
        self._finish(work, fault)
        self.model.last = False

    def _run_counted(self, work: Work) -> Fault | None:
        """Run, and now and then note whether it was brief: by CPU time, as it may wait for the GIL at the end."""
        unit = work.unit
        if unit is None or not self._alone:
            return self._run(work)
        unit.runs += 1
        if unit.runs > _MEASURED and unit.runs % _MEASURED:
            return self._run(work)
        start = thread_time()
        fault = self._run(work)
        unit.brief = fault is None and thread_time() - start < _BRIEF
        return fault

    def _do_inline(self, work: Work) -> None:
        """Do short work. The lock is held, and let go to tell of a failure."""
        fault = self._run(work)
        self._tell_unlocked(work, fault)
        self._finish(work, fault)

    def _park(self, gate: _thread.LockType) -> None:
        """Sleep until kicked or, for one of the threads, until the next deadline."""
        mine, deadline = self._take_alarm()
        if mine and len(self.model.deadlines) == 1 and self._helper is not None and not self._helper.woken:
            # Where there is one thing to come the host waits for it, and had better be there itself.
            self._alarm, mine = None, False
            self.kick()
        early = self._early()
        self._parked.append(gate)
        self.lock.release()
        kicked = False
        try:
            if mine and deadline is not None:
                kicked = gate.acquire(timeout=max(0.0, deadline - self.clock() - early))
                if early and not kicked:
                    kicked = stay_awake(deadline, self.clock, partial(gate.acquire, False))
            else:
                kicked = gate.acquire()
        finally:
            self.lock.acquire()
            if mine and self._alarm == deadline:
                self._alarm = None
            if not kicked:
                if gate in self._parked:
                    self._parked.remove(gate)
                else:
                    # kicked between the time-out and here
                    gate.acquire()

    def _early(self) -> float:
        """How much before the next deadline to wake up, in order not to be late for it. The lock is held.

        Where that is all there is to come somebody may be waiting for it, and no thread has anything better to do.
        """
        return EARLY_S if len(self.model.deadlines) == 1 else 0.0

    def _take_alarm(self) -> tuple[bool, float | None]:
        """The next deadline, and whether the calling thread is to wake up for it."""
        deadline = self.model.next_deadline()
        mine = deadline is not None and (self._alarm is None or deadline < self._alarm)
        if mine:
            self._alarm = deadline
        return mine, deadline

    def help(self, waiter: HostWaiter, milliseconds: int, allowed: Callable[[], bool]) -> None:
        """Wait as `HostWaiter.wait` does, and advance the model meanwhile like a thread of the device's own.

        Long work is handed to those, and so is everything while it is not `allowed`. For a thread that waits with the
        GIL released. What is thrown into it while it advances the model leaves that `torn`.
        """
        if self.model.timed:
            exact_timers()
        end = None if milliseconds < 0 else self.clock() + milliseconds / 1000
        with self.lock:
            plan = self._stand_ready(waiter, end, allowed)
        while plan is not None:
            seconds, alarm = plan
            try:
                if not waiter.rest(seconds) and alarm is not None and alarm - self.clock() <= EARLY_S:
                    stay_awake(alarm if end is None else min(alarm, end), self.clock, waiter.called)
            except BaseException:
                with self.lock:
                    self._step_back(waiter, alarm)
                    self._hand_on()
                raise
            with self.lock:
                self.torn = True
                self._step_back(waiter, alarm)
                if allowed():
                    self._help()
                plan = self._stand_ready(waiter, end, allowed)
                self.torn = False

    def _stand_ready(
        self, waiter: HostWaiter, end: float | None, allowed: Callable[[], bool]
    ) -> tuple[float, float | None] | None:
        """How long a host thread may sleep now (below 0: for ever), and for which deadline it then wakes up.

        None when it has to go: others do what there is to do. The lock is held.
        """
        now = self.clock()
        if waiter.woken or self.stopped or (end is not None and now >= end):
            self._hand_on()
            return None
        times = [] if end is None else [end]
        alarm = None
        if not allowed():
            self._hand_on()
        else:
            if self._handed:
                self._kick_thread()
            if self._helper is None:  # else somebody else is it: this one can only be woken
                self._helper = waiter
                mine, deadline = self._take_alarm()
                if mine and deadline is not None:
                    alarm = deadline
                    times.append(deadline - self._early())
        return max(0.0, min(times) - now) if times else -1.0, alarm

    def _step_back(self, waiter: HostWaiter, alarm: float | None) -> None:
        """A host thread that slept is awake: nobody kicks it any more, and it has no alarm. The lock is held."""
        if self._helper is waiter:
            self._helper = None
        if alarm is not None and self._alarm == alarm:
            self._alarm = None
        if waiter.kicked:
            waiter.kicked = self._expected = False
            waiter.rest(0)  # where it was kicked between the time-out and here

    def _leave(self) -> None:
        """Release the lock for something long; if there is more to do, another thread takes over."""
        self._expected = False
        self._hand_on()
        self.lock.release()

    def _hand_on(self) -> None:
        """See to it that somebody does what there is to do. The lock is held."""
        if self.model.ready or self._handed or (self.model.deadlines and self._alarm is None):
            self.kick()

    def hold(self, waiter: HostWaiter, milliseconds: int, stuck: bool) -> None:
        """Wait as `HostWaiter.wait` does, but with the GIL held for as long as it is known that nothing happens.

        The waiting thread advances the model itself, so that no other thread need run for it. The GIL is let go
        where a compute thread needs it, to begin and to end, where real compute takes longer than by the profile,
        and where the model waits for another host thread. `stuck`: it waits for one that cannot run.
        """
        end = None if milliseconds < 0 else self.clock() + milliseconds / 1000
        while not waiter.woken and (end is None or self.clock() < end):
            with gil.kept:
                begun = self._help_locked()
                while not begun and not waiter.woken and (rest := self._quiet(end, stuck)) > 0:
                    gil.sleep(rest)
                    begun = self._help_locked()
            for entered in begun:
                entered.acquire(timeout=_BEGINNING)
            if not begun and not waiter.woken:
                waiter.glance(_GLANCE)

    def _quiet(self, end: float | None, stuck: bool) -> float:
        """Seconds in which nothing can happen, 0 or less when that is not known or something is due."""
        with self.lock:
            times = [work.deadline for work in self._working]
            times += [work.deadline for work, _ in self._handed]
            deadline = self.model.next_deadline()
        if deadline is not None:
            times.append(deadline)
        if end is not None and (times or stuck):
            times.append(end)
        # what is behind its deadline needs the GIL to get done
        return min(times) - self.clock() if times else 0.0

    def _help_locked(self) -> list[_thread.LockType]:
        with self.lock:
            return self._help()

    def _help(self) -> list[_thread.LockType]:
        """Advance the model as far as it goes; locks that are released when work that it came upon is begun.

        The lock is held.
        """
        begun = []
        while not self.stopped and (work := self.model.advance(self.clock())) is not None:
            if work.inline:
                self._do_inline(work)
                continue
            entered = _thread.allocate_lock()
            entered.acquire()
            begun.append(entered)
            self._handed.append((work, entered))
            self.kick()
        return begun

    def _tell_unlocked(self, work: Work, fault: Fault | None) -> None:
        """Let go of the lock, which is held, to tell of a failure if there was one."""
        if fault is not None:
            self._leave()
            try:
                self._tell(work, fault)
            finally:
                self.lock.acquire()

    def _tell(self, work: Work, fault: Fault) -> None:
        """Tell the program about a failed task. The lock is not held: its function may call anything."""
        if self.on_fault is not None and fault is not _HUNG:
            thread = threading.current_thread()
            self._telling.add(thread)
            try:
                self.on_fault(work, fault)
            except Exception:
                traceback.print_exc()
            finally:
                self._telling.discard(thread)

    def _finish(self, work: Work, fault: Fault | None) -> None:
        if fault is _HUNG:
            self.model.hang(work)
            if self.stopped and work.stream is not None:  # everything else was dropped meanwhile
                self.model.drop(work.stream, self._why)
        else:
            self.model.finish(work, fault, self.clock() if self.model.timed else 0.0)

    def _run(self, work: Work) -> Fault | None:
        try:
            code = self.sabotage(work) if self.model.faults and self.sabotage is not None else None
            if code is not None:
                return _HUNG if code < 0 else Fault(code, f"the {work.kind} task was told to fail")
            return work.run()
        except Exception as error:  # a bug of the emulator must fail the task, not end the engine
            return Fault(codes.INTERNAL_ERROR, f"the emulator failed inside a task: {type(error).__name__}: {error}")
