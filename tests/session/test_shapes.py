"""Open axes of an .onnx are fixed when the session opens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.mark.parametrize("axis", ["n", None], ids=["named axis", "axis without a name"])
async def test_shapes_fix_open_axes(axis: str | None) -> None:
    async with aioascend.Session(kit.pos(axis), shapes={"x": (3, 2, 3, 4)}) as session:
        assert session.inputs[0].shape == session.outputs[0].shape == (3, 2, 3, 4)
        x = np.arange(72, dtype=np.float32).reshape(3, 2, 3, 4)
        np.testing.assert_array_equal((await session.infer(x))[0], x * kit.POS_WEIGHT)
        with pytest.raises(aioascend.InvalidInput, match=r"wanted float32 of shape \(3, 2, 3, 4\)"):
            await session.infer(x[:1])


async def test_open_axes_without_shapes_are_named_with_the_argument() -> None:
    with pytest.raises(aioascend.ModelLoadError) as caught:
        await aioascend.Session(kit.pos("n")).open()
    text = str(caught.value)
    assert "'x'" in text
    assert "'n'" in text
    assert 'shapes={"x": (1, 2, 3, 4)}' in text
    assert "--shape x:1,2,3,4" in text


@pytest.mark.parametrize(
    "shapes,message",
    [
        ({"q": (1, 2, 3, 4)}, "'q'.*'x'"),
        ({"x": (1, 2, 3)}, "4 axes"),
        ({"x": (1, 2, 3, 5)}, "5"),
        ({"x": (-1, 2, 3, 4)}, "-1"),
    ],
)
async def test_shapes_that_do_not_fit_name_what_was_wanted(shapes: dict[str, Any], message: str) -> None:
    with pytest.raises(aioascend.ModelLoadError, match=message):
        await aioascend.Session(kit.pos("n"), shapes=shapes).open()


def _needs_examples() -> bytes:
    """Repeats x k times: the length of y depends on the value of k, and k = 0 or 1 or random fits no Reshape."""
    return kit.model(
        [
            helper.make_node("Reshape", ["k", "one"], ["k1"]),
            helper.make_node("Tile", ["x", "k1"], ["y"]),
        ],
        [kit.tensor("x", ["n"]), kit.tensor("k", [], 7)],
        [kit.tensor("y", [None])],
        {"one": np.ones(1, np.int64)},
    )


async def test_an_output_whose_shape_follows_a_value_is_refused_by_name_unless_its_shape_is_given() -> None:
    with pytest.raises(aioascend.ModelLoadError, match="'y'"):
        await aioascend.Session(_needs_examples(), shapes={"x": (2,)}).open()
    x = np.array([1, 2], np.float32)
    for extra in ({"examples": {"k": 3}}, {"output_shapes": {"y": (6,)}}):
        async with aioascend.Session(_needs_examples(), shapes={"x": (2,)}, **extra) as session:
            assert session.outputs[0].shape == (6,)
            assert (await session.infer({"x": x, "k": 3}))[0].tolist() == [1, 2, 1, 2, 1, 2]
            with pytest.raises(aioascend.ExecutionFailed):  # another value gives another shape than the one fixed
                await session.infer({"x": x, "k": 2})
            assert (await session.infer({"x": x, "k": 3}))[0].tolist() == [1, 2, 1, 2, 1, 2]


async def test_an_output_shape_that_contradicts_inference_is_refused_at_open() -> None:
    for shape in ((2, 3, 4), (1, 2, 4, 3)):
        with pytest.raises(aioascend.ModelLoadError, match=r"output 'y': shape inference finds \(1, 2, 3, 4\)"):
            await aioascend.Session(kit.pos(), output_shapes={"y": shape}).open()


async def test_two_outputs_of_one_name_are_refused() -> None:
    import onnx

    proto = onnx.load_from_string(kit.add(1))
    proto.graph.output.append(proto.graph.output[0])
    with pytest.raises(aioascend.ModelLoadError, match="two outputs are named 'y'"):
        await aioascend.Session(proto.SerializeToString()).open()


async def test_an_output_that_is_no_tensor_is_refused_by_name() -> None:
    from pathlib import Path

    import onnxruntime

    iris = Path(onnxruntime.__file__).parent / "datasets" / "logreg_iris.onnx"
    with pytest.raises(aioascend.ModelLoadError, match="'probabilities'"):
        await aioascend.Session(iris).open()
