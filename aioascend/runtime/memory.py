"""Buffers one level below a session: device memory and pinned memory, lent by the device's pools."""

from __future__ import annotations

import math
import weakref
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np

from ..errors import ForkedProcess, SessionClosed, StaleLease
from ..memory.blocks import Array, ArrayInterface, DeviceBlock, PinnedBlock
from . import process
from .background import in_background, wait_for
from .core import DeviceCore
from .handles import Kept
from .uncopyable import Uncopyable

__all__ = ["Buffer", "DeviceBuffer", "PinnedBuffer"]

BufferT = TypeVar("BufferT", bound="Buffer")


class User(Protocol):
    """A stream, as far as memory is concerned: how much was queued on it, and how much of that is done."""

    queued: int
    passed: int

    def is_idle(self) -> bool:
        """Whether nothing is under way on it, as far as it can tell, or it hangs; control thread, hardly blocks."""

    def drain_blocking(self) -> bool:
        """Block until the stream is empty; control thread. False if it hangs."""


class Holding(Kept):
    """The memory of a buffer and the streams that were given it; outlives the buffer until no stream may touch it."""

    def __init__(self, core: DeviceCore, block: DeviceBlock, what: str) -> None:
        super().__init__(core)
        self._what = what
        self.block = block
        self._marks: dict[User, int] = {}  # how much was queued on a stream when it was last given the memory
        self._under_way: list[None] = []  # one for each use that is on its way to the device thread

    def announce(self) -> None:
        """A use is about to be queued; from any thread. `over` follows when it was."""
        self._under_way.append(None)

    def used_by(self, stream: User) -> None:
        """Queued work of `stream` refers to the memory."""
        self._marks[stream] = stream.queued

    def over(self) -> None:
        """What was announced has been queued, or will not be."""
        self._under_way.pop()

    @property
    def at_rest(self) -> bool:
        """Whether the host knows that every queued use is over."""
        return not self._under_way and all(stream.passed >= mark for stream, mark in list(self._marks.items()))

    def release_now(self) -> bool:
        """Give the memory back at once, if every use is over: whether it was; from any thread, finalizers included."""
        if not self.released:
            if not self.at_rest:
                return False
            self.released = self._given_back = True
            self.on_release()
            self._give_back()
        return True

    def dropped(self) -> None:
        """Nobody refers to the buffer any more; a finalizer, on any thread."""
        if self.release_now():
            return

        def release(_: None) -> None:
            self._core.control(self._core.quietly, self.drop)

        try:
            self._core.post(release, None)
        except (SessionClosed, ForkedProcess):
            pass  # it went with its device, or is the parent's

    def is_idle(self) -> bool:
        """Whether no stream may touch it any more, or those that may hang; control thread."""
        self._await_queueing()
        return all(stream.passed >= mark or stream.is_idle() for stream, mark in self._marks.items())

    def _await_queueing(self) -> None:
        if self._under_way:
            self._core.call(lambda: None).result()  # by then they are queued

    def _release(self) -> None:
        self._await_queueing()
        # All of them, whatever became of the first.
        drained = [stream.passed >= mark or stream.drain_blocking() for stream, mark in self._marks.items()]
        if all(drained):
            self._give_back()
        else:
            self.block.abandon()
            self._core.teardown.note(f"a {self._what} of {self._core.name}, which a stream that hangs may touch, stays")

    def _give_back(self) -> None:
        self.block.release()

    def __str__(self) -> str:
        return f"{self._what} of {self.block.nbytes} bytes"


class PinnedHolding(Holding):
    """The same for pinned memory, over which arrays may be alive."""

    block: PinnedBlock

    def __init__(self, core: DeviceCore, block: PinnedBlock, buffer: PinnedBuffer, owner: ArrayInterface) -> None:
        super().__init__(core, block, buffer.what)
        self._buffer = weakref.ref(buffer)
        self._seen = weakref.ref(owner)

    def go_stale(self) -> None:
        """The memory stays until the release: somebody may be looking at the array, which cannot be taken back."""

    def release_now(self) -> bool:
        """Give the memory back at once, if every use is over and no array over it is alive: whether it was."""
        if not self.released and self.at_rest and self._owner() is not None:
            return False  # the device has to stay open for the arrays, which may mean to wait for a lock
        return super().release_now()

    def _owner(self) -> ArrayInterface | None:
        """What arrays over the memory keep alive, once the buffer has let go of its own."""
        buffer = self._buffer()
        if buffer is not None:
            buffer.hide()
        return self._seen()

    def _give_back(self) -> None:
        owner = self._owner()
        if owner is None:
            self.block.release()
            return
        process.retain(self._core)
        weakref.finalize(
            owner, in_background, "aioascend-close", partial(_give_back_late, self._core, self.block)
        ).atexit = False


def _give_back_late(core: DeviceCore, block: DeviceBlock) -> None:
    """Give back a block that was released before the last array over it was gone; in a thread of its own."""
    try:
        block.release()
    finally:
        process.leave(core)


class Buffer(Uncopyable):
    """Memory that a stream may still be using: its release waits for the streams that were given it.

    Released at the end of ``async with await device.malloc(nbytes) as memory:``, by `release`, or by itself when nobody
    refers to it any more.
    """

    what = "buffer"

    def __init__(self, core: DeviceCore, holding: Holding) -> None:
        self._core = core
        self._generation = core.generation
        self.holding = holding
        self.nbytes = holding.block.nbytes

    @property
    def core(self) -> DeviceCore:
        """The device that it is on."""
        return self._core

    @property
    def address(self) -> int:
        """The address, for use with other libraries; raises `StaleLease` after the release."""
        self.check()
        return self.holding.block.address

    def check(self) -> None:
        """Raise `StaleLease` unless the buffer may be used."""
        if self.holding.released:
            raise self._was_released()
        self._core.check_generation(self._generation, self.what)

    def _was_released(self) -> StaleLease:
        return StaleLease(f"this {self.what} of {self._core.name} was released; make a new one")

    async def release(self) -> None:
        """Give the memory back for others to use, after the device is done with it; a second call does nothing.

        Returns at once when every copy from or to it was waited for.
        """
        if not self.holding.release_now():
            await wait_for(self.holding.release_soon())

    async def __aenter__(self: BufferT) -> BufferT:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()


class DeviceBuffer(Buffer):
    """`nbytes` bytes of device memory with undefined contents; the host cannot touch them."""

    what = "device buffer"

    def __init__(self, core: DeviceCore, block: DeviceBlock) -> None:
        super().__init__(core, Holding(core, block, self.what))
        weakref.finalize(self, self.holding.dropped).atexit = False


class PinnedBuffer(Buffer):
    """Page-locked host memory, zeroed at first; `array` is a numpy array over it.

    An array that somebody still holds after the release stays readable: the memory is given back, and its device
    closed, when the last array over it is gone.
    """

    what = "pinned buffer"

    def __init__(self, core: DeviceCore, block: PinnedBlock, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        nbytes = math.prod(shape) * dtype.itemsize
        owner = ArrayInterface(block.address, nbytes)
        super().__init__(core, PinnedHolding(core, block, self, owner))
        raw: Array = np.asarray(owner)
        self._array: Array | None = raw.view(dtype).reshape(shape)
        weakref.finalize(owner, self.holding.dropped).atexit = False

    @property
    def array(self) -> Array:
        """The memory as an array of the dtype and shape that were asked for; raises `StaleLease` after the release."""
        self.check()
        array = self._array
        if array is None:  # on its way
            raise self._was_released()
        return array

    def hide(self) -> None:
        """Let go of the array."""
        self._array = None
