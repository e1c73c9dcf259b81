"""The models that the programs run, written as the tests need them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def affine(path: Path, shape: list[int | str], gears: dict[str, object] | None = None) -> Path:
    """y = 2x + 1, float32; `gears` goes where an .om would have them."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["twice"]), helper.make_node("Add", ["twice", "one"], ["y"])],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.float32(number), name) for number, name in ((2, "two"), (1, "one"))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    if gears is not None:
        helper.set_model_props(model, {"aioascend.gears": json.dumps(gears)})
    onnx.save(model, str(path))
    return path
