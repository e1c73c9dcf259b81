"""Pinned input memory that callers write into themselves, so that nothing is copied on the host.

A lease ends when its holder has let go of it, no request over it is unfinished, *and* no array over its memory is
alive: a numpy array cannot be taken back, so a buffer that somebody still sees is never handed to the next caller.

The pool is bounded and apart from the buffers of the copy stage, so that holders who take their time hold up nobody
else; nor each other: when every pinned buffer is lent, the next holder gets ordinary memory, whose runs cost the copy
that pinned memory spares. That is bounded too, in bytes, and only past that bound does a holder wait for its turn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import AioascendError, ForkedProcess, SessionClosed, StaleLease, again
from ..memory.layout import Layout
from ..memory.tracing import caller, told
from ..model import TensorSpec
from .buffers import InputBuffer
from .core import DeviceCore
from .signal import Signal

if TYPE_CHECKING:
    from .request import Request

__all__ = ["Lease", "LeasePool"]

logger = logging.getLogger("aioascend.runtime")


class Lease:
    """One holder's claim on a pinned input buffer, from the moment it asks."""

    __slots__ = (
        "abandoned",
        "arrays_alive",
        "buffer",
        "error",
        "generation",
        "granted",
        "held",
        "lending",
        "ordinary",
        "place",
        "pool",
        "unfinished",
    )

    def __init__(self, place: str | None = None) -> None:
        self.place = place  # where it was asked for, if that is traced
        self.granted = Signal()
        self.error: AioascendError | None = None
        self.buffer: InputBuffer | None = None
        self.generation = 0  # of the device's context, when the buffer was made
        self.lending = 0  # of the buffer, while it is this lease's
        self.ordinary = False  # no buffer was free: the holder has memory of its own
        self.abandoned = False
        self.held = False
        self.arrays_alive = False
        self.unfinished: set[Request] = set()  # over this buffer, queued or on the device
        self.pool: LeasePool | None = None


class LeasePool:
    """The pinned buffers for callers of one session; its methods run on the device thread unless they say otherwise."""

    def __init__(
        self, core: DeviceCore, layout: Layout, specs: tuple[TensorSpec, ...], *, limit: int, ordinary_bytes: int
    ) -> None:
        self._core = core
        self._layout = layout
        self._specs = specs
        self._room = self._limit = limit
        self._nbytes = sum(spec.nbytes for spec in specs)
        self._ordinary_bytes = ordinary_bytes
        self._free: list[InputBuffer] = []
        self._idle: list[InputBuffer] = []  # to be freed, since the context goes
        self._held = False
        self._refused: AioascendError | None = None
        self._queue: deque[Lease] = deque()
        self._lent: dict[Lease, None] = {}
        self._closed: str | None = None
        self._on_all_back: Callable[[], object] | None = None

    # -- from any thread --------------------------------------------------------------------------------------------

    @property
    def leased(self) -> int:
        """How many buffers are in callers' hands."""
        return len(self._lent)

    def place(self) -> str | None:
        """The line of the program that asks for a lease, if that is traced."""
        return caller() if self._core.pools.tracing else None

    def ask(self, lease: Lease) -> None:
        """Queue for a buffer; `lease.granted` is set when there is one, or an error; from any thread."""
        self._core.post(self._ask, lease)

    def let_go(self, lease: Lease) -> None:
        """The holder is done with the lease, or never waited for it to the end; from any thread."""
        lease.abandoned = True
        self._post(self._let_go, lease)

    def arrays_dropped(self, lease: Lease) -> None:
        """The last array over the lease's memory is gone; from any thread, finalizers included."""
        self._post(self._arrays_dropped, lease)

    def _post(self, function: Callable[[Lease], None], lease: Lease) -> None:
        try:
            self._core.post(function, lease)
        except (SessionClosed, ForkedProcess):
            pass  # the buffers went with the session, or are the parent's

    # -- device thread ----------------------------------------------------------------------------------------------

    def _ask(self, lease: Lease) -> None:
        lease.pool = self
        if self._closed is not None:
            lease.error = SessionClosed(self._closed)
            lease.granted.set(self._core.touch)
        elif self._refused is not None:
            lease.error = again(self._refused)
            lease.granted.set(self._core.touch)
        elif self._held:
            self._queue.append(lease)
        elif self._free:
            self._grant(lease, self._free.pop())
        elif self._room:
            self._room -= 1
            self._core.control(self._make, lease)
        elif self._nbytes <= self._ordinary_bytes:
            self._ordinary_bytes -= self._nbytes
            lease.ordinary = lease.held = True
            lease.granted.set(self._core.touch)
        else:
            self._queue.append(lease)

    def _make(self, lease: Lease) -> None:
        # On the control thread: allocating pinned memory is slow.
        try:
            self._core.recovery.check()
            block = self._core.memory.retrying(self._core.pools.pinned.take, self._layout.nbytes, lease.place)
            buffer = InputBuffer(block, self._layout, self._specs)
            buffer.generation = self._core.generation
        except BaseException as failure:
            # A name of its own: that of an except clause is gone when the post runs.
            error = failure if isinstance(failure, AioascendError) else AioascendError(f"pinned memory: {failure!r}")

            def failed(_: None) -> None:
                self._room += 1
                lease.error = error
                lease.granted.set(self._core.touch)
                self._serve_next()

            self._core.post(failed, None)
            return
        self._core.post(lambda made: self._grant(lease, made), buffer)

    def _grant(self, lease: Lease, buffer: InputBuffer) -> None:
        if self._closed is not None:
            lease.error = SessionClosed(self._closed)
            lease.granted.set(self._core.touch)
            self._pass_on(buffer)
            return
        if lease.abandoned:
            self._pass_on(buffer)
            return
        buffer.lendings += 1
        lease.buffer, lease.lending = buffer, buffer.lendings
        lease.generation = buffer.generation
        lease.held = True
        self._lent[lease] = None
        lease.granted.set(self._core.touch)

    def _pass_on(self, buffer: InputBuffer) -> None:
        if self._closed is not None or buffer.generation != self._core.generation:
            self._give_back(buffer)
            return
        if self._held:
            self._idle.append(buffer)
            return
        while self._queue:
            lease = self._queue.popleft()
            if not lease.abandoned:
                self._grant(lease, buffer)
                return
        self._free.append(buffer)

    def _give_back(self, buffer: InputBuffer) -> None:
        """To the device's pool, unless a stream that hangs may still read it; from any thread."""
        if self._core.teardown.stuck:
            buffer.block.abandon()
        else:
            buffer.block.release()

    def _let_go(self, lease: Lease) -> None:
        lease.held = False
        self.reclaim(lease)

    def _arrays_dropped(self, lease: Lease) -> None:
        lease.arrays_alive = False
        self.reclaim(lease)

    def ended(self, request: Request) -> None:
        """A request over a lease has its outcome, or was copied out of it; a second call does nothing."""
        lease = request.lease
        if lease is not None and request in lease.unfinished:
            lease.unfinished.discard(request)
            self.reclaim(lease)

    def reclaim(self, lease: Lease) -> None:
        """Hand the buffer on if nothing refers to it any more."""
        if lease.held or lease.unfinished:
            return
        if lease.ordinary:
            lease.ordinary = False
            self._ordinary_bytes += self._nbytes
            self._serve_next()
        elif lease.buffer is not None and not lease.arrays_alive:
            buffer, lease.buffer = lease.buffer, None
            del self._lent[lease]
            self._pass_on(buffer)
            if not self.leased and self._on_all_back is not None:
                self._on_all_back()

    def when_all_back(self, function: Callable[[], object]) -> bool:
        """True when no buffer is lent; else call `function` once the last one is back; device thread, after `stop`.

        Pinned memory is freed in the context that it was made in, which must be there as long as arrays over it are.
        """
        if not self.leased:
            return True
        self._on_all_back = function
        return False

    def _serve_next(self) -> None:
        """Somebody who waits may have more luck now."""
        while self._queue:
            waiting = self._queue.popleft()
            if not waiting.abandoned:
                self._ask(waiting)
                return

    def check(self, lease: Lease, buffer: InputBuffer | None) -> None:
        """Raise `StaleLease` unless the holder may have a run made from `buffer`, or where None from its own memory."""
        lent = buffer is None or buffer.lendings == lease.lending
        if not lease.held or buffer is not lease.buffer or not lent:
            raise StaleLease("run() on memory that was given back: make another request")
        self.check_present(lease)

    def give_back_idle(self) -> None:
        """Give the buffers that are lent to nobody back to the device's pool; control thread."""

        def take() -> list[InputBuffer]:
            idle, self._free = self._free, []
            self._room += len(idle)
            return idle

        try:
            idle = self._core.call(take).result()
        except SessionClosed:
            return
        for buffer in idle:
            self._give_back(buffer)

    def check_present(self, lease: Lease) -> None:
        """Raise `StaleLease` when the context that the lease's memory belongs to is gone; from any thread."""
        if not lease.ordinary:
            self._core.check_generation(lease.generation, "pinned input memory")

    def resize(self, limit: int) -> None:
        """From now on there may be `limit` buffers; nothing is lent."""
        self._room += limit - self._limit
        self._limit = limit

    def hold(self) -> None:
        """Lend nothing: the context is going, and the idle buffers with it."""
        self._held = True
        self._idle += self._free
        self._free.clear()

    def resume(self, refused: AioascendError | None) -> None:
        """Lend again, or with an error refuse everybody with copies of it."""
        self._held = refused is not None
        self._refused = refused
        self._room = self._limit
        queue, self._queue = self._queue, deque()
        for lease in queue:
            if not lease.abandoned:
                self._ask(lease)

    def stop(self, reason: str) -> None:
        """Refuse new leases and those that wait."""
        self._closed = reason
        while self._queue:
            lease = self._queue.popleft()
            lease.error = SessionClosed(reason)
            lease.granted.set(self._core.touch)

    def close(self) -> None:
        """Give back the buffers that nobody sees; control thread. The others follow with the last array over them."""
        for buffers in (self._idle, self._free):
            while buffers:
                self._give_back(buffers.pop())
        if self.leased and self._closed is not None:
            logger.warning(
                "%d pinned input buffer%s of a closed session stay%s allocated, and the device open, while arrays over "
                "them, or requests that were not left, are alive",
                self.leased,
                "s" * (self.leased > 1),
                "s" * (self.leased == 1),
            )
            for lease in self._lent:
                if lease.place is not None:
                    logger.warning("a pinned input buffer of a closed session is not given back, %s", told(lease.place))
