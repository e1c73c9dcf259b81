"""Models with gears: dynamic batch, height and width, dims (pyACL reference §11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from aioascend.emulator import CompileError, Emulator

from .kit import Driver, doubler, model, node, tensor

GEAR_INPUT = "ascend_mbatch_shape_data"


class Geared:
    """A model with gears, its description and buffers as large as the largest gear."""

    def __init__(self, npu: Driver, loaded: int) -> None:
        self.npu, self.model = npu, loaded
        mdl = npu.mdl
        self.description = mdl.create_desc()
        npu.ok(mdl.get_desc(self.description, loaded))
        self.index = npu.ok(mdl.get_input_index_by_name(self.description, GEAR_INPUT))
        self.places = [self._place(mdl.get_input_size_by_index, i) for i in range(mdl.get_num_inputs(self.description))]
        self.results = [
            self._place(mdl.get_output_size_by_index, i) for i in range(mdl.get_num_outputs(self.description))
        ]
        self.inputs, self.outputs = npu.dataset(*self.places), npu.dataset(*self.results)

    def _place(self, size_of: Any, index: int) -> tuple[int, int]:
        size = size_of(self.description, index)
        return self.npu.device(size), size

    def put(self, index: int, array: np.ndarray) -> None:
        rt = self.npu.rt
        self.npu.ok(rt.memcpy(self.places[index][0], self.places[index][1], array.ctypes.data, array.nbytes, 1))


def batched(npu: Driver) -> Geared:
    return Geared(npu, npu.load(doubler(("N", 3)), gears={"batch": [1, 2, 4]}))


def test_a_model_with_batch_gears_shows_them(npu: Driver) -> None:
    mdl, geared = npu.mdl, batched(npu)
    description = geared.description
    assert mdl.get_dynamic_batch(description) == ({"batchCount": 3, "batch": [1, 2, 4]}, 0)
    assert mdl.get_dynamic_hw(description, -1) == ({"hwCount": 0, "hw": []}, 0)
    assert mdl.get_num_inputs(description) == 2
    assert geared.index == 1
    assert mdl.get_input_dims(description, 0)[0]["dims"] == [-1, 3]
    assert mdl.get_input_size_by_index(description, 0) == 4 * 3 * 4
    assert mdl.get_input_dims(description, 1)[0]["name"] == GEAR_INPUT
    assert mdl.get_output_dims(description, 0)[0]["dims"] == [4, 3]
    assert mdl.get_cur_output_dims(description, 0)[0]["dims"] == [4, 3]


def test_each_batch_gear_computes_its_own_shape(npu: Driver) -> None:
    geared = batched(npu)
    for batch in (2, 1, 4, 2):
        x = np.arange(batch * 3, dtype=np.float32).reshape(batch, 3) + batch
        geared.put(0, x)
        npu.ok(npu.mdl.set_dynamic_batch_size(geared.model, geared.inputs, geared.index, batch))
        assert npu.mdl.get_cur_output_dims(geared.description, 0)[0]["dims"] == [batch, 3]
        npu.ok(npu.mdl.execute(geared.model, geared.inputs, geared.outputs))
        assert np.array_equal(npu.download(geared.results[0][0], x), 2 * x)


def test_the_gear_is_read_when_the_run_begins(npu: Driver) -> None:
    geared, stream = batched(npu), npu.stream()
    x = np.ones((4, 3), np.float32)
    geared.put(0, x)
    npu.ok(npu.rt.memset(geared.results[0][0], 48, 0, 48))
    npu.ok(npu.mdl.set_dynamic_batch_size(geared.model, geared.inputs, geared.index, 4))
    release = npu.hold(stream)
    npu.ok(npu.mdl.execute_async(geared.model, geared.inputs, geared.outputs, stream))
    npu.ok(npu.mdl.set_dynamic_batch_size(geared.model, geared.inputs, geared.index, 1))
    release()
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.download(geared.results[0][0], x).sum() == 2 * 3


def test_two_datasets_keep_their_own_gears(npu: Driver) -> None:
    geared = batched(npu)
    other = npu.dataset((npu.upload(np.ones((4, 3), np.float32)), 48), (npu.device(4), 4))
    results = npu.device(48)
    geared.put(0, np.ones((1, 3), np.float32))
    npu.ok(npu.mdl.set_dynamic_batch_size(geared.model, geared.inputs, 1, 1))
    npu.ok(npu.mdl.set_dynamic_batch_size(geared.model, other, 1, 4))
    npu.ok(npu.mdl.execute(geared.model, other, npu.dataset((results, 48))))
    npu.ok(npu.mdl.execute(geared.model, geared.inputs, geared.outputs))
    assert npu.download(results, np.zeros(12, np.float32)).sum() == 24
    assert npu.download(geared.results[0][0], np.zeros(3, np.float32)).sum() == 6


def test_a_run_without_a_gear_fails(npu: Driver) -> None:
    geared = batched(npu)
    npu.ok(npu.rt.memset(geared.places[1][0], 4, 0, 4))
    assert npu.mdl.execute(geared.model, geared.inputs, geared.outputs) == 507011
    assert "no gear" in npu.acl.get_recent_err_msg()


def test_codes_of_choosing_a_gear(npu: Driver) -> None:
    geared, mdl = batched(npu), npu.mdl
    choose = mdl.set_dynamic_batch_size
    assert choose(geared.model, geared.inputs, geared.index, 3) == 145013
    assert "[[1], [2], [4]]" in npu.acl.get_recent_err_msg()
    assert choose(geared.model, geared.inputs, geared.index, 0) == 100000
    assert choose(geared.model, geared.inputs, 0, 1) == 100000
    assert choose(99, geared.inputs, geared.index, 1) == 145003
    assert choose(geared.model, npu.dataset(geared.places[0], (0, 0)), 1, 1) == 145011
    assert choose(geared.model, npu.dataset(geared.places[0], (geared.places[1][0], 2)), 1, 1) == 145012
    assert mdl.set_dynamic_hw_size(geared.model, geared.inputs, 1, 4, 4) == 145013


def test_height_and_width_gears(npu: Driver) -> None:
    content = model(
        [node("GlobalAveragePool", ["image"], ["mean"]), node("Neg", ["image"], ["negative"])],
        [tensor("image", (1, 3, "h", "w"))],
        [tensor("mean", (1, 3, 1, 1)), tensor("negative", (1, 3, "h", "w"))],
    )
    geared = Geared(npu, npu.load(content, gears={"hw": [[4, 6], [8, 2]]}))
    assert npu.mdl.get_dynamic_hw(geared.description, -1) == ({"hwCount": 2, "hw": [[4, 6], [8, 2]]}, 0)
    assert npu.mdl.get_input_dims(geared.description, 0)[0]["dims"] == [1, 3, -1, -1]
    for height, width in ((4, 6), (8, 2)):
        x = np.random.default_rng(0).standard_normal((1, 3, height, width)).astype(np.float32)
        geared.put(0, x)
        npu.ok(npu.mdl.set_dynamic_hw_size(geared.model, geared.inputs, geared.index, height, width))
        assert npu.mdl.get_cur_output_dims(geared.description, 1)[0]["dims"] == [1, 3, height, width]
        npu.ok(npu.mdl.execute(geared.model, geared.inputs, geared.outputs))
        assert np.allclose(npu.download(geared.results[0][0], np.zeros(3, np.float32)), x.mean((0, 2, 3)), atol=1e-6)
        assert np.array_equal(npu.download(geared.results[1][0], x), -x)


def test_dims_gears_name_all_inputs(npu: Driver) -> None:
    content = model(
        [node("Concat", ["a", "b"], ["y"], axis=0)],
        [tensor("a", (None, 2)), tensor("b", (None, 2))],
        [tensor("y", (None, 2))],
    )
    geared = Geared(npu, npu.load(content, gears={"dims": [[1, 2], [3, 1]]}))
    mdl = npu.mdl
    assert mdl.get_input_dynamic_gear_count(geared.description, -1) == (2, 0)
    gears = npu.ok(mdl.get_input_dynamic_dims(geared.description, -1, 2))
    assert [gear["dims"] for gear in gears] == [[1, 2, 2, 2], [3, 2, 1, 2]]
    npu.ok(mdl.set_input_dynamic_dims(geared.model, geared.inputs, geared.index, gears[1]))
    geared.put(0, np.full((3, 2), 7, np.float32))
    geared.put(1, np.full((1, 2), 9, np.float32))
    npu.ok(mdl.execute(geared.model, geared.inputs, geared.outputs))
    assert mdl.get_cur_output_dims(geared.description, 0)[0]["dims"] == [4, 2]
    assert npu.download(geared.results[0][0], np.zeros(8, np.float32)).tolist() == [7] * 6 + [9] * 2
    wrong = {"name": "", "dimCount": 4, "dims": [5, 2, 5, 2]}
    assert mdl.set_input_dynamic_dims(geared.model, geared.inputs, geared.index, wrong) == 145013
    with pytest.raises(TypeError, match="dims dict"):
        mdl.set_input_dynamic_dims(geared.model, geared.inputs, geared.index, [1, 2])


def test_gears_in_the_model_s_metadata_or_beside_it(npu: Driver, tmp_path: Path) -> None:
    proto = onnx.load_from_string(doubler(("N", 3)))
    beside = tmp_path / "beside.onnx"
    beside.write_bytes(proto.SerializeToString())
    (tmp_path / "beside.onnx.gears.json").write_text(json.dumps({"batch": [1, 8], "shapes": {"x": [-1, 3]}}))
    entry = proto.metadata_props.add()
    entry.key, entry.value = "aioascend.gears", json.dumps({"batch": [1, 8]})
    inside = tmp_path / "inside.om"
    inside.write_bytes(proto.SerializeToString())
    for path in (inside, beside):
        geared = Geared(npu, npu.ok(npu.mdl.load_from_file(str(path))))
        assert npu.mdl.get_dynamic_batch(geared.description)[0]["batch"] == [1, 8]
    (tmp_path / "beside.onnx.gears.json").write_text("[")
    assert npu.mdl.load_from_file(str(beside)) == (0, 545001)


@pytest.mark.parametrize(
    "axes, shapes, gears, text",
    [
        (("N", 3), None, {"batch": [1, 1]}, "different"),
        (("N", 3), None, {"batch": []}, "different"),
        (("N", 3), None, {"batch": [0]}, "positive"),
        (("N", 3), None, {"size": [1]}, "batch, hw, dims and free"),
        (("N", 3), None, {"batch": [1], "hw": [[1, 1]]}, "batch, hw, dims and free"),
        ((2, 3), None, {"batch": [1]}, "none"),
        (("N", "M"), None, {"batch": [1]}, "first axis"),
        (("N", 3), None, {"hw": [[1, 1]]}, "two axes"),
        (("N", 3), {"x": (-1, 4)}, {"batch": [1]}, "was given"),
        (("N", 3), {"z": (1,)}, {"batch": [1]}, "own inputs"),
        (("N", "M"), None, {"dims": [[1]]}, "2 positive"),
    ],
)
def test_wrong_gears_are_refused(machine: Emulator, axes: Any, shapes: Any, gears: Any, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        machine.compile(doubler(axes), shapes=shapes, gears=gears)
