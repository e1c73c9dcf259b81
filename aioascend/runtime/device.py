"""`Device`: a device opened for use one level below a session."""

from __future__ import annotations

import logging
import math
import operator
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from .. import driver
from ..errors import AclError, AioascendError, InvalidInput, SessionClosed
from ..memory.blocks import DeviceBlock, PinnedBlock
from ..memory.pool import MemoryPool
from ..memory.tracing import caller, told
from ..scheduling.watchdog import Sight
from ..telemetry.statistics import MemoryStatistics
from . import process
from .background import in_background, wait_for
from .core import DeviceCore
from .handles import Handle, Kept
from .lane import Lane
from .memory import Buffer, DeviceBuffer, Holding, PinnedBuffer
from .request import Request
from .residents import Casualty
from .stream import Event, Stream, numpy_shape
from .uncopyable import Uncopyable

__all__ = ["Device"]

logger = logging.getLogger("aioascend.runtime")

H = TypeVar("H", bound="Handle | Buffer")
BlockT = TypeVar("BlockT", bound=DeviceBlock)
BufferT = TypeVar("BufferT", bound=Buffer)

_CLOSE_S = 4.0
_LOOK_S = 0.001  # until the next look at a stream that is not empty; twice as long each time, up to
_LATEST_LOOK_S = 0.1
_INLINE_BYTES = 1 << 20
"""Up to this size pinned memory is zeroed on the caller's thread."""

_MOST_BYTES = 1 << 62
"""More is no size of anything, and would be cut down to fit a size_t."""


class Device(Uncopyable):
    """One device with its streams, events and buffers; ``async with aioascend.Device("npu:0") as device:``.

    Shares the device's threads and context with the sessions of the process. What was made through it is released when
    it is closed, in reverse order and after the device is done with it, for which a close waits up to 4 s: synchronize
    streams with longer work before. What has not ended by then is aborted where the product can, else left behind.
    """

    def __init__(self, name: str = "auto") -> None:
        self._asked = name
        self._core: DeviceCore | None = None
        self._handles = _Handles()
        self._opening: Future[DeviceCore] | None = None
        self._forks = 0  # of this process, when the open began
        self._closed: Future[None] | None = None

    @property
    def name(self) -> str:
        """The device's name, such as ``"npu:0"``; before the open, what was asked for."""
        return self._core.name if self._core is not None else self._asked

    @property
    def generation(self) -> int:
        """Counts the contexts the device has had: handles of an earlier one are refused."""
        return self._open_core().generation

    async def open(self) -> None:
        """Open the device; raises `BackendUnavailable`, `InvalidInput`, `AclError`."""
        if self._opening is not None or self._closed is not None:
            raise SessionClosed(f"{self!r}: a device object is opened once")
        process.before_open()
        self._forks = process.forks()
        self._opening = in_background("aioascend-open", partial(_open, self._asked, self._handles))
        try:
            self._core = await wait_for(self._opening)
        except BaseException:
            self._begin_close()
            raise
        if self._closed is not None:
            raise SessionClosed(f"{self!r} was closed while it was being opened")

    async def aclose(self) -> None:
        """Release everything that was made through it, then leave the device; safe to call again."""
        if self._opening is not None and not self._inherited and not process.exiting():
            await wait_for(self._begin_close())

    def _begin_close(self) -> Future[None]:
        opening = self._opening
        assert opening is not None
        if self._closed is None:
            self._closed = in_background("aioascend-close", partial(_close, opening, self._handles))
        return self._closed

    @property
    def _inherited(self) -> bool:
        """Whether this process was forked from the one that opened the device."""
        return self._opening is not None and self._forks != process.forks()

    async def __aenter__(self) -> Device:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def create_stream(self) -> Stream:
        """A new stream."""
        return await self._make(lambda core: Stream(core))

    async def create_event(self, *, timing: bool = False) -> Event:
        """A new event; `timing` lets `Event.elapsed` use it, at some cost on the device."""
        return await self._make(lambda core: Event(core, timing))

    async def malloc(self, nbytes: int) -> DeviceBuffer:
        """Device memory; raises `OutOfMemory`, and `InvalidInput` for a size below 1.

        Comes from the device's pool: where memory of about this size was released before, no ACL call is made.
        """
        try:
            size = operator.index(nbytes)
        except TypeError:
            raise InvalidInput(f"malloc: wanted a whole number of bytes, given {nbytes!r}") from None
        if size < 1:
            raise InvalidInput(f"malloc: wanted at least 1 byte, given {size}")
        _addressable("malloc", size)
        core = self._open_core()
        place = caller() if core.pools.tracing else None
        buffer = self._lend_idle(core, core.pools.device, size, place, DeviceBuffer)
        if buffer is not None:
            return buffer
        return await self._make(lambda core: DeviceBuffer(core, core.pools.device.take(size, place)))

    async def malloc_host(self, shape: int | Sequence[int], dtype: Any = np.uint8) -> PinnedBuffer:
        """Page-locked host memory for an array of this shape and dtype; raises `OutOfMemory` and `InvalidInput`.

        Comes from the device's pool as `malloc`'s does.
        """
        try:
            kind = np.dtype(dtype)
            sizes = numpy_shape(shape)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"malloc_host: no array of dtype {dtype!r} and shape {shape!r}: {error}") from None
        nbytes = math.prod(sizes) * kind.itemsize
        if nbytes < 1 or min(sizes, default=1) < 1 or kind.hasobject:
            raise InvalidInput(f"malloc_host: {kind} of shape {sizes} has no bytes to lock")
        _addressable("malloc_host", nbytes)
        core = self._open_core()
        place = caller() if core.pools.tracing else None

        def wrap(core: DeviceCore, block: PinnedBlock) -> PinnedBuffer:
            return PinnedBuffer(core, block, kind, sizes)

        if nbytes <= _INLINE_BYTES:
            buffer = self._lend_idle(core, core.pools.pinned, nbytes, place, wrap)
            if buffer is not None:
                return buffer
        return await self._make(lambda core: wrap(core, core.pools.pinned.take(nbytes, place)))

    def memory_statistics(self) -> MemoryStatistics:
        """What is allocated on the device, by everybody who uses it in this process; from any thread, never blocks."""
        return self._open_core().pools.statistics()

    async def trim_memory(self) -> int:
        """Free the memory that lies idle in the pools; how many bytes that were.

        It happens by itself when memory runs out, and when the last user closes the device.
        """
        core = self._open_core()
        return await wait_for(core.control(core.memory.relieve))

    async def rebuild(self) -> None:
        """Tear the device's context down and make a new one, of the next `generation`, after what runs is done.

        Sessions on the device load their models again from where they had them and carry on: requests that wait are
        kept. Streams, events, buffers and pinned inputs made before raise `StaleLease`; an array over pinned memory
        stays readable until its buffer is released. Others in the process who use the device are left alone: only what
        aioascend has set is undone. It happens by itself when a failure has left the context dead.

        Raises the `AclError` of the first failing step; the device is then probed again and again. Raises
        `ModelLoadError` when a session's model cannot be loaded again.
        """
        await wait_for(self._open_core().recovery.rebuild())

    async def _make(self, make: Callable[[DeviceCore], H]) -> H:
        core = self._open_core()

        def make_and_keep() -> H:
            core.recovery.check()
            handle = core.memory.retrying(make, core)
            if self._closed is not None:
                core.quietly(_kept(handle).release_blocking)
                raise SessionClosed(f"{self!r} was closed meanwhile")
            self._handles.add(_kept(handle))
            return handle

        return await wait_for(core.control(make_and_keep))

    def _lend_idle(
        self,
        core: DeviceCore,
        pool: MemoryPool[BlockT],
        nbytes: int,
        place: str | None,
        wrap: Callable[[DeviceCore, BlockT], BufferT],
    ) -> BufferT | None:
        """A buffer of idle memory, made on this thread; None where the control thread has to be asked."""
        handles = self._handles
        with handles.lock:
            # A context that goes, or a close, has either not begun to give back what is kept, or is known here.
            if not core.valid or handles.closed:
                return None
            block = pool.take_idle(nbytes, place)
            if block is None:
                return None
            buffer = wrap(core, block)
            handles.add(buffer.holding)
        return buffer

    def _open_core(self) -> DeviceCore:
        core = self._core
        if self._opening is not None:
            process.check_forks(self._forks, self.name)
        if core is None or self._closed is not None:
            raise SessionClosed(f"{self!r} is not open: use `async with`, or await device.open() first")
        return core

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or process.exiting() or self._closed is not None or self._inherited:
            return
        text = f"{self!r} was never closed"
        self._begin_close()  # first: warnings may be errors
        warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        state = "closed" if self._closed is not None else "new" if self._core is None else "open"
        return f"<aioascend.Device {self.name}: {state}>"


class _Handles:
    """What was made through one device object, in order; a resident of the device's context."""

    def __init__(self) -> None:
        self._handles: dict[Kept, None] = {}
        self._core: DeviceCore
        self.lock = threading.Lock()  # held while something is made elsewhere than on the control thread
        self.closed = False

    def join(self, core: DeviceCore) -> None:
        """The device is open; in any thread but its own."""
        self._core = core
        core.control(core.recovery.join, self).result()

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, handle: Kept) -> None:
        """Remember a handle until its release; it must not keep the device object alive, nor a buffer."""
        handles = self._handles
        handles[handle] = None
        handle.on_release = lambda: handles.pop(handle, None)

    def release(self, core: DeviceCore) -> None:
        """Release everything, the latest first; not for the control thread."""
        with self.lock:
            self.closed = True
        for handle in list(self._handles):
            if isinstance(handle, Holding) and not handle.released and (place := handle.block.place) is not None:
                logger.warning("%s is closed with a %s not released, %s", core.name, handle, told(place))
        end, pause = time.monotonic() + _CLOSE_S, _LOOK_S
        while self._handles:
            if core.control(self._release_latest, core).result():
                pause = _LOOK_S
            elif time.monotonic() < end:
                time.sleep(pause)
                pause = min(2 * pause, _LATEST_LOOK_S)
            else:
                core.control(self._give_up, core).result()

    def _release_latest(self, core: DeviceCore) -> bool:
        # Chosen on the control thread: a rebuild that comes first must find every handle that is not released.
        latest = next(iter(self._latest_first()), None)
        if latest is None:
            return True
        latest.released = True  # nothing more is queued on it, or for it
        if not latest.is_idle():
            return False
        core.quietly(latest.release_blocking)
        self._handles.pop(latest, None)  # where it was released on another thread meanwhile
        return True

    def _give_up(self, core: DeviceCore) -> None:
        """Release what is left, with the streams that hang aborted, ended by force or left behind."""
        logger.warning(
            "%s is closed while work on its streams has not ended in %g s: it is given up", core.name, _CLOSE_S
        )
        with core.bounded(0.0):
            for handle in self._streams_first():
                core.quietly(handle.release_blocking)
                self._handles.pop(handle, None)

    def _latest_first(self) -> list[Kept]:
        with self.lock:
            return list(reversed(list(self._handles)))

    def _streams_first(self) -> list[Kept]:
        # One that hangs may be destroyed by force, which ends what it does to the memory.
        return sorted(self._latest_first(), key=lambda one: not isinstance(one, Stream))

    # What the recovery asks of a resident. Its owner decides what runs on its streams: nothing is waited for or kept.

    at_rest = True
    worked = 0

    def give_up_lost(self, error: AclError) -> None:
        """It has no requests."""

    def knows(self, request: Request) -> bool:
        """There are no requests."""
        return False

    def sights(self) -> dict[Lane, Sight]:
        """There are no lanes: their owner waits as long as he likes."""
        return {}

    def hold(self) -> None:
        """Nothing starts by itself."""

    def retire(self, cause: AclError | None) -> list[Casualty]:
        """There are no requests."""
        return []

    def recall(self, innocent: list[Request]) -> None:
        """There are no requests."""

    def save(self) -> None:
        """Nothing is kept."""

    def dismantle(self) -> None:
        """Give back everything but pinned memory, which arrays may lie over."""
        for handle in self._streams_first():
            self._core.quietly(handle.go_stale)

    def restore(self) -> None:
        """Handles stay stale: nobody but their owner knows what was in them."""

    def resume(self) -> None:
        """Nothing was held."""

    def refuse(self, error: AioascendError) -> None:
        """Nobody waits."""

    def fail(self, request: Request, error: AioascendError) -> None:
        """There are no requests."""

    def run_alone(self, request: Request, then: Callable[[], None]) -> None:
        """There are no requests."""


def _kept(made: Handle | Buffer) -> Kept:
    return made.holding if isinstance(made, Buffer) else made


def _open(asked: str, handles: _Handles) -> DeviceCore:
    """Open the device; in a thread of its own."""
    names = driver.resolve(asked)
    if len(names) != 1:
        raise InvalidInput(f"{asked!r} means {len(names)} devices; name one")
    core, started = process.acquire(names[0])
    try:
        started.result()
        handles.join(core)
    except BaseException:
        process.leave(core)
        raise
    return core


def _close(opening: Future[DeviceCore], handles: _Handles) -> None:
    """Release the handles in reverse order and leave the device; in a thread of its own."""
    if opening.exception() is not None:
        return  # nothing was left behind
    core = opening.result()
    handles.release(core)
    core.control(core.recovery.leave, handles).result()
    process.leave(core)


def _addressable(call: str, nbytes: int) -> None:
    if nbytes > _MOST_BYTES:
        raise InvalidInput(f"{call}: wanted at most {_MOST_BYTES} bytes, as an address can tell apart, given {nbytes}")
