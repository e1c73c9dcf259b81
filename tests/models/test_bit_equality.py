"""Every model gives, bit for bit, what onnxruntime alone gives with the same options, shapes and inputs."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend

ALL = ["SPEECH", "FILE_TYPE", "ORIENTATION", "TEXT_PLACES", "TEXT_LINE"]


def draw(spec: aioascend.TensorSpec, rng: np.random.Generator) -> np.ndarray:
    """Values that the input of a shipped model may have."""
    if spec.name == "sr":
        return np.array(16_000, np.int64)
    if spec.dtype == np.int32:
        return rng.integers(0, 257, spec.shape, np.int32)
    return rng.uniform(-1, 1, spec.shape).astype(spec.dtype)


def assert_same_bits(outputs: aioascend.Outputs, expected: dict[str, np.ndarray]) -> None:
    assert list(outputs.keys()) == list(expected)
    for name, array in expected.items():
        assert outputs[name].dtype == array.dtype
        assert outputs[name].shape == array.shape
        assert outputs[name].tobytes() == array.tobytes(), f"{name} differs"


@pytest.mark.parametrize("model", ALL, indirect=True)
async def test_infer_gives_the_bits_of_onnxruntime(model, reference, opened):
    alone = reference(model.find(), model.shapes)
    rng = np.random.default_rng(310)
    async with opened(model) as session:
        assert {spec.name: spec.shape for spec in session.inputs if spec.shape} == model.shapes
        for _ in range(3):
            inputs = {spec.name: draw(spec, rng) for spec in session.inputs}
            outputs = await session.infer(inputs)
            assert_same_bits(outputs, alone(**inputs))
            assert [(spec.dtype, spec.shape) for spec in session.outputs] == [(y.dtype, y.shape) for y in outputs]


@pytest.mark.parametrize("model", ["FILE_TYPE", "ORIENTATION"], indirect=True)
async def test_forty_requests_at_once_get_each_its_own_bits(model, reference, opened):
    alone = reference(model.find(), model.shapes)
    rng = np.random.default_rng(910)
    async with opened(model) as session:
        inputs = [draw(session.inputs[0], rng) for _ in range(40)]
        results = await asyncio.gather(*(session.infer(x) for x in inputs))
    for x, outputs in zip(inputs, results, strict=True):
        assert_same_bits(outputs, alone(**{session.inputs[0].name: x}))


@pytest.mark.parametrize("model", ["ORIENTATION"], indirect=True)
async def test_a_picture_in_any_layout_gives_the_bits_of_the_contiguous_one(model, reference, opened):
    alone = reference(model.find(), model.shapes)
    pixels = np.random.default_rng(5).uniform(-1, 1, (224, 224, 3)).astype(np.float32)
    turned = pixels[::-1, :, ::-1].transpose(2, 0, 1)[None]  # reversed rows, blue first, channels in front: a view
    expected = alone(x=np.ascontiguousarray(turned))
    async with opened(model) as session:
        assert_same_bits(await session.infer(turned), expected)
        assert_same_bits(await session.infer(np.asfortranarray(turned)), expected)


@pytest.mark.parametrize("model", ["SPEECH"], indirect=True)
async def test_a_state_carried_through_a_hundred_runs_stays_equal_to_the_bit(model, reference, opened):
    alone = reference(model.find(), model.shapes)
    rng = np.random.default_rng(3)
    sr = np.array(16_000, np.int64)
    ours = theirs = np.zeros((2, 1, 128), np.float32)
    async with opened(model) as session:
        for _ in range(100):
            sound = rng.uniform(-1, 1, (1, 576)).astype(np.float32)
            outputs = await session.infer({"input": sound, "state": ours, "sr": sr})
            expected = alone(input=sound, state=theirs, sr=sr)
            assert_same_bits(outputs, expected)
            ours, theirs = outputs["stateN"], expected["stateN"]


@pytest.mark.parametrize("model", ["SPEECH"], indirect=True)
async def test_the_other_branch_of_the_speech_model_takes_sound_of_8_khz(model, reference, opened):
    shapes = {"input": (1, 288), "state": (2, 1, 128)}
    inputs = {
        "input": np.random.default_rng(8).uniform(-1, 1, (1, 288)).astype(np.float32),
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(8_000, np.int64),
    }
    async with opened(model, shapes=shapes, examples={"sr": 8_000}) as session:
        assert_same_bits(await session.infer(inputs), reference(model.find(), shapes)(**inputs))
