"""Size classes: what sizes a pool allocates, so that a block that comes back fits the next request of that order."""

from __future__ import annotations

__all__ = ["HUGE_PAGE", "SMALLEST", "size_class"]

SMALLEST = 512
HUGE_PAGE = 2 << 20


def size_class(nbytes: int) -> int:
    """The size in bytes of the block that a request of `nbytes` gets; a multiple of 64.

    Up to 8 MiB there are four classes between a power of two and the next: at most a fifth of a block of more than 512
    bytes is not asked for. Above, a class is a multiple of 2 MiB, the huge page in which the driver allocates such
    blocks anyway (pyACL reference §8), so that large blocks waste nothing that could be used. There is no largest
    class: two sessions of one model want the same large blocks, and what bounds those that lie idle is the pool's bound
    in bytes.
    """
    if nbytes <= SMALLEST:
        return SMALLEST
    step = min(1 << ((nbytes - 1).bit_length() - 3), HUGE_PAGE)
    return -(-nbytes // step) * step
