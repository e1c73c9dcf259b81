"""What happened and how long it took: statistics, stage timings and timelines of requests."""

from .recording import Recording, record
from .statistics import MemoryStatistics, PoolStatistics, SessionStatistics
from .summaries import Summary, percentile, summarize
from .timeline import RequestTimes, Span, Timeline

__all__ = [
    "MemoryStatistics",
    "PoolStatistics",
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
