"""R06: every element type comes back as what it is, bit for bit, by name and by index in the model's order."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

HARD = {
    TensorProto.FLOAT: np.array([3.4e38, 1e-45, -np.inf, np.nan, -0.0, 1], np.float32),
    TensorProto.FLOAT16: np.array([65504, 6e-8, np.inf, np.nan, -0.0, 1], np.float16),
    TensorProto.DOUBLE: np.array([1e308, 5e-324, np.pi, -np.inf, np.nan, 0]),
    TensorProto.INT64: np.array([2**53 + 1, -(2**63), 2**63 - 1, -1, 0, 1]),
    TensorProto.INT32: np.array([2**31 - 1, -(2**31), -1, 0, 1, 2], np.int32),
    TensorProto.INT16: np.array([32767, -32768, -1, 0, 1, 2], np.int16),
    TensorProto.INT8: np.array([127, -128, -1, 0, 1, 2], np.int8),
    TensorProto.UINT8: np.array([255, 128, 0, 1, 2, 3], np.uint8),
    TensorProto.UINT16: np.array([65535, 0, 1, 2, 3, 4], np.uint16),
    TensorProto.UINT32: np.array([2**32 - 1, 0, 1, 2, 3, 4], np.uint32),
    TensorProto.UINT64: np.array([2**64 - 1, 2**53 + 1, 0, 1, 2, 3], np.uint64),
    TensorProto.BOOL: np.array([True, False, True, True, False, False]),
}


def same(given: np.ndarray, wanted: np.ndarray) -> None:
    assert (given.dtype, given.shape, given.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


@pytest.mark.parametrize("kind", HARD, ids=TensorProto.DataType.Name)
async def test_hard_values_of_every_type_through_every_door(kind: int) -> None:
    values = HARD[kind].reshape(2, 3)
    async with aioascend.Session(kit.identity(kind)) as session:
        assert session.inputs[0].dtype == session.outputs[0].dtype == values.dtype
        same((await session.infer(values))[0], values)
        same((await (await session.submit(values)))["y"], values)
        async with session.request() as request:
            request.inputs["x"][:] = values
            same((await request.run())[0], values)


async def test_outputs_of_three_types_in_the_models_order_and_by_name() -> None:
    given = {
        "half_in": HARD[TensorProto.FLOAT16].reshape(2, 3),
        "ints_in": np.array([2**53 + 1, -(2**53) - 1, -1, 0, 2**63 - 1]),
        "flag_in": np.array([True]),
    }
    async with aioascend.Session(kit.mixed()) as session:
        specs = [(spec.name, spec.dtype.name, spec.shape) for spec in session.outputs]
        assert specs == [("half", "float16", (2, 3)), ("ints", "int64", (5,)), ("flag", "bool", (1,))]
        outputs = await session.infer(given)
        assert outputs.keys() == ("half", "ints", "flag")
        assert len(outputs) == 3
        for index, name in enumerate(outputs.keys()):
            same(outputs[index], given[f"{name}_in"])
            same(outputs[name], given[f"{name}_in"])


async def test_several_inputs_in_any_order_by_name_and_what_is_not_there() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    async with aioascend.Session(kit.several()) as session:
        assert [str(spec) for spec in session.inputs] == ["a: float32[2, 3]", "k: int64[]"]
        by_name = await session.infer({"k": np.array(3), "a": a})
        in_order = await session.infer([a, np.array(3)])
        with_a_number = await session.infer({"a": a, "k": 3})
    for outputs in (by_name, in_order, with_a_number):
        assert outputs.keys() == ("half", "ints", "flag", "total")
        assert [array.dtype.name for array in outputs] == ["float16", "int64", "bool", "float32"]
        assert outputs["ints"].tolist() == [3, 4, 5, 6, 7]
        assert outputs[2].tolist() == [True]
        assert outputs["total"].shape == ()
        assert float(outputs[-1]) == 15.0
        assert dict(outputs.items())["half"].tolist() == a.tolist()
    with pytest.raises(KeyError, match="no output is named 'nothing'; there are half, ints, flag, total"):
        by_name["nothing"]
    with pytest.raises(IndexError):
        by_name[4]
