"""Small ONNX models made by the tests of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

Tensor = tuple[str, int, Sequence[int | str]]


def save(path: Path, nodes: Sequence[onnx.NodeProto], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Path:
    """Write a model of these nodes; tensors are given as (name, element type, shape)."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(*tensor) for tensor in inputs],
        [helper.make_tensor_value_info(*tensor) for tensor in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8  # what the oldest supported onnxruntime reads
    onnx.save(model, str(path))
    return path


def double(path: Path, shape: Sequence[int | str] = (2, 3)) -> Path:
    """y = x + x, float32."""
    tensor = TensorProto.FLOAT
    return save(path, [helper.make_node("Add", ["x", "x"], ["y"])], [("x", tensor, shape)], [("y", tensor, shape)])


def sum_and_product(path: Path, names: tuple[str, str] = ("sum", "product")) -> Path:
    """Two int64 inputs, `left` of shape (4,) and `right` of no dimensions; their sum and their product."""
    tensor = TensorProto.INT64
    nodes = [
        helper.make_node("Add", ["left", "right"], [names[0]]),
        helper.make_node("Mul", ["left", "right"], [names[1]]),
    ]
    return save(
        path,
        nodes,
        [("left", tensor, (4,)), ("right", tensor, ())],
        [(names[0], tensor, (4,)), (names[1], tensor, (4,))],
    )


def lookup(path: Path) -> Path:
    """Row `index` (int64, no dimensions) of a float32 table of shape (3, 2); other indices fail while it runs."""
    node = helper.make_node("Gather", ["table", "index"], ["row"])
    inputs = [("table", TensorProto.FLOAT, (3, 2)), ("index", TensorProto.INT64, ())]
    return save(path, [node], inputs, [("row", TensorProto.FLOAT, (2,))])
