"""What happened and how long it took: statistics, stage timings and timelines of requests."""

from .recording import Recording, record
from .statistics import SessionStatistics
from .summaries import Summary, percentile, summarize
from .timeline import RequestTimes, Span, Timeline

__all__ = [
    "Recording",
    "RequestTimes",
    "SessionStatistics",
    "Span",
    "Summary",
    "Timeline",
    "percentile",
    "record",
    "summarize",
]
