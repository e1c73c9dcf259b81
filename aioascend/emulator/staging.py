"""Pinned memory between a submission and the moment the host learns that the device is done with it.

What the host does to its own memory is invisible to an ``acl`` module. So the source of a queued copy is fingerprinted
when it is submitted, and compared when the copy runs and when the host learns that it has run: whoever wrote in between
did so too early, whether or not the copy happened to be faster. The destination of a queued copy gets a pattern that
nobody takes for a result.
"""

from __future__ import annotations

import ctypes

import numpy

from .happens_before import Use
from .memory import Block, fill_released

WHOLE = 8 << 10
"""Up to this size a fingerprint covers every byte: about 5 µs."""
_SAMPLES = 4 << 10
_ENDS = 512
_POISONED = 32 << 10
POISON = 0xFF
"""As a float of any width it is not a number, as an integer -1 or the largest."""


def fingerprint(address: int, count: int) -> int:
    """A hash of the bytes at a host-visible address.

    Of more than `WHOLE` bytes about 4,096 are looked at, a whole frame of 200 MB costs no more than a small one: those
    at both ends, and others at a distance that is odd, so that every byte of an element has its turn. What replaces a
    picture or a tensor by another one changes some of them; a change of few bytes may go unseen.
    """
    if count <= WHOLE:
        return hash(ctypes.string_at(address, count))
    view = numpy.frombuffer(memoryview((ctypes.c_ubyte * count).from_address(address)), numpy.uint8)
    sample = view[:: count // _SAMPLES | 1]
    return hash((view[:_ENDS].tobytes(), sample.tobytes(), view[-_ENDS:].tobytes()))


def poison(address: int, count: int) -> None:
    """Fill memory, of large memory both ends, with what is no result."""
    if count <= 2 * _POISONED:
        fill_released(address, POISON, count)
    else:
        fill_released(address, POISON, _POISONED)
        fill_released(address + count - _POISONED, POISON, _POISONED)


class Staged:
    """The source of one queued copy: `count` bytes of a pinned block from `start`, and what they looked like."""

    __slots__ = ("_print", "block", "count", "early", "start", "use")

    def __init__(self, use: Use, block: Block, start: int, count: int) -> None:
        self.use = use
        self.block = block
        self.start = start
        self.count = count
        self._print = fingerprint(start + block.delta, count)
        # the copy read other bytes than it was to read
        self.early = False

    def ran(self) -> None:
        """The copy is about to read its source, on a thread of the emulator's: any lock may be held."""
        self.early = self.changed()

    def changed(self) -> bool:
        """Whether the bytes are others now; not asked of memory that was freed."""
        return self.block.alive and fingerprint(self.start + self.block.delta, self.count) != self._print
