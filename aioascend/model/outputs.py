"""The results of one inference, by index and by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from .signature import TensorSpec

__all__ = ["Outputs"]

Array = np.ndarray[Any, np.dtype[Any]]


class Outputs(Sequence[Array]):
    """The output arrays of one inference: a sequence in the model's order that also takes names.

    The arrays belong to the caller: they never change and nothing else writes into them. `outputs["logits"]` finds an
    output by its name; `dict(outputs.items())` gives all of them.
    """

    __slots__ = ("_arrays", "_index", "_specs", "_synthetic")

    def __init__(
        self, arrays: Sequence[Array], specs: tuple[TensorSpec, ...], index: dict[str, int], synthetic: bool = False
    ) -> None:
        self._arrays = tuple(arrays)
        self._specs = specs
        self._index = index
        self._synthetic = synthetic

    @property
    def synthetic(self) -> bool:
        """Whether nothing was computed: a dry run's outputs are made up, 0, 1, 2, ... 99, 0, 1, ..."""
        return self._synthetic

    @overload
    def __getitem__(self, key: int | str) -> Array: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Array]: ...
    def __getitem__(self, key: int | str | slice) -> Array | Sequence[Array]:
        if isinstance(key, str):
            try:
                return self._arrays[self._index[key]]
            except KeyError:
                raise KeyError(f"no output is named {key!r}; there are {', '.join(self.keys())}") from None
        try:
            return self._arrays[key]
        except IndexError:
            raise IndexError(f"no output {key}; there are {len(self)}: {', '.join(self.keys())}") from None

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[Array]:
        return iter(self._arrays)

    def keys(self) -> tuple[str, ...]:
        """The names of the outputs, in the model's order."""
        return tuple(spec.name for spec in self._specs)

    def items(self) -> Iterator[tuple[str, Array]]:
        """Pairs of name and array, in the model's order."""
        return zip(self.keys(), self._arrays, strict=True)

    def __repr__(self) -> str:
        made_up = " (synthetic: a dry run computes nothing)" if self._synthetic else ""
        return f"<Outputs {', '.join(map(str, self._specs))}{made_up}>"
