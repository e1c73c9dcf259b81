"""Gears: the batches, picture sizes or shapes that a model was compiled for (om-format §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .attributes import Value
from .tensors import numbers

__all__ = ["GEAR_INPUT", "Gears", "read_gears"]

GEAR_INPUT = "ascend_mbatch_shape_data"
_KINDS = {1: "batch", 2: "hw", 3: "dims"}
_PREFIX = "_pred_value_"
_DIGITS = 19


@dataclass(frozen=True)
class Gears:
    """All gears of a model, in order.

    `kind` is "batch", "hw" (height and width) or "dims". Values of "dims" are for the open axes of the inputs in
    `order`. `outputs` has the output shapes by (gear, output), where the file tells them.
    """

    kind: str
    values: tuple[tuple[int, ...], ...]
    order: tuple[str, ...] = ()
    outputs: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    def output_shape(self, gear: int, output: int) -> tuple[int, ...] | None:
        """The shape of an output with a gear; None where the file does not tell it."""
        return self.outputs.get((gear, output), self.outputs.get((-1, output)))


def wanted(name: bytes) -> bool:
    """Whether an attribute of a Case operator is about gears."""
    return name in (b"_batch_num", b"mbatch_dynamic_type", b"user_designate_shape_order") or name.startswith(
        _PREFIX.encode()
    )


def read_gears(values: dict[str, Value], notes: list[str]) -> Gears | None:
    """The gears of a Case operator; None for an ordinary conditional. Output shapes come from elsewhere."""
    count = values.get("_batch_num")
    if not isinstance(count, int):
        return None
    found: dict[int, tuple[int, ...]] = {}
    for name, value in values.items():
        digits = name[len(_PREFIX) :]
        gear = numbers(value)
        if name.startswith(_PREFIX) and digits.isdecimal() and len(digits) < 7 and gear:
            found[int(digits)] = gear
    gears = tuple(found[index] for index in sorted(found))
    if len(gears) != count:
        notes.append(f"the file counts {count} gears and describes {len(gears)}")
    if not gears:
        return None
    kind = values.get("mbatch_dynamic_type")
    told = _KINDS.get(kind) if isinstance(kind, int) else None
    order = values.get("user_designate_shape_order")
    names = tuple(one for one in order if isinstance(one, str)) if isinstance(order, tuple) else ()
    return Gears(told or {1: "batch", 2: "hw"}.get(len(gears[0]), "dims"), gears, names)


def output_shapes(told: Value | None) -> dict[tuple[int, int], tuple[int, ...]]:
    """`_dynamic_output_dims`: "gear,output,size,size,..." for each; gear -1 stands for every one."""
    shapes: dict[tuple[int, int], tuple[int, ...]] = {}
    for text in told if isinstance(told, tuple) else ():
        parts = text.split(",", 130) if isinstance(text, str) else []
        if 2 <= len(parts) < 131 and all(_is_number(part.strip()) for part in parts):
            gear, output, *sizes = (int(part) for part in parts)
            shapes[gear, output] = tuple(sizes)
    return shapes


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isdecimal() and digits.isascii() and len(digits) < _DIGITS
