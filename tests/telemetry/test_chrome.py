"""The trace file, judged by the rules of the viewer that reads it."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aioascend.telemetry import RequestTimes, Span, Timeline
from aioascend.telemetry.chrome import trace_events, trace_json

Events = list[dict[str, Any]]


def slices(events: Events) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Complete slices by track, in the order of time."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def check(events: Events) -> None:
    """What a trace needs so that nothing of it is dropped by the viewer."""
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    tracks = slices(events)
    for of_track in tracks.values():
        for before, after in pairwise(of_track):
            assert round(before["ts"] + before["dur"], 3) <= after["ts"], (before, after)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert set(tracks) <= named
    begun = [event["id2"]["local"] for event in events if event["ph"] == "b"]
    assert sorted(begun) == sorted(event["id2"]["local"] for event in events if event["ph"] == "e")
    assert len(set(begun)) == len(begun)
    arrows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
    for ends in arrows.values():
        assert [end["ph"] for end in ends] == ["s", "f"]
        for end in ends:
            inside = [one for one in tracks[end["pid"], end["tid"]] if one["ts"] <= end["ts"] < one["ts"] + one["dur"]]
            assert len(inside) == 1, end


def request(number: int, at: float, **changes: Any) -> RequestTimes:
    """A request that was submitted at `at` and went through 1 ms stages without waiting."""
    ms = 1e-3
    values: dict[str, Any] = {
        "number": number,
        "session": "m on npu:0",
        "instance": 0,
        "outcome": "completed",
        "submitted": at,
        "staging": Span(at + ms, at + 2 * ms),
        "launched": at + 2 * ms,
        "h2d": Span(at + 3 * ms, at + 4 * ms),
        "execute": Span(at + 4 * ms, at + 5 * ms),
        "d2h": Span(at + 5 * ms, at + 6 * ms),
        "told": at + 7 * ms,
        "done": at + 8 * ms,
        "woken": at + 9 * ms,
    }
    return RequestTimes(**{**values, **changes})


def timeline(*requests: RequestTimes) -> Timeline:
    return Timeline(requests, 0, {"m on npu:0": 1e-5})


def test_the_stages_of_a_request_add_up_to_its_total() -> None:
    one = request(1, 100.0)

    stages = {stage: round(getattr(one, stage) * 1e3, 6) for stage in ("copy_in", "compute", "copy_out", "wake_up")}
    assert stages == {"copy_in": 2, "compute": 1, "copy_out": 2, "wake_up": 2}
    assert round((one.queue + sum(stages.values()) / 1e3) * 1e3, 6) == round(one.total * 1e3, 6) == 9


def test_there_is_a_track_for_each_stream_and_one_for_the_host() -> None:
    events = trace_events(timeline(*(request(number, 100 + 0.01 * number) for number in range(5))))

    check(events)
    names = {event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")}
    assert names == {"host", "m on npu:0", "copy in (h2d)", "compute", "copy out (d2h)"}
    assert {track: len(found) for track, found in slices(events).items()} == {
        (1, 1): 10,
        (2, 1): 5,
        (2, 2): 5,
        (2, 3): 5,
    }


def test_arrows_lead_from_the_host_through_the_streams_and_back() -> None:
    events = trace_events(timeline(request(7, 100.0)))

    ends = [event for event in events if event["ph"] in "sf"]
    way = [(event["pid"], event["tid"]) for event in ends if event["ph"] == "s"]
    way.append((ends[-1]["pid"], ends[-1]["tid"]))
    assert way == [(1, 1), (2, 1), (2, 2), (2, 3), (1, 1)]


def test_requests_that_never_ran_and_work_too_short_to_see_do_no_harm() -> None:
    cancelled = request(
        1, 100.0, outcome="cancelled", staging=None, launched=None, h2d=None, execute=None, d2h=None, told=None
    )
    instant = request(2, 101.0, execute=Span(101.004, 101.004), d2h=Span(101.004, 101.004))

    check(trace_events(timeline(cancelled, instant)))
    check(trace_events(timeline()))


def test_instances_and_sessions_have_tracks_of_their_own() -> None:
    requests = (request(1, 100.0), request(2, 100.0, instance=1), request(3, 100.0, session="n on npu:1"))
    events = trace_events(Timeline(requests, 3, {"m on npu:0": 1e-5, "n on npu:1": 2e-5}))

    check(events)
    assert {(2, 2), (2, 5), (3, 2)} <= set(slices(events))


@given(
    st.lists(
        st.tuples(*(st.integers(0, 3000) for _ in range(9))),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_the_times_nothing_overlaps_and_every_arrow_binds(steps: list[tuple[int, ...]]) -> None:
    """Streams are first in, first out: each stage begins when its stream and the stage before are done."""
    us = 1e-6
    free = [0.0, 0.0, 0.0]
    at = 50.0
    requests = []
    for number, (gap, *lengths) in enumerate(steps):
        at += gap * us
        staged = Span(at, at + lengths[0] * us)
        ready = staged.end
        spans = []
        for stream in range(3):
            start = max(ready, free[stream])
            ready = free[stream] = start + lengths[1 + stream] * us
            spans.append(Span(start, ready))
        told = ready + lengths[5] * us
        requests.append(
            request(
                number,
                at,
                staging=staged,
                launched=staged.end,
                h2d=spans[0],
                execute=spans[1],
                d2h=spans[2],
                told=told,
                done=told + lengths[6] * us,
                woken=told + (lengths[6] + lengths[7]) * us,
            )
        )

    text = trace_json(timeline(*requests))

    check(json.loads(text)["traceEvents"])
