"""Small models that make a particular mistake visible, built with onnx.helper and kept for the rest of a test run."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

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


@functools.cache
def pos(n: int | str | None = 1) -> bytes:
    """K-POS: y = x * w with another weight at every position: any layout mistake changes the answer."""
    return model(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        [tensor("x", [n, 2, 3, 4])],
        [tensor("y", [n, 2, 3, 4])],
        {"w": POS_WEIGHT},
    )


@functools.cache
def named(name: str) -> bytes:
    """K-POS under a graph name, for time profiles of the emulator: where waiting is the point, not computing."""
    proto = onnx.load_from_string(pos())
    proto.graph.name = name
    return proto.SerializeToString()


@functools.cache
def add(constant: float, n: int = 4) -> bytes:
    """y = x + constant on n floats."""
    return model(
        [helper.make_node("Add", ["x", "c"], ["y"])],
        [tensor("x", [n])],
        [tensor("y", [n])],
        {"c": np.full(1, constant, np.float32)},
    )


@functools.cache
def identity(kind: int, shape: tuple[int, ...] = (2, 3)) -> bytes:
    """K-ID-t: y = x for one element type."""
    return model([helper.make_node("Identity", ["x"], ["y"])], [tensor("x", shape, kind)], [tensor("y", shape, kind)])


@functools.cache
def out_of_bounds(n: int = 1) -> bytes:
    """K-OOB: looks n int64 indices up in a table of 4 (10, 11, 12, 13); index 9 fails at run time."""
    return model(
        [helper.make_node("Gather", ["table", "index"], ["y"])],
        [tensor("index", [n], TensorProto.INT64)],
        [tensor("y", [n])],
        {"table": np.array([10, 11, 12, 13], np.float32)},
    )


@functools.cache
def slow(chain: int, size: int = 700) -> bytes:
    """K-SLOW: a chain of MatMuls of a size x size matrix, scaled so that numbers stay finite; y = x on the diagonal."""
    names = ["x", *(f"m{i}" for i in range(chain - 1)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(chain)]
    return model(nodes, [tensor("x", [size, size])], [tensor("y", [size, size])], {"w": np.eye(size, dtype=np.float32)})


@functools.cache
def big(megabytes: int, shape: tuple[int, ...] = (4,)) -> bytes:
    """K-BIG: y = x + 1, with this many MiB of random weights that are not used for it."""
    weight = np.random.default_rng(0).random((megabytes << 20) // 4, np.float32)
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


@functools.cache
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


@functools.cache
def nonzero() -> bytes:
    """An output whose shape depends on the values of the input."""
    return model(
        [helper.make_node("NonZero", ["x"], ["where"])],
        [tensor("x", [4])],
        [tensor("where", [1, None], TensorProto.INT64)],
    )


@functools.cache
def mixed() -> bytes:
    """Outputs f16 [2, 3], i64 [5] and bool [1] that are its inputs, so that hard values come back bit for bit."""
    kinds = {"half": (TensorProto.FLOAT16, (2, 3)), "ints": (TensorProto.INT64, (5,)), "flag": (TensorProto.BOOL, (1,))}
    return model(
        [helper.make_node("Identity", [f"{name}_in"], [name]) for name in kinds],
        [tensor(f"{name}_in", shape, kind) for name, (kind, shape) in kinds.items()],
        [tensor(name, shape, kind) for name, (kind, shape) in kinds.items()],
    )


@functools.cache
def through_bfloat16(n: int) -> bytes:
    """K-ID-bf16: float32 in, a bfloat16 output, and the same cast back to float32."""
    return model(
        [
            helper.make_node("Cast", ["x"], ["half"], to=TensorProto.BFLOAT16),
            helper.make_node("Cast", ["half"], ["back"], to=TensorProto.FLOAT),
        ],
        [tensor("x", [n])],
        [tensor("half", [n], TensorProto.BFLOAT16), tensor("back", [n])],
    )


@functools.cache
def unknown_operator() -> bytes:
    """A model with an operator that no runtime knows; the checker would refuse it."""
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], domain="nowhere")
    graph = helper.make_graph([node], "kit", [tensor("x", [4])], [tensor("y", [4])])
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("nowhere", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def with_gears(source: bytes, gears: dict[str, object]) -> bytes:
    """The model with gears declared in its metadata, as the emulator reads them."""
    proto = onnx.load_from_string(source)
    helper.set_model_props(proto, {"aioascend.gears": json.dumps(gears)})
    return proto.SerializeToString()


@functools.cache
def dyn() -> bytes:
    """K-DYN: K-POS with batch gears 1, 2, 4 and 8."""
    return with_gears(pos("n"), {"batch": [1, 2, 4, 8]})


@functools.cache
def hw() -> bytes:
    """K-HW: one picture, doubled, with gears 64x64 and 96x128."""
    source = model(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", [1, 3, "h", "w"])],
        [tensor("y", [1, 3, "h", "w"])],
    )
    return with_gears(source, {"hw": [[64, 64], [96, 128]]})


@functools.cache
def swap(constant: float, megabytes: int = 8) -> bytes:
    """K-A (constant 1) and K-B (2): y = x + constant of the same signature, with weights that change nothing."""
    weight = np.ones((megabytes << 20) // 4, np.float32)
    return model(
        [
            helper.make_node("ReduceMax", ["weight"], ["one"], keepdims=0),
            helper.make_node("Mul", ["c", "one"], ["shift"]),
            helper.make_node("Add", ["x", "shift"], ["y"]),
        ],
        [tensor("x", [4])],
        [tensor("y", [4])],
        {"c": np.full(1, constant, np.float32), "weight": weight},
    )


def bad_files(directory: Path) -> dict[str, Path]:
    """K-BAD: paths that are no model, by what is wrong with them."""
    good = big(1)
    contents = {"half": good[: len(good) // 2], "empty": b"", "random": np.random.default_rng(0).bytes(4096)}
    paths = {name: directory / f"{name}.onnx" for name in (*contents, "missing")}
    for name, content in contents.items():
        paths[name].write_bytes(content)
    paths["directory"] = directory
    return paths
