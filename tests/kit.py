"""Small models that make a particular mistake visible, built with onnx.helper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
Shape = Sequence[int | str | None]


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
) -> bytes:
    """The bytes of a checked model."""
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "kit", inputs, outputs, initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def tensor(name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


POS_WEIGHT = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)


def pos(n: int | str | None = 1) -> bytes:
    """K-POS: y = x * w with another weight at every position: any layout mistake changes the answer."""
    return model(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        [tensor("x", [n, 2, 3, 4])],
        [tensor("y", [n, 2, 3, 4])],
        {"w": POS_WEIGHT},
    )


def add(constant: float, n: int = 4) -> bytes:
    """y = x + constant on n floats."""
    return model(
        [helper.make_node("Add", ["x", "c"], ["y"])],
        [tensor("x", [n])],
        [tensor("y", [n])],
        {"c": np.full(1, constant, np.float32)},
    )


def identity(kind: int, shape: Shape = (2, 3)) -> bytes:
    """K-ID-t: y = x for one element type."""
    return model([helper.make_node("Identity", ["x"], ["y"])], [tensor("x", shape, kind)], [tensor("y", shape, kind)])


def out_of_bounds(n: int = 1) -> bytes:
    """K-OOB: looks n int64 indices up in a table of 4 (10, 11, 12, 13); index 9 fails at run time."""
    return model(
        [helper.make_node("Gather", ["table", "index"], ["y"])],
        [tensor("index", [n], TensorProto.INT64)],
        [tensor("y", [n])],
        {"table": np.array([10, 11, 12, 13], np.float32)},
    )


def slow(chain: int, size: int = 700) -> bytes:
    """K-SLOW: a chain of MatMuls of a size x size matrix, scaled so that numbers stay finite; y = x on the diagonal."""
    names = ["x", *(f"m{i}" for i in range(chain - 1)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(chain)]
    return model(nodes, [tensor("x", [size, size])], [tensor("y", [size, size])], {"w": np.eye(size, dtype=np.float32)})


def big(megabytes: int, shape: Sequence[int] = (4,)) -> bytes:
    """K-BIG: y = x + 1, with this many MiB of weights that are not used for it."""
    weight = np.ones((megabytes << 20) // 4, np.float32)
    return model(
        [
            helper.make_node("Add", ["x", "one"], ["y"]),
            helper.make_node("ReduceMax", ["weight"], ["w"], keepdims=0),
            helper.make_node("Add", ["w", "z"], ["wz"]),
        ],
        [tensor("x", shape), tensor("z", [])],
        [tensor("y", shape), tensor("wz", [])],
        {"one": np.ones(1, np.float32), "weight": weight},
    )


def several() -> bytes:
    """Two inputs (f32[2,3] and an int64 scalar), four outputs: f16[2,3], i64[5], bool[1] and a float scalar."""
    return model(
        [
            helper.make_node("Cast", ["a"], ["half"], to=TensorProto.FLOAT16),
            helper.make_node("Add", ["five", "k"], ["ints"]),
            helper.make_node("Reshape", ["k", "one"], ["k1"]),
            helper.make_node("Greater", ["k1", "zero"], ["flag"]),
            helper.make_node("ReduceSum", ["a"], ["total"], keepdims=0),
        ],
        [tensor("a", [2, 3]), tensor("k", [], TensorProto.INT64)],
        [
            tensor("half", [2, 3], TensorProto.FLOAT16),
            tensor("ints", [5], TensorProto.INT64),
            tensor("flag", [1], TensorProto.BOOL),
            tensor("total", []),
        ],
        {"five": np.arange(5, dtype=np.int64), "zero": np.zeros(1, np.int64), "one": np.ones(1, np.int64)},
    )


def nonzero() -> bytes:
    """An output whose shape depends on the values of the input."""
    return model(
        [helper.make_node("NonZero", ["x"], ["where"])],
        [tensor("x", [4])],
        [tensor("where", [1, None], TensorProto.INT64)],
    )
