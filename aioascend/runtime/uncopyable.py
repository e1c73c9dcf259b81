"""Objects that stand for something on a device and cannot be had twice."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

__all__ = ["Uncopyable"]


class Uncopyable:
    """Refuses `copy.copy`, `copy.deepcopy` and `pickle`: a copy would close or release what the original uses."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{self!r} stands for something on a device and cannot be copied or pickled; make another one")
