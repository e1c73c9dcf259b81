"""Fixing the dynamic axes of an .onnx: what is asked for, found out, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioascend.emulator import CompileError, Emulator

from .kit import FLOAT, INT64, Driver, doubler, identity, model, node, nonzero, tensor


def shapes_of(npu: Driver, content: bytes) -> tuple[list[list[int]], list[list[int]]]:
    """The input and output shapes that a compiled model has once loaded."""
    mdl = npu.mdl
    loaded = npu.load(content)
    description = mdl.create_desc()
    npu.ok(mdl.get_desc(description, loaded))
    inputs = [mdl.get_input_dims(description, i)[0]["dims"] for i in range(mdl.get_num_inputs(description))]
    outputs = [mdl.get_output_dims(description, i)[0]["dims"] for i in range(mdl.get_num_outputs(description))]
    return inputs, outputs


@pytest.mark.parametrize("axes", [("N", 3), (None, 3), ("N", "M"), (None, None), (2, 3)])
def test_axes_with_and_without_names_are_fixed(npu: Driver, axes: Any) -> None:
    compiled = npu.emulator.compile(doubler(axes), shapes={"x": (2, 3)})
    assert shapes_of(npu, compiled) == ([[2, 3]], [[2, 3]])


def test_an_input_whose_number_of_axes_is_unknown(npu: Driver) -> None:
    content = model([node("Neg", ["x"], ["y"])], [tensor("x", None)], [tensor("y", None)])
    with pytest.raises(CompileError, match="'x'"):
        npu.emulator.compile(content)
    assert shapes_of(npu, npu.emulator.compile(content, shapes={"x": (2, 2)})) == ([[2, 2]], [[2, 2]])


def test_a_static_model_needs_nothing(npu: Driver) -> None:
    assert shapes_of(npu, npu.emulator.compile(doubler((4,)))) == ([[4]], [[4]])


def test_axes_that_stay_open_are_named_with_what_to_give(machine: Emulator) -> None:
    content = model(
        [node("Add", ["images", "shift"], ["y"])],
        [tensor("images", ("batch", 3, None, None)), tensor("shift", (1,))],
        [tensor("y", (None, 3, None, None))],
    )
    with pytest.raises(CompileError) as caught:
        machine.compile(content)
    text = str(caught.value)
    assert caught.value.names == ("images",)
    assert "0 ('batch'), 2, 3" in text
    assert 'shapes={"images": (1, 3, 224, 224)}' in text
    assert "--shape images:1,3,224,224" in text


@pytest.mark.parametrize(
    "shapes, text",
    [
        ({"z": (1,)}, "'z'.*inputs are 'x'"),
        ({"x": (2,)}, r"2 axes \(N, 3\), but 1"),
        ({"x": (2, 4)}, "axis 1 is fixed to 3.*4 was given"),
        ({"x": (-1, 3)}, "positive"),
        ({"x": "ab"}, "a tuple of sizes was wanted, 'ab' was given"),
        ({"x": 5}, "a tuple of sizes was wanted"),
        ({"x": (2.5, 3)}, "positive|sizes"),
    ],
)
def test_wrong_shapes_name_what_was_wanted_and_given(machine: Emulator, shapes: Any, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        machine.compile(doubler(("N", 3)), shapes=shapes)


def reshape_by_input() -> bytes:
    """y has the shape that the input `size` says: inference cannot know it, and zeros or ones do not fit."""
    return model(
        [node("Reshape", ["x", "size"], ["y"])],
        [tensor("x", (6,)), tensor("size", (2,), INT64)],
        [tensor("y", (None, None))],
    )


def test_an_output_shape_comes_from_an_example_where_inference_fails(npu: Driver) -> None:
    compiled = npu.emulator.compile(reshape_by_input(), examples={"size": np.array([2, 3])})
    assert shapes_of(npu, compiled)[1] == [[2, 3]]
    compiled = npu.emulator.compile(reshape_by_input(), examples={"size": [3, 2]})
    assert shapes_of(npu, compiled)[1] == [[3, 2]]


def test_output_shapes_win_over_everything(npu: Driver) -> None:
    compiled = npu.emulator.compile(reshape_by_input(), output_shapes={"y": (1, 6)})
    assert shapes_of(npu, compiled)[1] == [[1, 6]]


def test_no_run_on_made_up_values_succeeds(machine: Emulator) -> None:
    content = model(
        [node("Reshape", ["x", "size"], ["y"])],
        [tensor("x", (7,)), tensor("size", (2,), INT64)],
        [tensor("y", (None, None))],
    )
    with pytest.raises(CompileError) as caught:
        machine.compile(content)
    assert "examples={'size': ...}" in str(caught.value)
    assert "output_shapes=" in str(caught.value)
    assert "ONNX Runtime said" in str(caught.value)
    assert caught.value.names == ("size",)


def test_a_shape_that_depends_on_the_data_is_refused_by_name(machine: Emulator) -> None:
    with pytest.raises(CompileError, match=r"'y'.*output_shapes=") as caught:
        machine.compile(nonzero())
    assert caught.value.names == ("y",)
    assert machine.compile(nonzero(), output_shapes={"y": (1, 4)})


@pytest.mark.parametrize(
    "examples, text",
    [
        ({"z": 1}, "'z'.*inputs are 'x', 'size'"),
        ({"size": np.array([2, 3], np.int32)}, "int64 was wanted, int32"),
        ({"size": [1.5, 2.0]}, "int64 was wanted, float64"),
        ({"size": [2, 3, 1]}, r"shape \(2,\) was wanted, \(3,\)"),
        ({"size": 6}, r"shape \(2,\) was wanted, \(\)"),
    ],
)
def test_wrong_examples_name_what_was_wanted_and_given(machine: Emulator, examples: Any, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        machine.compile(reshape_by_input(), examples=examples)


@pytest.mark.parametrize("output_shapes, text", [({"z": (1,)}, "outputs are 'y'"), ({"y": (1, -1)}, "positive")])
def test_wrong_output_shapes(machine: Emulator, output_shapes: Any, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        machine.compile(nonzero(), output_shapes=output_shapes)


def test_outputs_that_are_no_tensors_are_refused_by_name(machine: Emulator, npu: Driver) -> None:
    sequence = helper.make_tensor_sequence_value_info("parts", FLOAT, None)
    content = model([node("SplitToSequence", ["x"], ["parts"], axis=0)], [tensor("x", (2, 3))], [sequence])
    with pytest.raises(CompileError, match=r"'parts' is seq\(tensor\(float\)\)") as caught:
        machine.compile(content)
    assert caught.value.names == ("parts",)
    loaded, code = npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(content), len(content))
    assert (loaded, code) == (0, 545000)
    assert "'parts'" in npu.acl.get_recent_err_msg()


def test_inputs_that_are_no_tensors_of_numbers_are_refused_by_name(machine: Emulator) -> None:
    with pytest.raises(CompileError, match="'x' is a tensor of strings") as caught:
        machine.compile(identity(TensorProto.STRING))
    assert caught.value.names == ("x",)
    sequence = helper.make_tensor_sequence_value_info("parts", FLOAT, None)
    content = model([node("SequenceLength", ["parts"], ["y"])], [sequence], [tensor("y", (), INT64)])
    with pytest.raises(CompileError, match="'parts' is a sequence"):
        machine.compile(content)


def test_a_model_with_control_flow(npu: Driver) -> None:
    branches = [
        helper.make_graph([node(kind, ["x", "x"], [f"out_{kind}"])], kind, [], [tensor(f"out_{kind}", None)])
        for kind in ("Add", "Mul")
    ]
    content = model(
        [node("If", ["flag"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        [tensor("flag", (), TensorProto.BOOL), tensor("x", ("N", 2))],
        [tensor("y", (None, None))],
    )
    compiled = npu.emulator.compile(content, shapes={"x": (1, 2)})
    assert shapes_of(npu, compiled)[1] == [[1, 2]]
    loaded, x = npu.load(compiled), np.array([[3, 4]], np.float32)
    assert npu.run(loaded, [np.array(True), x], [x])[0].tolist() == [[6, 8]]
    assert npu.run(loaded, [np.array(False), x], [x])[0].tolist() == [[9, 16]]


def test_bfloat16_in_and_out(npu: Driver) -> None:
    content = model(
        [node("Cast", ["x"], ["f"], to=FLOAT), node("Add", ["f", "f"], ["g"]), node("Cast", ["g"], ["y"], to=16)],
        [tensor("x", ("N",), TensorProto.BFLOAT16)],
        [tensor("y", ("N",), TensorProto.BFLOAT16)],
    )
    for examples in (None, {"x": np.ones(3, ml_dtypes.bfloat16)}, {"x": [1.0, 2.0, 3.0]}):
        compiled = npu.emulator.compile(content, shapes={"x": (3,)}, examples=examples)
    x = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    (y,) = npu.run(npu.load(compiled), [x], [x])
    assert y.astype(np.float32).tolist() == [2, 5, -6]


def test_an_initializer_listed_as_an_input_is_no_input(npu: Driver) -> None:
    content = model(
        [node("Add", ["x", "w"], ["y"])],
        [tensor("x", ("N",)), tensor("w", (1,))],
        [tensor("y", ("N",))],
        {"w": np.ones(1, np.float32)},
    )
    assert shapes_of(npu, npu.emulator.compile(content, shapes={"x": (2,)})) == ([[2]], [[2]])


def test_inputs_keep_their_order_when_some_are_patched(npu: Driver) -> None:
    content = model(
        [node("Concat", ["a", "b", "c"], ["y"], axis=0)],
        [tensor("a", (1,)), tensor("b", ("N",)), tensor("c", (3,))],
        [tensor("y", (None,))],
    )
    assert shapes_of(npu, npu.emulator.compile(content, shapes={"b": (2,)})) == ([[1], [2], [3]], [[6]])


def test_shapes_that_the_model_cannot_take_are_refused_with_ort_s_reason(machine: Emulator) -> None:
    content = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [tensor("x", ("N", "K"))],
        [tensor("y", ("N", 2))],
        {"w": np.ones((4, 2), np.float32)},
    )
    with pytest.raises(CompileError, match=r"refuses the model with the shapes \{'x': \(1, 5\)\}.*MatMul"):
        machine.compile(content, shapes={"x": (1, 5)})


def test_a_branch_that_fixed_shapes_make_impossible_does_not_matter_if_it_never_runs(npu: Driver) -> None:
    branches = [
        helper.make_graph(
            [node("MatMul", ["x", weight], [f"out_{weight}"])], weight, [], [tensor(f"out_{weight}", None)]
        )
        for weight in ("w4", "w8")
    ]
    content = model(
        [node("If", ["flag"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        [tensor("flag", (), TensorProto.BOOL), tensor("x", (None, None))],
        [tensor("y", (None, None))],
        {"w4": np.ones((4, 2), np.float32), "w8": np.ones((8, 3), np.float32)},
    )
    compiled = npu.emulator.compile(content, shapes={"x": (1, 4)})
    assert shapes_of(npu, compiled)[1] == [[1, 2]]
    x, y = np.ones((1, 4), np.float32), np.zeros((1, 2), np.float32)
    assert npu.run(npu.load(compiled), [np.array(True), x], [y])[0].tolist() == [[4, 4]]


def test_a_compiled_path_is_small_and_notices_a_changed_file(npu: Driver, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    weight = np.ones((512, 512), np.float32)
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"])],
        "g",
        [tensor("x", ("N", 512))],
        [tensor("y", ("N", 512))],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    compiled = npu.emulator.compile(str(path), shapes={"x": (1, 512)})
    assert len(compiled) < 1000
    assert npu.load(compiled)
    path.write_bytes(doubler())
    assert npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(compiled), len(compiled)) == (0, 100014)
    assert "changed" in npu.acl.get_recent_err_msg()


def test_a_truncated_offline_model(npu: Driver) -> None:
    compiled = npu.emulator.compile(doubler(("N", 3)), shapes={"x": (2, 3)})
    for length in (26, 30, 60, len(compiled) - 1):
        part = compiled[:length]
        loaded, code = npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(part), length)
        assert loaded == 0
        assert 100012 <= code <= 100016
    with pytest.raises(CompileError, match="compiled already"):
        npu.emulator.compile(compiled)


@pytest.mark.parametrize("content", [b"", b"IMOD" + bytes(100), b"text", bytes(10), doubler()[:40]])
def test_a_foreign_file_cannot_be_compiled(machine: Emulator, content: bytes) -> None:
    with pytest.raises(CompileError):
        machine.compile(content)


def test_a_missing_file_cannot_be_compiled(machine: Emulator, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"none\.onnx"):
        machine.compile(str(tmp_path / "none.onnx"))
