"""Whether a call that waits for the device can ever return.

A Python callback needs its report thread and the GIL; a call that waits with the GIL held waits for ever if something
that it waits for comes after such a callback (reference §3). What has to happen is played through on the queues as they
are, without time and in the order that is best for the waiting call: work ends, records are made, and what is stuck
then is stuck on hardware too. So a finding is certain, and what another thread may yet do is trusted wherever the GIL
is free for it.

No threads, no locks, no clock: whoever asks holds the lock of the engine whose streams it passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from .device_model import Task
from .streams import Event, Marker, ReportQueue, Stream
from .tasks import Callback, LegacyWait, Record, Reset, Wait


class HostWait:
    """A host thread in a call that returns when the device has done something.

    `streams`: how many tasks each must have completed, all of them. `records`: event records, of which one must be
    done. `callback`: must have returned. `held`: whether the call holds the GIL. `what`: in words, what it waits for.
    """

    __slots__ = ("call", "callback", "held", "records", "streams", "thread", "what")

    def __init__(
        self,
        call: str,
        thread: int,
        held: bool,
        streams: tuple[tuple[Stream, int], ...] = (),
        records: tuple[Marker, ...] = (),
        what: str = "",
    ) -> None:
        self.call = call
        self.thread = thread
        self.held = held
        self.streams = streams
        self.records = records
        self.callback: Callback | None = None
        self.what = what


def never_returns(wait: HostWait, streams: Iterable[Stream], others: Mapping[int, HostWait]) -> str | None:
    """Why `wait` can never end, in words with the remedy; None when it can.

    `streams` are all of the device, `others` the threads that wait without a limit, by pthread id.
    """
    known = tuple(streams)
    if wait.callback is None:
        # the common cases, answered without a graph
        if not wait.held and not any(_holds(task) for stream in known for task in stream.queue):
            return None
        if not wait.records and _plain(wait):
            return None
    graph = _Graph(wait, known, others)
    graph.play()
    return None if graph.met(wait) else graph.explain()


def _plain(wait: HostWait) -> bool:
    """Whether nothing but work stands between the call and its end."""
    for stream, target in wait.streams:
        for task in islice(stream.queue, target - stream.completed):
            if isinstance(task, (Wait, LegacyWait)) or _holds(task):
                return False
    return True


def _holds(task: Task) -> bool:
    """Whether a stream stops at `task` until host code has run."""
    return type(task) is Callback and task.block


class _Flag:
    """A legacy event as one stream sees it.

    Records and resets of other streams come when it is best for this one, so that what is up at some time is up; but
    one record does for one wait only if the stream resets the event in between.
    """

    __slots__ = ("before", "initial", "own", "used", "waited")

    def __init__(self, raised: bool) -> None:
        self.initial = raised
        # records on the stream itself since it reset the event, and before
        self.own = 0
        self.before = 0
        # records on other streams that earlier waits needed
        self.used = 0
        self.waited = False

    def wait(self, records: int) -> bool:
        """Whether a wait is passed when there are so many records on all streams."""
        self.waited = self.initial or self.own > 0 or records - self.before > self.used
        return self.waited

    def reset(self) -> None:
        """The stream takes the record back."""
        if self.waited and not self.initial and not self.own:
            self.used += 1
        self.before += self.own
        self.own = 0
        self.initial = self.waited = False


class _Graph:
    def __init__(self, wait: HostWait, streams: tuple[Stream, ...], others: Mapping[int, HostWait]) -> None:
        self.wait = wait
        self.others = others
        self.queues: dict[Stream, tuple[Task, ...]] = {stream: tuple(stream.queue) for stream in streams}
        for stream, _ in wait.streams:
            # the stream of a synchronous run belongs to no context
            self.queues.setdefault(stream, tuple(stream.queue))
        self.done = dict.fromkeys(self.queues, 0)
        self.marked: set[Marker] = set()
        # how often each event was recorded
        self.records: Counter[Event] = Counter()
        self.flags: dict[tuple[Stream, Event], _Flag] = {}
        # threads whose waits are being looked at: who comes back to one of them goes round in a circle
        self.looked_at: set[int] = set()

    # -- what can happen --------------------------------------------------------------------------------------

    def play(self) -> None:
        """Let every stream get as far as it can."""
        moved = True
        while moved:
            moved = False
            for stream, queue in self.queues.items():
                place = self.done[stream]
                while place < len(queue) and self.passes(stream, queue[place]):
                    place += 1
                if place > self.done[stream]:
                    self.done[stream] = place
                    moved = True

    def passes(self, stream: Stream, task: Task) -> bool:
        """Whether `stream` gets beyond `task`, and what that brings about."""
        if isinstance(task, Record):
            self.marked.add(task.marker)
            self.records[task.event] += 1
            self.flag(stream, task.event).own += 1
        elif isinstance(task, Reset):
            self.flag(stream, task.event).reset()
        elif isinstance(task, Wait):
            return task.marker.done or task.marker in self.marked
        elif isinstance(task, LegacyWait):
            return not self.wait.held or self.flag(stream, task.event).wait(self.records[task.event])
        elif isinstance(task, Callback) and task.block:
            return self.runs(task, stream)
        return True

    def flag(self, stream: Stream, event: Event) -> _Flag:
        """What `stream` has seen of a legacy event."""
        flag = self.flags.get((stream, event))
        if flag is None:
            flag = self.flags[stream, event] = _Flag(event.raised)
        return flag

    def runs(self, callback: Callback, stream: Stream) -> bool:
        """Whether the function of `callback` can be called and return."""
        report = stream.report
        return report is None or not self.hindrance(callback, report)

    def hindrance(self, callback: Callback, report: ReportQueue) -> str:
        """What keeps `callback` from being run to its end, "" for nothing."""
        wait, thread = self.wait, report.thread
        if thread == wait.thread:
            inside = "is inside it" if report.current is callback else "has to run it"
            return f"the thread that waits {inside}"
        if wait.held:
            return f"its function needs the GIL on thread {thread}"
        if report.ended():
            return f"thread {thread}, which has to run it, has ended"
        other = self.others.get(thread)
        if other is None:
            return ""
        circle = thread in self.looked_at
        self.looked_at.add(thread)
        stuck = circle or not self.met(other)
        if not circle:
            self.looked_at.remove(thread)
        return f"thread {thread}, which has to run it, waits in {other.call} for what cannot come" if stuck else ""

    def met(self, wait: HostWait) -> bool:
        """Whether `wait` ends."""
        for stream, target in wait.streams:
            # a stream of another device is not looked into
            if stream in self.done and stream.completed + self.done[stream] < target:
                return False
        if wait.records and not any(one.done or one in self.marked for one in wait.records):
            # of another device, if it is recorded on none of these streams
            known = {task.marker for queue in self.queues.values() for task in queue if isinstance(task, Record)}
            return not known.issuperset(wait.records)
        callback = wait.callback
        if callback is None or callback.stream is None:
            return True
        report = callback.stream.report
        return report is None or report.current is not callback or not self.hindrance(callback, report)

    # -- words ------------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Who waits for whom, and what to do."""
        wait = self.wait
        holds = " with the GIL held" if wait.held else ""
        callback = wait.callback
        if callback is not None and callback.stream is not None and callback.stream.report is not None:
            reason = self.hindrance(callback, callback.stream.report)
            return (
                f"{wait.call} waits{holds} for {_callback(callback)} that is running, and {reason}. "
                "Wait first until process_report has returned from it"
            )
        stream = self._first()
        steps, remedy = self._steps(stream)
        return f"{wait.call} waits{holds} for {wait.what or name(stream)}: {'; '.join(steps)}. {remedy}"

    def _first(self) -> Stream:
        """The stream in the way."""
        for stream, target in self.wait.streams:
            if stream.completed + self.done[stream] < target:
                return stream
        wanted = set(self.wait.records)
        for stream, queue in self.queues.items():
            if any(isinstance(task, Record) and task.marker in wanted for task in queue):
                return stream
        raise AssertionError("what is met was to be explained")

    def _steps(self, stream: Stream) -> tuple[list[str], str]:
        steps: list[str] = []
        seen: set[Stream] = set()
        while stream not in seen:
            seen.add(stream)
            task = self.queues[stream][self.done[stream]]
            here = name(stream)
            if isinstance(task, Callback):
                assert stream.report is not None
                reason = self.hindrance(task, stream.report)
                steps.append(f"{here} is held by {_callback(task)}, and {reason}")
                return steps, self._remedy(stream)
            assert isinstance(task, (Wait, LegacyWait))
            event = f"event {task.event.handle:#x}"
            source = self._source(task)
            if source is None:
                steps.append(
                    f"{here} waits for {event}, which nothing that is queued records, and who would record it needs "
                    "the GIL"
                )
                return steps, "Record the event first"
            steps.append(f"{here} waits for {event}, which {name(source)} has yet to record")
            stream = source
        return steps, "Record the events first, in an order without a circle"

    def _source(self, wait: Wait | LegacyWait) -> Stream | None:
        for stream, queue in self.queues.items():
            for task in queue[self.done[stream] :]:
                if isinstance(task, Record) and (
                    task.marker is wait.marker if isinstance(wait, Wait) else task.event is wait.event
                ):
                    return stream
        return None

    def _remedy(self, stream: Stream) -> str:
        report = stream.report
        assert report is not None
        if report.thread == self.wait.thread:
            return "Wait on another thread than the one that runs the callbacks"
        if not self.wait.held:
            return "Let the report thread call process_report until the stream is synchronised"
        return f"Call acl.rt.synchronize_stream on {name(stream)} first: it releases the GIL"


def name(stream: Stream) -> str:
    """What to call a stream in a sentence."""
    return f"stream {stream.handle:#x}" if stream.handle else "the default stream"


def _callback(callback: Callback) -> str:
    kind = "a blocking callback" if callback.block else "a callback"
    return f"{kind} launched at {callback.site}" if callback.site else kind
