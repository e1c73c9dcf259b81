"""Arrays in files: reading inputs, and writing outputs under the names of their tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_LONGEST_NAME = 60


def read_npy(path: str) -> npt.NDArray[Any]:
    """Read one array of an .npy file; `OSError` where there is none, `ValueError` for a file that is no such file."""
    try:
        array = np.load(path, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # a damaged header fails in many ways: as text, as Python, as a shape, for memory
        raise ValueError(f"{path} is not a readable .npy file: {error}") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{path} is an .npz archive; wanted an .npy file of one array")
    return array


def file_names(names: Iterable[str]) -> list[str]:
    """Make one .npy file name of each tensor name: no separators, not hidden, distinct where case does not count."""
    taken: set[str] = set()
    made = []
    for name in names:
        stem = re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:_LONGEST_NAME] or "output"
        candidate, count = stem, 1
        while candidate.casefold() in taken:
            count += 1
            candidate = f"{stem}_{count}"
        taken.add(candidate.casefold())
        made.append(f"{candidate}.npy")
    return made


def write_npy(path: Path, array: npt.NDArray[Any]) -> None:
    """Write one array; `OSError` where that is not possible."""
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
