"""Dry runs through `acl`: a program that loads a real `.om` finds in it what the file says, and computes nothing."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioascend.emulator import CompileError, Config, Emulator
from tests.om import real, writer

from .kit import Driver

ROOT = Path(__file__).parents[2]
NOT_DRY = 100013


def started(**settings: Any) -> Driver:
    emulator = Emulator(Config(strict=True, **settings))
    emulator.acl.init()
    return Driver(emulator)


@pytest.fixture
def npu() -> Iterator[Driver]:
    driver = started(dry_run=True)
    yield driver
    assert [str(one) for one in driver.emulator.report().violations] == []
    driver.emulator.shutdown()


def described(npu: Driver, model: int) -> int:
    description: int = npu.mdl.create_desc()
    npu.ok(npu.mdl.get_desc(description, model))
    return description


@pytest.mark.parametrize("name, chip", [("a3c_pong.om", ""), ("modelbox_2d_2048.om", ""), ("vae_hh.om", "Ascend310")])
def test_a_real_file_is_described_sized_and_run(name: str, chip: str) -> None:
    wanted = real.expected(name)
    npu = started(dry_run=True, **({"soc_name": chip} if chip else {}))
    mdl, path = npu.mdl, str(real.path(name))
    sizes = wanted["acl_query_size"]
    assert mdl.query_size(path) == (sizes["work_size"], sizes["weight_size"], 0)
    model = npu.ok(mdl.load_from_file(path))
    from_file = mdl.create_desc()
    npu.ok(mdl.get_desc_from_file(from_file, path))
    datasets = []
    for side, tensors in (("input", wanted["models"][0]["inputs"]), ("output", wanted["models"][0]["outputs"])):
        for description in (described(npu, model), from_file):
            assert getattr(mdl, f"get_num_{side}s")(description) == len(tensors)
            for index, tensor in enumerate(tensors):
                assert getattr(mdl, f"get_{side}_name_by_index")(description, index) == tensor["name"]
                assert getattr(mdl, f"get_{side}_data_type")(description, index) == tensor["acl_dtype"]
                assert getattr(mdl, f"get_{side}_format")(description, index) == tensor["acl_format"]
                assert getattr(mdl, f"get_{side}_size_by_index")(description, index) == tensor["acl_size"]
                dims = npu.ok(getattr(mdl, f"get_{side}_dims")(description, index))
                assert dims == {"name": tensor["name"], "dimCount": len(tensor["dims"]), "dims": tensor["dims"]}
        places = [(npu.device(tensor["acl_size"]), tensor["acl_size"]) for tensor in tensors]
        datasets.append((npu.dataset(*places), places))
    (inputs, _), (outputs, places) = datasets
    npu.ok(mdl.execute(model, inputs, outputs))
    for address, size in places:
        array = npu.download(address, np.empty(size // 4, np.float32))
        assert np.array_equal(array, np.arange(array.size) % 100)
    npu.emulator.shutdown()


def test_nothing_is_opened_that_was_not_asked_for(tmp_path: Path) -> None:
    npu = started()
    path = tmp_path / "model.om"
    path.write_bytes(writer.simple())
    assert npu.mdl.load_from_file(str(path)) == (0, NOT_DRY)
    told = npu.acl.get_recent_err_msg()
    assert "the emulator runs the .onnx it was made from" in told
    assert "AIOASCEND_EMULATOR_DRY_RUN=1" in told
    assert npu.mdl.query_size(str(path))[2] == NOT_DRY
    npu.emulator.shutdown()


def test_one_model_may_be_opened_for_a_dry_run_alone(tmp_path: Path) -> None:
    npu = started()
    path = tmp_path / "model.om"
    path.write_bytes(writer.simple())
    for model in (str(path), writer.simple()):
        assert npu.mdl.get_num_inputs(described(npu, npu.load(npu.emulator.dry_run(model)))) == 1
    assert npu.mdl.load_from_file(str(path)) == (0, NOT_DRY)
    with pytest.raises(CompileError, match=r"no real \.om"):
        npu.emulator.dry_run(b"something else")
    with pytest.raises(CompileError, match="is compiled already"):
        npu.emulator.compile(str(path))
    with pytest.raises(CompileError, match="cannot read"):
        npu.emulator.dry_run(str(tmp_path / "missing.om"))
    npu.emulator.shutdown()


def test_a_model_for_another_chip_is_refused_with_both_names() -> None:
    npu = started(dry_run=True, soc_name="Ascend910B4")
    content = writer.simple()
    assert npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(content), len(content)) == (0, 507008)
    told = npu.acl.get_recent_err_msg()
    assert "compiled for Ascend310P3" in told
    assert "is Ascend910B4" in told
    npu.emulator.shutdown()


@pytest.mark.parametrize(
    "content, code, text",
    [
        (writer.simple()[:700], 145006, "cut short"),
        (writer.simple(encrypted=1), 545001, "encrypted"),
        (writer.bundle([writer.simple()]), 145000, "bundle of whole models"),
        (bytes(writer.File([[(0, writer.definition([]))]])), 145000, "not compiled"),
    ],
)
def test_what_cannot_be_opened_has_the_code_of_the_vendors_loader(
    npu: Driver, content: bytes, code: int, text: str
) -> None:
    assert npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(content), len(content)) == (0, code)
    assert text in npu.acl.get_recent_err_msg()


def test_a_warning_is_logged_once_for_each_file(npu: Driver, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aioascend.emulator"):
        for _ in range(3):
            npu.load(writer.simple())
        npu.load(writer.geared("hw"))
    assert len(caplog.records) == 2
    assert "nothing is computed" in caplog.records[0].getMessage()


class Geared:
    """A geared model with a buffer for every input and output."""

    def __init__(self, npu: Driver, kind: str) -> None:
        self.npu, mdl = npu, npu.mdl
        self.model = npu.load(writer.geared(kind))
        self.description = described(npu, self.model)
        count = mdl.get_num_inputs(self.description)
        sizes = [mdl.get_input_size_by_index(self.description, index) for index in range(count)]
        self.inputs = npu.dataset(*((npu.device(size), size) for size in sizes))
        size = mdl.get_output_size_by_index(self.description, 0)
        self.output = npu.device(size)
        self.outputs = npu.dataset((self.output, size))
        self.gear_input = npu.ok(mdl.get_input_index_by_name(self.description, "ascend_mbatch_shape_data"))

    def run(self) -> list[int]:
        """The dims of the output after a run."""
        self.npu.ok(self.npu.mdl.execute(self.model, self.inputs, self.outputs))
        return list(self.npu.ok(self.npu.mdl.get_cur_output_dims(self.description, 0))["dims"])


def test_batch_gears(npu: Driver) -> None:
    geared, mdl = Geared(npu, "batch"), npu.mdl
    assert mdl.get_dynamic_batch(geared.description) == ({"batchCount": 3, "batch": [1, 2, 4]}, 0)
    assert npu.ok(mdl.get_input_dims(geared.description, 0))["dims"] == [-1, 3]
    assert npu.ok(mdl.get_output_dims(geared.description, 0))["dims"] == [4, 2]
    npu.ok(mdl.set_dynamic_batch_size(geared.model, geared.inputs, geared.gear_input, 2))
    assert geared.run() == [2, 2]
    assert npu.download(geared.output, np.empty(4, np.float32)).tolist() == [0, 1, 2, 3]
    assert mdl.set_dynamic_batch_size(geared.model, geared.inputs, geared.gear_input, 3) == 145013


def test_gears_of_pictures(npu: Driver) -> None:
    geared, mdl = Geared(npu, "hw"), npu.mdl
    assert mdl.get_dynamic_hw(geared.description, -1) == ({"hwCount": 2, "hw": [[4, 4], [8, 6]]}, 0)
    npu.ok(mdl.set_dynamic_hw_size(geared.model, geared.inputs, geared.gear_input, 4, 4))
    assert geared.run() == [1, 16]


def test_gears_of_dims_follow_the_order_of_the_file(npu: Driver) -> None:
    geared, mdl = Geared(npu, "dims"), npu.mdl
    assert npu.ok(mdl.get_input_dynamic_gear_count(geared.description, -1)) == 2
    told = npu.ok(mdl.get_input_dynamic_dims(geared.description, -1, 2))
    # Inputs a [1, -1] and b [-1, -1]; the file's gears are for b's axes first: (1, 4, 16) and (2, 8, 32).
    assert [gear["dims"] for gear in told] == [[1, 16, 1, 4], [1, 32, 2, 8]]
    npu.ok(mdl.set_input_dynamic_dims(geared.model, geared.inputs, geared.gear_input, told[0]))
    assert geared.run() == [7]


def test_a_run_without_a_gear_fails_as_on_hardware(npu: Driver) -> None:
    geared = Geared(npu, "batch")
    assert npu.mdl.execute(geared.model, geared.inputs, geared.outputs) == 507011
    assert "holds no gear" in npu.acl.get_recent_err_msg()


def test_gears_that_do_not_fit_the_inputs_are_a_damaged_file(npu: Driver) -> None:
    inputs = [writer.data("x", 0, 1, [4, 4], attrs={"_mbatch_origin_input_dims": [-1, -1]})]
    gear_input = writer.data("ascend_mbatch_shape_data", 1, writer.INT32, [1], size=4)
    operators = [*inputs, gear_input, writer.gear_case(3, [[1]], ["x"]), writer.net_output([], [])]
    content = writer.simple(operators)
    assert npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(content), len(content)) == (0, 100016)


def test_open_shapes_are_said_by_every_run(npu: Driver) -> None:
    operators = [
        writer.data("x", 0, writer.FLOAT, [-1, 3]),
        writer.net_output([writer.descriptor(writer.INT32, [-1, 2])], [("a", 0)]),
    ]
    model = npu.load(writer.simple(operators, unknown=1))
    mdl, acl = npu.mdl, npu.acl
    description = described(npu, model)
    assert mdl.get_input_size_by_index(description, 0) == 0
    inputs, outputs = npu.dataset((npu.device(60), 60)), npu.dataset((0, 0))
    shape = acl.create_tensor_desc(0, [5, 3], 2)
    npu.ok(mdl.set_dataset_tensor_desc(inputs, shape, 0))
    npu.ok(mdl.execute(model, inputs, outputs))
    told = mdl.get_dataset_tensor_desc(outputs, 0)
    assert [acl.get_tensor_desc_dim(told, axis) for axis in range(2)] == [5, 2]
    buffer = mdl.get_dataset_buffer(outputs, 0)
    values = npu.download(acl.get_data_buffer_addr(buffer), np.empty(10, np.int32))
    assert values.tolist() == list(range(10))


def test_pictures_prepared_in_the_model_are_told(npu: Driver) -> None:
    static = writer.data(
        "x", 0, writer.UINT8, [1, 480, 640, 3], "NHWC", 460800,
        {"_data_related_aipp_mode": "static_aipp", "input_dims": [1, 720, 640, 1]},
    )  # fmt: skip
    model = npu.load(writer.simple([static, writer.net_output([], [])]))
    mdl = npu.mdl
    assert mdl.get_aipp_type(model, 0) == (1, 0xFFFFFFFF, 0)
    assert npu.ok(mdl.get_input_dims_v2(described(npu, model), 0))["dims"] == [1, 720, 640, 1]
    assert npu.ok(mdl.get_input_dims(described(npu, model), 0))["dims"] == [1, 480, 640, 3]
    assert mdl.get_first_aipp_info(model, 0)[1] == 200001
    dynamic = [
        writer.data("x", 0, writer.UINT8, [1, 3, 8, 8], "NCHW", 500, {"_data_related_aipp_mode": "dynamic_aipp"}),
        writer.data("ascend_dynamic_aipp_data", 1, writer.UINT8, [160], size=160),
        writer.net_output([], []),
    ]
    model = npu.load(writer.simple(dynamic))
    assert mdl.get_aipp_type(model, 0) == (2, 1, 0)
    assert mdl.get_aipp_type(model, 1) == (3, 0xFFFFFFFF, 0)


@pytest.mark.parametrize(
    "kind, dtype",
    [(writer.FLOAT, np.float32), (writer.FLOAT16, np.float16), (writer.INT8, np.int8), (writer.INT64, np.int64),
     (11, np.bool_)],
)  # fmt: skip
def test_made_up_outputs_are_numbers_of_their_type(npu: Driver, kind: int, dtype: type) -> None:
    operators = [writer.net_output([writer.descriptor(kind, [7, 31])], [("a", 0)])]
    model = npu.load(writer.simple(operators))
    size = 217 * np.dtype(dtype).itemsize
    output = npu.device(size)
    npu.ok(npu.mdl.execute(model, npu.dataset(), npu.dataset((output, size))))
    found = npu.download(output, np.empty(217, dtype))
    wanted = np.arange(217) % 100 % (2 if dtype is np.bool_ else 100)
    assert np.array_equal(found, wanted.astype(dtype))


PROGRAM = """\
import json, sys
import acl
acl.init(); acl.rt.set_device(0)
model, ret = acl.mdl.load_from_file(sys.argv[1])
text = acl.get_recent_err_msg()
desc = acl.mdl.create_desc()
acl.mdl.get_desc(desc, model)
print(json.dumps([ret, text, acl.mdl.get_num_inputs(desc), acl.mdl.get_input_format(desc, 0)]))
acl.mdl.destroy_desc(desc); acl.mdl.unload(model); acl.rt.reset_device(0); acl.finalize()
print("onnxruntime" in sys.modules)
"""


@pytest.mark.parametrize("way", ["option", "variable", "neither"])
def test_a_plain_program_asks_by_an_option_or_a_variable(tmp_path: Path, way: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "model.om").write_bytes(writer.simple())
    environment = {name: text for name, text in os.environ.items() if not name.startswith("AIOASCEND_")}
    environment["PYTHONPATH"] = str(ROOT)
    if way == "variable":
        environment["AIOASCEND_EMULATOR_DRY_RUN"] = "1"
    option = ["--dry-run"] if way == "option" else []
    command = [sys.executable, "-m", "aioascend", "emulate", *option, "program.py", "model.om"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    first, last = done.stdout.splitlines()
    if way == "neither":
        assert json.loads(first)[0] == NOT_DRY
        assert "--dry-run" in json.loads(first)[1]
        return
    assert json.loads(first) == [0, None, 1, 0]
    assert last == "False"
    assert "a dry run; nothing is computed" in done.stderr


def test_a_pipe_is_not_waited_for(npu: Driver, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.om")
    model_id, code = npu.mdl.load_from_file(str(tmp_path / "pipe.om"))
    assert (model_id, code) == (0, 100003)
    assert "not a regular file" in npu.acl.get_recent_err_msg()
