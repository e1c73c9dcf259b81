"""The results of one inference, by index and by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from .signature import TensorSpec

__all__ = ["NamedOutputs", "Outputs"]

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")


class NamedOutputs(Sequence[T]):
    """A sequence in the order of a model's outputs that also takes their names."""

    __slots__ = ("_index", "_items", "_specs", "_synthetic")

    def __init__(
        self, items: Sequence[T], specs: tuple[TensorSpec, ...], index: dict[str, int], synthetic: bool = False
    ) -> None:
        self._items = tuple(items)
        self._specs = specs
        self._index = index
        self._synthetic = synthetic

    @property
    def synthetic(self) -> bool:
        """Whether nothing was computed: a dry run's outputs are made up, 0, 1, 2, ... 99, 0, 1, ..."""
        return self._synthetic

    @overload
    def __getitem__(self, key: int | str) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[T]: ...
    def __getitem__(self, key: int | str | slice) -> T | Sequence[T]:
        if isinstance(key, str):
            try:
                return self._items[self._index[key]]
            except KeyError:
                raise KeyError(f"no output is named {key!r}; there are {', '.join(self.keys())}") from None
        try:
            return self._items[key]
        except IndexError:
            raise IndexError(f"no output {key}; there are {len(self)}: {', '.join(self.keys())}") from None

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def keys(self) -> tuple[str, ...]:
        """The names of the outputs, in the model's order."""
        return tuple(spec.name for spec in self._specs)

    def items(self) -> Iterator[tuple[str, T]]:
        """Pairs of name and output, in the model's order."""
        return zip(self.keys(), self._items, strict=True)

    def __repr__(self) -> str:
        made_up = " (synthetic: a dry run computes nothing)" if self._synthetic else ""
        return f"<{type(self).__name__} {', '.join(map(str, self._specs))}{made_up}>"


class Outputs(NamedOutputs[Array]):
    """The output arrays of one inference: a sequence in the model's order that also takes names.

    The arrays belong to the caller: they never change and nothing else writes into them. `outputs["logits"]` finds an
    output by its name; `dict(outputs.items())` gives all of them.
    """

    __slots__ = ("_leased",)

    def __init__(
        self,
        items: Sequence[Array],
        specs: tuple[TensorSpec, ...],
        index: dict[str, int],
        synthetic: bool = False,
        *,
        leased: bool = False,
    ) -> None:
        # What the base does, without the call: every result of every inference comes through here.
        self._items = tuple(items)
        self._specs = specs
        self._index = index
        self._synthetic = synthetic
        self._leased = leased

    @property
    def leased(self) -> bool:
        """Whether the arrays lie over pinned memory, which serves again when the last array over it is gone."""
        return self._leased
