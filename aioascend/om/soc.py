"""Whether a model compiled for one chip may run on another, by their names."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["Verdict", "compare_chips"]

Verdict = Literal["same", "unsure", "different"]

# Names of one architecture of the AI core. "910B" without a digit was a bin of the first 910 before it became the name
# of its successor, and 910_93 has the core of the 910B: of these nothing is certain.
_FAMILIES = (
    ("310P", r"Ascend(310P\w*|710)"),
    ("310B", r"Ascend310B\w*"),
    ("310", r"Ascend310"),
    ("910B", r"Ascend(910B\w*|910_93\w*)"),
    ("910", r"Ascend910(A|B|ProA|ProB|PremiumA)?"),
    ("950", r"Ascend950\w*"),
)


def compare_chips(compiled_for: str, device: str) -> Verdict:
    """Compare the names of the chip a model was compiled for and of the device that is to run it.

    "same": the same name. "different": chips of different architectures, whose binaries cannot be exchanged. "unsure":
    one family, as Ascend310P1 and Ascend310P3 or Ascend910B and Ascend910B2, or a name that is not known or not told:
    only the driver can tell.
    """
    one, other = compiled_for.strip().casefold(), device.strip().casefold()
    if not one or not other:
        return "unsure"
    if one == other:
        return "same"
    ours, theirs = _family(one), _family(other)
    return "different" if ours and theirs and not ours & theirs else "unsure"


def _family(name: str) -> frozenset[str]:
    return frozenset(family for family, pattern in _FAMILIES if re.fullmatch(pattern, name, re.IGNORECASE))
