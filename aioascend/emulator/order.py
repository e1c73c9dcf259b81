"""Which queued work is certain to come after which: by its stream, or by the events between streams."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from .device_model import Work
from .engine import Engine
from .model import Model
from .streams import Stream
from .tasks import LegacyWait, Record, Wait


def runs_after(stream: Stream, other: Model, engine: Engine) -> bool:
    """Whether a run put on `stream` now begins only when what is queued of `other`, on another stream, has ended."""
    source = other.stream
    if source is None:
        return True
    with engine.lock:
        places = [n for n, task in enumerate(source.queue) if isinstance(task, Work) and task.unit is other]
        return not places or follows(stream, source, places[-1], other.context.device.all_streams())


def follows(target: Stream, source: Stream, place: int, streams: Iterable[Stream]) -> bool:
    """Whether what is put on `target` now waits for the task at `place` in the queue of `source`.

    The lock of the engine is held. A wait holds up everything after it on its stream, the records there included, so
    that the order is passed on from stream to stream.
    """
    everywhere = tuple(streams)
    reached = {source: place}
    pending = [source]
    while pending:
        stream = pending.pop()
        records = [task for task in islice(stream.queue, reached[stream], None) if isinstance(task, Record)]
        markers = {record.marker for record in records}
        events = {record.event for record in records}
        for other in everywhere:
            for position, task in enumerate(islice(other.queue, reached.get(other))):
                if (isinstance(task, Wait) and task.marker in markers) or (
                    isinstance(task, LegacyWait) and task.event in events and not task.event.raised
                ):
                    if other is target:
                        return True
                    reached[other] = position
                    pending.append(other)
                    break
    return False
