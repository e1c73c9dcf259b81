"""The wire-level reader takes no length on trust."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from aioascend.emulator import onnx_wire

from .kit import INT64, doubler, gather, model, node, tensor


def read(content: bytes) -> onnx_wire.Graph:
    return onnx_wire.read(memoryview(content))


def patched(content: bytes, shapes: dict[str, tuple[int, ...]]) -> bytes:
    data = memoryview(content)
    return b"".join(onnx_wire.with_fixed_inputs(data, onnx_wire.read(data), shapes))


def test_inputs_and_outputs_are_found() -> None:
    content = model(
        [node("Gather", ["x", "i"], ["y"])],
        [tensor("x", ("N", 3, None)), tensor("i", (), INT64)],
        [tensor("y", None)],
    )
    graph = read(content)
    assert [(one.name, one.elem_type, one.shape) for one in graph.inputs] == [("x", 1, ("N", 3, None)), ("i", 7, ())]
    assert [(one.name, one.shape) for one in graph.outputs] == [("y", None)]
    assert not graph.external_data


@pytest.mark.parametrize("size", [1, 127, 128, 300, 1 << 40])
def test_a_patched_file_is_the_same_model_with_fixed_axes(size: int) -> None:
    content = doubler(("N", 3))
    proto = onnx.load_from_string(patched(content, {"x": (size, 3)}))
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [size, 3]
    original = onnx.load_from_string(content)
    assert proto.graph.node == original.graph.node
    assert proto.opset_import == original.opset_import
    assert proto.graph.output == original.graph.output


def test_patching_several_inputs_leaves_the_others_alone() -> None:
    names = ["a", "b", "c"]
    content = model(
        [node("Concat", names, ["y"], axis=0)], [tensor(name, ("N",)) for name in names], [tensor("y", (None,))]
    )
    proto = onnx.load_from_string(patched(content, {"a": (1,), "c": (300,)}))
    found = [entry.type.tensor_type.shape.dim[0] for entry in proto.graph.input]
    assert [dim.dim_value for dim in found] == [1, 0, 300]
    assert found[1].dim_param == "N"


def test_every_truncation_reads_or_raises_a_wire_error() -> None:
    content = gather()
    for length in range(len(content)):
        try:
            read(content[:length])
        except onnx_wire.WireError:
            continue


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_reads_or_raises_a_wire_error(data: st.DataObject) -> None:
    content = bytearray(gather())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(content))
    except onnx_wire.WireError:
        pass


@given(st.binary(max_size=200))
def test_any_bytes_read_or_raise_a_wire_error(content: bytes) -> None:
    try:
        read(content)
    except onnx_wire.WireError:
        pass


@given(st.integers(0, (1 << 64) - 1))
def test_numbers_survive(value: int) -> None:
    encoded = onnx_wire.encode_varint(value)
    assert onnx_wire._varint(memoryview(encoded), 0, len(encoded)) == (value, len(encoded))


def test_weights_elsewhere_are_noticed() -> None:
    proto = onnx.load_from_string(
        model(
            [node("Add", ["x", "w"], ["y"])],
            [tensor("x", (2,))],
            [tensor("y", (2,))],
            {"w": np.ones(2, np.float32)},
        )
    )
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    assert read(proto.SerializeToString()).external_data
