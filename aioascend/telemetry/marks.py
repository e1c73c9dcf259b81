"""What is noted of one request while it is on its way, in a recording."""

from __future__ import annotations

from time import perf_counter as now

__all__ = ["POINTS", "Marks", "now"]

POINTS = ("h2d from", "h2d to", "compute from", "compute to", "d2h from", "d2h to")
"""The places of `Marks.device_us`: what the events around the work of each stream tell."""


class Marks:
    """Host times (`time.perf_counter`, seconds) and device times (microseconds) of one request.

    Each attribute is written once, by the thread that is at that point of the request's way. 0.0: not reached.
    """

    __slots__ = (
        "copied_from",
        "copied_to",
        "device_us",
        "done",
        "instance",
        "launched",
        "number",
        "outcome",
        "patient",
        "submitted",
        "told",
        "woken",
    )

    def __init__(self, number: int, patient: bool) -> None:
        self.number = number
        self.patient = patient
        self.submitted = now()
        self.copied_from = 0.0
        self.copied_to = 0.0
        self.launched = 0.0
        self.instance = 0
        self.device_us: tuple[int, ...] | None = None
        self.told = 0.0
        self.done = 0.0
        self.woken = 0.0
        self.outcome = ""
