"""An `.om` names its outputs `node:index:tensor`; the tensor's own name finds them too where that is unambiguous."""

from __future__ import annotations

import numpy as np
import pytest

from aioascend.model import Outputs, TensorSpec
from aioascend.model.signature import index_by_name


def specs(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, np.dtype(np.float32), (1,)) for name in names)


@pytest.mark.parametrize(
    "names,found",
    [
        (["a", "b"], {"a": 0, "b": 1}),
        (["Softmax_5:0:prob", "Cast_6:0:label"], {"prob": 0, "label": 1}),
        (["Split_1:0:part", "Split_1:1:part"], {}),  # ambiguous: only the full names
        (["TopK_1:0:values:0", "x"], {"values:0": 0, "x": 1}),  # a tensor's own name may hold a colon
        (["node:0:b", "b"], {"b": 1}),  # another's full name wins
        (["scope:name:tensor"], {}),  # no index in the middle: not an .om's form
        (["node:0:"], {}),
    ],
)
def test_names_and_own_names(names: list[str], found: dict[str, int]) -> None:
    index = index_by_name(specs(*names))
    full = {name: position for position, name in enumerate(names)}
    assert index == {**found, **full}


def test_outputs_by_own_name() -> None:
    tensors = specs("Softmax_5:0:prob", "Cast_6:0:label")
    outputs = Outputs([np.zeros(1), np.ones(1)], tensors, index_by_name(tensors))
    assert outputs["label"] is outputs["Cast_6:0:label"] is outputs[1]
    assert repr(outputs) == "<Outputs Softmax_5:0:prob: float32[1], Cast_6:0:label: float32[1]>"
    with pytest.raises(IndexError, match="no output 2; there are 2: Softmax_5:0:prob, Cast_6:0:label"):
        outputs[2]
