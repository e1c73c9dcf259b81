"""Models whose axes stay open: shapes are said at every run (pyACL reference §11)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aioascend.emulator import CompileError, Emulator

from .kit import INT64, Driver, doubler, identity, model, node, nonzero, tensor


class Free:
    """A model with open axes, its buffers, and what sets and reads shapes."""

    def __init__(self, npu: Driver, content: bytes, kind: int = 0) -> None:
        self.npu, self.acl, self.mdl, self.kind = npu, npu.acl, npu.mdl, kind
        self.model = npu.load(content, gears={"free": True})

    def inputs(self, array: np.ndarray, say: bool = True) -> int:
        dataset = self.npu.dataset((self.npu.upload(array), array.nbytes))
        if say:
            descriptor = self.acl.create_tensor_desc(self.kind, list(array.shape), 2)
            assert self.npu.ok(self.mdl.set_dataset_tensor_desc(dataset, descriptor, 0)) == dataset
            self.acl.destroy_tensor_desc(descriptor)
        return dataset

    def shape(self, dataset: int) -> list[int]:
        descriptor = self.mdl.get_dataset_tensor_desc(dataset, 0)
        count = self.acl.get_tensor_desc_num_dims(descriptor)
        return [self.npu.ok(self.acl.get_tensor_desc_dim_v2(descriptor, i)) for i in range(count)]


def test_open_axes_show_as_minus_one_and_sizes_as_zero(npu: Driver) -> None:
    free = Free(npu, doubler(("N", 3)))
    description = npu.mdl.create_desc()
    npu.ok(npu.mdl.get_desc(description, free.model))
    assert npu.mdl.get_input_dims(description, 0)[0]["dims"] == [-1, 3]
    assert npu.mdl.get_output_dims(description, 0)[0]["dims"] == [-1, 3]
    assert npu.mdl.get_input_size_by_index(description, 0) == 0
    assert npu.mdl.get_output_size_by_index(description, 0) == 0


def test_each_run_has_its_own_shape(npu: Driver) -> None:
    free, stream = Free(npu, doubler(("N", "M"))), npu.stream()
    for shape in ((2, 3), (5, 1), (1, 7)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        result = npu.device(1000)
        outputs = npu.dataset((result, 1000))
        npu.ok(npu.mdl.execute_async(free.model, free.inputs(x), outputs, stream))
        npu.ok(npu.rt.synchronize_stream(stream))
        assert free.shape(outputs) == list(shape)
        assert np.array_equal(npu.download(result, x), 2 * x)


def test_a_synchronous_run_fills_an_empty_buffer(npu: Driver) -> None:
    free = Free(npu, doubler(("N", 3)))
    x = np.ones((4, 3), np.float32)
    outputs = npu.dataset((0, 0))
    npu.ok(npu.mdl.execute(free.model, free.inputs(x), outputs))
    buffer = npu.mdl.get_dataset_buffer(outputs, 0)
    address = npu.acl.get_data_buffer_addr(buffer)
    assert npu.acl.get_data_buffer_size_v2(buffer) == 48
    assert npu.download(address, x).sum() == 24
    npu.ok(npu.rt.free(address))
    npu.ok(npu.acl.update_data_buffer(buffer, 0, 0))
    assert npu.mdl.execute_async(free.model, free.inputs(x), outputs, npu.stream()) == 100018


def test_a_run_with_limits_fills_an_empty_buffer_too(npu: Driver) -> None:
    loaded = npu.load(doubler(("N", 3)), gears={"free": True})
    x = np.ones((2, 3), np.float32)
    given, taken = npu.dataset((npu.upload(x), 24)), npu.dataset((0, 0))
    npu.ok(npu.mdl.set_dataset_tensor_desc(given, npu.acl.create_tensor_desc(0, [2, 3], 2), 0))
    assert npu.mdl.execute_async(loaded, given, taken, 0) == 100018
    npu.ok(npu.mdl.execute_v2(loaded, given, taken, 0, npu.mdl.create_exec_config_handle()))
    address = npu.acl.get_data_buffer_addr(npu.mdl.get_dataset_buffer(taken, 0))
    assert npu.download(address, x).sum() == 12
    npu.ok(npu.rt.free(address))


def test_outputs_may_depend_on_the_data(npu: Driver) -> None:
    content = model([node("NonZero", ["x"], ["y"])], [tensor("x", ("N",))], [tensor("y", (1, None), INT64)])
    free = Free(npu, content)
    outputs = npu.dataset((npu.device(64), 64))
    npu.ok(npu.mdl.execute(free.model, free.inputs(np.array([0, 1, 0, 1], np.float32)), outputs))
    assert free.shape(outputs) == [1, 2]
    npu.ok(npu.mdl.execute(free.model, free.inputs(np.zeros(4, np.float32)), outputs))
    assert free.shape(outputs) == [1, 0]


def test_what_does_not_fit_is_refused(npu: Driver) -> None:
    free = Free(npu, doubler(("N", 3)))
    x, outputs = np.ones((4, 3), np.float32), npu.dataset((npu.device(64), 64))
    assert npu.mdl.execute(free.model, free.inputs(x, say=False), outputs) == 145021
    assert "set_dataset_tensor_desc" in npu.acl.get_recent_err_msg()
    assert npu.mdl.execute(free.model, free.inputs(np.ones((4, 2), np.float32)), outputs) == 145021
    small = npu.dataset((npu.device(64), 20))
    assert npu.mdl.execute(free.model, free.inputs(x), small) == 507011
    assert "48 bytes" in npu.acl.get_recent_err_msg()
    assert npu.mdl.execute(free.model, npu.dataset(), outputs) == 100017


def test_a_file_beside_the_model_keeps_its_axes_open(npu: Driver, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(doubler(("N", 3)))
    assert npu.mdl.load_from_file(str(path)) == (0, 145021)
    (tmp_path / "m.onnx.gears.json").write_text('{"free": true}')
    description = npu.mdl.create_desc()
    npu.ok(npu.mdl.get_desc(description, npu.ok(npu.mdl.load_from_file(str(path)))))
    assert npu.mdl.get_input_dims(description, 0)[0]["dims"] == [-1, 3]


def test_free_axes_need_open_axes_and_tensors(machine: Emulator) -> None:
    with pytest.raises(CompileError, match="none"):
        machine.compile(nonzero(), gears={"free": True})
    assert machine.compile(identity(7, (None,)), gears={"free": True})
