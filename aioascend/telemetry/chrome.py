"""A timeline as Chrome trace JSON: one track for each stream, one for the host, arrows along each request.

Written for https://ui.perfetto.dev. Times are microseconds; complete slices (`X`) of one track must not overlap, or
the viewer drops them, so that only what is serial by nature is drawn so: the work of a stream, the copies of one host
thread. Requests overlap: each is an asynchronous slice (`b`, `e`) with an id of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from .timeline import RequestTimes, Span, Timeline

__all__ = ["trace_events", "trace_json"]

_HOST = 1
_FIRST_DEVICE = 2
_STREAMS = (("h2d", "copy in (h2d)"), ("execute", "compute"), ("d2h", "copy out (d2h)"))


def trace_json(timeline: Timeline) -> str:
    """The whole file as text."""
    error = {name: round(seconds * 1e6, 1) for name, seconds in timeline.clock_error.items()}
    return json.dumps(
        {
            "traceEvents": trace_events(timeline),
            "displayTimeUnit": "ms",
            "otherData": {"clock error, us": error, "requests dropped": timeline.dropped},
        }
    )


def trace_events(timeline: Timeline) -> list[dict[str, Any]]:
    """The events, metadata first, then in the order of time."""
    requests = timeline.requests
    origin = min((one.submitted for one in requests), default=0.0)
    writer = _Writer(origin)
    writer.process(_HOST, "host", 0)
    sessions = {name: index for index, name in enumerate(timeline.clock_error)}
    for name, index in sessions.items():
        writer.process(_FIRST_DEVICE + index, name, index + 1)

    copies = [(span, what, one) for one in requests for span, what in _host_copies(one)]
    flows: dict[tuple[str, int], list[tuple[int, int, Span]]] = {}
    for row, (span, what, one) in _rows(copies):
        track = 1 + row
        writer.thread(_HOST, track, "host" if row == 0 else f"host {row + 1}")
        writer.slice(_HOST, track, f"{what} #{one.number}", span, {"request": one.number})
        flows.setdefault((one.session, one.number), []).append((_HOST, track, span))

    for one in requests:
        device = _FIRST_DEVICE + sessions.get(one.session, 0)
        for stream, (field, title) in enumerate(_STREAMS):
            span = getattr(one, field)
            if span is None:
                continue
            track = 1 + 3 * one.instance + stream
            suffix = f", instance {one.instance}" if one.instance else ""
            writer.thread(device, track, title + suffix)
            writer.slice(device, track, f"{title.split(' (')[0]} #{one.number}", span, {"request": one.number})
            flows.setdefault((one.session, one.number), []).append((device, track, span))
        writer.request(_HOST, sessions.get(one.session, 0), one)

    for (session, number), stops in flows.items():
        writer.arrows(f"{sessions.get(session, 0)}.{number}", stops)
    return writer.finish()


def _host_copies(one: RequestTimes) -> Iterable[tuple[Span, str]]:
    if one.staging is not None:
        yield one.staging, "stage"
    if one.told is not None and one.outcome == "completed":
        yield Span(one.told, one.done), "hand out"


def _rows(items: list[tuple[Span, str, RequestTimes]]) -> list[tuple[int, tuple[Span, str, RequestTimes]]]:
    """Give each item the first row on which nothing overlaps it."""
    ends: list[float] = []
    placed = []
    for item in sorted(items, key=lambda item: item[0].start):
        span = item[0]
        row = next((row for row, end in enumerate(ends) if end <= span.start), len(ends))
        if row == len(ends):
            ends.append(span.end)
        ends[row] = span.end
        placed.append((row, item))
    return placed


class _Writer:
    def __init__(self, origin: float) -> None:
        self._origin = origin
        self._about: dict[tuple[str, int, int], dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []

    def process(self, pid: int, name: str, order: int) -> None:
        self._meta("process_name", pid, 0, {"name": name})
        self._meta("process_sort_index", pid, 0, {"sort_index": order})

    def thread(self, pid: int, tid: int, name: str) -> None:
        self._meta("thread_name", pid, tid, {"name": name})
        self._meta("thread_sort_index", pid, tid, {"sort_index": tid})

    def slice(self, pid: int, tid: int, name: str, span: Span, args: dict[str, Any]) -> None:
        # The end is rounded, not the length: neighbours that touch must not overlap by a rounding.
        start, end = self._us(span.start), self._us(span.end)
        self._events.append(
            {"ph": "X", "pid": pid, "tid": tid, "ts": start, "dur": round(end - start, 3), "name": name, "args": args}
        )

    def request(self, pid: int, session: int, one: RequestTimes) -> None:
        stages = ("queue", "copy_in", "compute", "copy_out", "wake_up")
        args = {stage: f"{getattr(one, stage) * 1e3:.3f} ms" for stage in stages}
        common = {
            "pid": pid,
            "tid": 0,
            "cat": "request",
            "name": f"request #{one.number}",
            "id2": {"local": f"0x{session:x}{one.number:010x}"},
        }
        args["outcome"] = one.outcome
        self._events.append({**common, "ph": "b", "ts": self._us(one.submitted), "args": args})
        self._events.append({**common, "ph": "e", "ts": self._us(one.woken)})

    def arrows(self, name: str, stops: list[tuple[int, int, Span]]) -> None:
        """Arrows from each slice of a request to the next in time; they bind to the slice that their time is in."""
        # What took less than the clock tells apart has no inside for an arrow to bind to.
        stops = sorted((stop for stop in stops if stop[2].duration > 0), key=lambda stop: self._middle(stop[2]))
        for index, ((pid, tid, span), (to_pid, to_tid, to_span)) in enumerate(pairwise(stops)):
            common = {"cat": "request", "name": "request", "id": f"{name}.{index}"}
            self._events.append({**common, "ph": "s", "pid": pid, "tid": tid, "ts": self._middle(span)})
            self._events.append(
                {**common, "ph": "f", "bp": "e", "pid": to_pid, "tid": to_tid, "ts": self._middle(to_span)}
            )

    def finish(self) -> list[dict[str, Any]]:
        # At one time a slice must begin before an arrow looks for it.
        order = {"X": 0, "b": 0, "s": 1, "f": 1, "e": 2}
        self._events.sort(key=lambda event: (event["ts"], order[event["ph"]]))
        return [*self._about.values(), *self._events]

    def _meta(self, what: str, pid: int, tid: int, args: dict[str, Any]) -> None:
        self._about[what, pid, tid] = {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": what, "args": args}

    def _us(self, seconds: float) -> float:
        return round((seconds - self._origin) * 1e6, 3)

    def _middle(self, span: Span) -> float:
        return round((self._us(span.start) + self._us(span.end)) / 2, 3)
