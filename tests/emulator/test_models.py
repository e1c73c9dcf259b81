"""Models: loaded, described, run, unloaded (pyACL reference §11)."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioascend.emulator import Config, Emulator, session_options

from .kit import FLOAT, INT64, Driver, doubler, gather, identity, model, node, slow, tensor

DTYPES = [
    (TensorProto.FLOAT, np.float32, 0),
    (TensorProto.FLOAT16, np.float16, 1),
    (TensorProto.INT8, np.int8, 2),
    (TensorProto.INT32, np.int32, 3),
    (TensorProto.UINT8, np.uint8, 4),
    (TensorProto.INT16, np.int16, 6),
    (TensorProto.UINT16, np.uint16, 7),
    (TensorProto.UINT32, np.uint32, 8),
    (TensorProto.INT64, np.int64, 9),
    (TensorProto.UINT64, np.uint64, 10),
    (TensorProto.DOUBLE, np.float64, 11),
    (TensorProto.BOOL, np.bool_, 12),
    (TensorProto.BFLOAT16, np.uint16, 27),
]


@pytest.mark.parametrize("kind, dtype, number", DTYPES)
def test_every_element_type_goes_through_unchanged(npu: Driver, kind: int, dtype: Any, number: int) -> None:
    loaded = npu.load(identity(kind))
    x = np.random.default_rng(0).integers(0, 2, (2, 3)).astype(dtype)
    (y,) = npu.run(loaded, [x], [x])
    assert np.array_equal(y, x)
    description = npu.mdl.create_desc()
    npu.ok(npu.mdl.get_desc(description, loaded))
    assert npu.mdl.get_input_data_type(description, 0) == number
    assert npu.mdl.get_output_data_type(description, 0) == number
    assert npu.mdl.get_input_size_by_index(description, 0) == x.nbytes


def test_a_tensor_without_axes(npu: Driver) -> None:
    loaded = npu.load(model([node("Add", ["x", "x"], ["y"])], [tensor("x", (), INT64)], [tensor("y", (), INT64)]))
    (y,) = npu.run(loaded, [np.array(21)], [np.array(0)])
    assert y == 42
    description = npu.mdl.create_desc()
    npu.ok(npu.mdl.get_desc(description, loaded))
    assert npu.mdl.get_input_dims(description, 0) == ({"name": "x", "dimCount": 0, "dims": []}, 0)


def test_several_inputs_and_outputs_keep_their_order(npu: Driver) -> None:
    loaded = npu.load(
        model(
            [node("Sub", ["a", "b"], ["d"]), node("Add", ["a", "b"], ["s"])],
            [tensor("a", (2,)), tensor("b", (2,))],
            [tensor("s", (2,)), tensor("d", (2,))],
        )
    )
    a, b = np.array([5, 6], np.float32), np.array([1, 2], np.float32)
    s, d = npu.run(loaded, [a, b], [a, a])
    assert s.tolist() == [6, 8]
    assert d.tolist() == [4, 4]


def test_answers_are_those_of_onnxruntime_with_the_same_options(npu: Driver) -> None:
    generator = np.random.default_rng(3)
    weight = generator.standard_normal((64, 64)).astype(np.float32)
    content = model(
        [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["y"], axis=-1)],
        [tensor("x", (8, 64))],
        [tensor("y", (8, 64))],
        {"w": weight},
    )
    x = generator.standard_normal((8, 64)).astype(np.float32)
    (y,) = npu.run(npu.load(content), [x], [x])
    session = onnxruntime.InferenceSession(content, session_options(npu.emulator.config), ["CPUExecutionProvider"])
    assert y.tobytes() == session.run(None, {"x": x})[0].tobytes()


def test_an_input_that_is_also_an_output(npu: Driver) -> None:
    content = model([node("Add", ["x", "x"], ["y"])], [tensor("x", (3,))], [tensor("y", (3,)), tensor("x", (3,))])
    x = np.array([1, 2, 3], np.float32)
    y, same = npu.run(npu.load(content), [x], [x, x])
    assert (y.tolist(), same.tolist()) == ([2, 4, 6], [1, 2, 3])


def test_the_description_of_a_model(npu: Driver) -> None:
    loaded = npu.load(doubler((4, 5)))
    description = npu.mdl.create_desc()
    npu.ok(npu.mdl.get_desc(description, loaded))
    mdl = npu.mdl
    assert (mdl.get_num_inputs(description), mdl.get_num_outputs(description)) == (1, 1)
    assert mdl.get_input_size_by_index(description, 0) == mdl.get_output_size_by_index(description, 0) == 80
    for getter in (mdl.get_input_dims, mdl.get_input_dims_v2):
        assert getter(description, 0) == ({"name": "x", "dimCount": 2, "dims": [4, 5]}, 0)
    for getter in (mdl.get_output_dims, mdl.get_cur_output_dims):
        assert getter(description, 0) == ({"name": "y", "dimCount": 2, "dims": [4, 5]}, 0)
    assert mdl.get_input_format(description, 0) == mdl.get_output_format(description, 0) == 2
    assert (mdl.get_input_name_by_index(description, 0), mdl.get_output_name_by_index(description, 0)) == ("x", "y")
    assert mdl.get_input_index_by_name(description, "x") == (0, 0)
    assert mdl.get_output_index_by_name(description, "nothing")[1] != 0
    assert mdl.get_input_dims(description, 1) == ({}, 100000)
    assert mdl.get_input_dims(description, -1) == ({}, 100000)
    npu.ok(mdl.destroy_desc(description))
    assert mdl.destroy_desc(description) == 100000


def test_a_dims_dict_is_fresh_each_time(npu: Driver) -> None:
    description = npu.mdl.create_desc()
    npu.ok(npu.mdl.get_desc(description, npu.load(doubler())))
    dims, _ = npu.mdl.get_input_dims(description, 0)
    dims["name"] = "changed"
    dims["dims"].append(9)
    assert npu.mdl.get_input_dims(description, 0)[0] == {"name": "x", "dimCount": 2, "dims": [2, 3]}


def test_a_name_too_long_for_a_dims_dict_is_found_again(npu: Driver) -> None:
    name = "n" * 200
    loaded = npu.load(model([node("Neg", [name], ["y"])], [tensor(name, (2,))], [tensor("y", (2,))]))
    description = npu.mdl.create_desc()
    npu.ok(npu.mdl.get_desc(description, loaded))
    short = npu.mdl.get_input_dims(description, 0)[0]["name"]
    assert len(short) < 128
    assert npu.mdl.get_tensor_real_name(description, short) == name
    assert npu.mdl.get_input_name_by_index(description, 0) == name


def test_a_static_model_answers_that_it_has_no_gears(npu: Driver) -> None:
    loaded, mdl = npu.load(doubler()), npu.mdl
    description = mdl.create_desc()
    npu.ok(mdl.get_desc(description, loaded))
    assert mdl.get_dynamic_batch(description) == ({"batchCount": 0, "batch": []}, 0)
    assert mdl.get_dynamic_hw(description, -1) == ({"hwCount": 0, "hw": []}, 0)
    assert mdl.get_input_dynamic_gear_count(description, -1) == (0, 0)
    assert mdl.get_input_dynamic_dims(description, -1, 0) == ([], 0)
    assert mdl.get_input_dynamic_dims(description, -1, 4097) == (None, 100000)
    assert mdl.get_input_index_by_name(description, "ascend_mbatch_shape_data")[1] != 0
    dataset = mdl.create_dataset()
    assert mdl.set_dynamic_batch_size(loaded, dataset, 0, 0) == 100000
    assert mdl.set_dynamic_batch_size(loaded, dataset, 0, 2) == 100019
    assert mdl.set_dynamic_hw_size(loaded, dataset, 0, 2, 2) == 100019


def test_a_model_file_is_told_by_its_content_not_its_name(npu: Driver, tmp_path: Path) -> None:
    plain, compiled = tmp_path / "a.om", tmp_path / "b.bin"
    plain.write_bytes(doubler())
    compiled.write_bytes(npu.emulator.compile(doubler(("N", 3)), shapes={"x": (2, 3)}))
    x = np.ones((2, 3), np.float32)
    for path in (plain, compiled):
        loaded = npu.ok(npu.mdl.load_from_file(str(path)))
        assert npu.run(loaded, [x], [x])[0].tolist() == (x + x).tolist()
        npu.ok(npu.mdl.unload(loaded))
        description = npu.mdl.create_desc()
        npu.ok(npu.mdl.get_desc_from_file(description, str(path)))
        assert npu.mdl.get_input_dims(description, 0)[0]["dims"] == [2, 3]
        assert npu.mdl.get_cur_output_dims(description, 0)[1] == 100000


@pytest.mark.parametrize(
    "content, text",
    [
        (b"", "empty"),
        (b"IMOD" + bytes(300), "compiled for an NPU"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not an ONNX model"),
        (b"hello, this is text\n" * 20, "not an ONNX model"),
        (bytes(64), "not an ONNX model"),
        (doubler()[:-20], "not an ONNX model"),
    ],
)
def test_a_foreign_or_damaged_file_gives_a_code_and_a_sentence(
    npu: Driver, tmp_path: Path, content: bytes, text: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    loaded, code = npu.mdl.load_from_file(str(path))
    assert loaded == 0
    assert 100012 <= code <= 100016
    assert text in npu.acl.get_recent_err_msg()
    assert npu.load(doubler())


def test_any_truncation_is_refused_without_harm(npu: Driver) -> None:
    content = gather()
    for length in range(1, len(content)):
        part = content[:length]
        loaded, code = npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(part), length)
        assert code != 0 or npu.mdl.unload(loaded) == 0
    assert npu.load(content)


def test_a_missing_file_and_a_directory(npu: Driver, tmp_path: Path) -> None:
    assert npu.mdl.load_from_file(str(tmp_path / "none.onnx")) == (0, 145002)
    assert "none.onnx" in npu.acl.get_recent_err_msg()
    assert npu.mdl.load_from_file(str(tmp_path)) == (0, 100003)


def test_a_model_with_open_axes_says_what_to_give(npu: Driver) -> None:
    content = doubler(("N", 3))
    code = npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(content), len(content))[1]
    assert code == 145021
    message = npu.acl.get_recent_err_msg()
    assert "shapes={" in message
    assert ".gears.json" in message


def test_a_model_with_an_unknown_operator(npu: Driver) -> None:
    content = model([node("NoSuchOperator", ["x"], ["y"])], [tensor("x", (2,))], [tensor("y", (2,))])
    assert npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(content), len(content)) == (0, 545001)
    assert "NoSuchOperator" in npu.acl.get_recent_err_msg()


def test_weights_beside_the_model_are_found(npu: Driver, tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"])],
        "g",
        [tensor("x", ("N", 64))],
        [tensor("y", ("N", 64))],
        [numpy_helper.from_array(weight, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "model.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    x = np.ones((2, 64), np.float32)
    compiled = npu.emulator.compile(str(path), shapes={"x": (2, 64)})
    loaded = npu.ok(npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(compiled), len(compiled)))
    assert np.allclose(npu.run(loaded, [x], [x])[0], x @ weight, atol=1e-4)


def test_model_ids_are_stale_after_unload(npu: Driver) -> None:
    loaded = npu.load(doubler())
    npu.ok(npu.mdl.unload(loaded))
    assert npu.mdl.unload(loaded) == 145003
    assert npu.mdl.execute(loaded, 0, 0) == 145003
    assert npu.mdl.get_desc(npu.mdl.create_desc(), loaded) == 145003


def test_loading_takes_device_memory_and_unloading_gives_it_back(npu: Driver) -> None:
    free, _, _ = npu.rt.get_mem_info(0)
    loaded = npu.load(slow(2, 200))
    assert npu.rt.get_mem_info(0)[0] <= free - 4 * 200 * 200
    npu.ok(npu.mdl.unload(loaded))
    assert npu.rt.get_mem_info(0)[0] == free


def test_a_model_that_does_not_fit_is_refused_and_leaves_nothing() -> None:
    emulator = Emulator(Config(memory=1 << 20))
    emulator.acl.init()
    npu = Driver(emulator)
    content = slow(1, 600)
    assert npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(content), len(content)) == (0, 207001)
    assert npu.rt.get_mem_info(0)[0] == 1 << 20
    assert npu.load(doubler())
    emulator.shutdown()


def test_memory_of_the_caller_s(npu: Driver, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(doubler())
    work_size, weight_size = npu.ok(npu.mdl.query_size(str(path)))
    content = path.read_bytes()
    address = npu.acl.util.bytes_to_ptr(content)
    assert npu.ok(npu.mdl.query_size_from_mem(address, len(content))) == (work_size, weight_size)
    work, weight = npu.device(work_size), npu.device(weight_size)
    free, _, _ = npu.rt.get_mem_info(0)
    loaded = npu.ok(npu.mdl.load_from_file_with_mem(str(path), work, work_size, weight, weight_size))
    assert npu.rt.get_mem_info(0)[0] == free
    x = np.ones((2, 3), np.float32)
    assert npu.run(loaded, [x], [x])[0].sum() == 12
    assert npu.mdl.load_from_file_with_mem(str(path), work, 1, weight, weight_size) == (0, 145006)
    npu.ok(npu.mdl.load_from_mem_with_mem(address, len(content), 0, 0, weight, weight_size))
    npu.ok(npu.rt.free(work))
    given, taken, _ = npu.bind([x], [x])
    assert npu.mdl.execute(loaded, given, taken) == 507011


def test_a_dataset_that_does_not_fit_the_model(npu: Driver) -> None:
    loaded = npu.load(doubler())
    good, small = (npu.device(24), 24), (npu.device(16), 16)
    fits = npu.dataset(good)
    assert npu.mdl.execute(loaded, npu.dataset(small), fits) == 100017
    assert npu.mdl.execute(loaded, npu.dataset(), fits) == 100017
    assert npu.mdl.execute(loaded, npu.dataset(good, good), fits) == 100017
    assert npu.mdl.execute(loaded, fits, npu.dataset(small)) == 100018
    assert npu.mdl.execute(loaded, fits, npu.dataset((0, 24))) == 100018
    assert npu.mdl.execute(loaded, fits, npu.dataset((npu.pinned(np.zeros(6, np.float32))[0], 24))) == 100018
    assert npu.mdl.execute(loaded, fits, npu.dataset((small[0], 1000))) == 0 or npu.acl.get_recent_err_msg()
    assert npu.mdl.execute(loaded, fits, 12345) == 100000
    assert npu.mdl.execute(loaded, fits, fits) == 0


def test_a_destroyed_data_buffer_in_a_dataset(npu: Driver) -> None:
    loaded, dataset = npu.load(doubler()), npu.dataset((npu.device(24), 24))
    assert npu.mdl.get_dataset_num_buffers(dataset) == 1
    buffer = npu.mdl.get_dataset_buffer(dataset, 0)
    assert npu.mdl.get_dataset_buffer(dataset, 1) == 0
    npu.ok(npu.acl.destroy_data_buffer(buffer))
    assert npu.mdl.execute(loaded, dataset, dataset) == 100000


def test_data_buffers_can_be_pointed_elsewhere(npu: Driver) -> None:
    loaded = npu.load(doubler())
    buffer = npu.acl.create_data_buffer(0, 0)
    given, taken = npu.mdl.create_dataset(), npu.dataset((npu.device(24), 24))
    npu.ok(npu.mdl.add_dataset_buffer(given, buffer))
    for value in (1, 2):
        x = np.full((2, 3), value, np.float32)
        address = npu.upload(x)
        npu.ok(npu.acl.update_data_buffer(buffer, address, 24))
        assert npu.acl.get_data_buffer_addr(buffer) == address
        assert npu.acl.get_data_buffer_size_v2(buffer) == npu.acl.get_data_buffer_size(buffer) == 24
        npu.ok(npu.mdl.execute(loaded, given, taken))
        result = npu.acl.get_data_buffer_addr(npu.mdl.get_dataset_buffer(taken, 0))
        assert (npu.download(result, x) == 2 * value).all()


def test_a_model_runs_in_its_own_context_only(npu: Driver) -> None:
    loaded = npu.load(doubler())
    npu.ok(npu.rt.create_context(0))
    dataset = npu.dataset((npu.device(24), 24))
    assert npu.mdl.execute(loaded, dataset, dataset) == 107004
    assert npu.mdl.execute_async(loaded, dataset, dataset, npu.stream()) == 107004


def test_unloading_a_model_in_use_is_refused(npu: Driver) -> None:
    loaded, stream = npu.load(doubler()), npu.stream()
    dataset = npu.dataset((npu.device(24), 24))
    release = npu.hold(stream)
    npu.ok(npu.mdl.execute_async(loaded, dataset, dataset, stream))
    assert npu.mdl.unload(loaded) == 545009
    release()
    npu.ok(npu.rt.synchronize_stream(stream))
    npu.ok(npu.mdl.unload(loaded))


def test_a_synchronous_run_that_fails_says_why_and_harms_nothing(npu: Driver) -> None:
    loaded, out = npu.load(gather()), np.zeros(1, np.float32)
    given, taken, _ = npu.bind([np.array([9])], [out])
    assert npu.mdl.execute(loaded, given, taken) == 507011
    assert "indices element out of data bounds" in npu.acl.get_recent_err_msg()
    assert npu.run(loaded, [np.array([3])], [out])[0].tolist() == [40]


def test_a_declared_output_shape_that_is_not_the_real_one_fails_the_run(npu: Driver) -> None:
    content = model([node("NonZero", ["x"], ["y"])], [tensor("x", (4,))], [tensor("y", (1, None), INT64)])
    loaded = npu.load(content, output_shapes={"y": (1, 2)})
    good, bad = np.array([1, 0, 0, 1], np.float32), np.ones(4, np.float32)
    out = np.zeros((1, 2), np.int64)
    assert npu.run(loaded, [good], [out])[0].tolist() == [[0, 3]]
    given, taken, _ = npu.bind([bad], [out])
    assert npu.mdl.execute(loaded, given, taken) == 507011
    assert npu.run(loaded, [good], [out])[0].tolist() == [[0, 3]]


@pytest.mark.parametrize("lanes, expected", [(1, 1), (2, 2)])
def test_as_many_models_run_at_once_as_the_device_has_lanes(lanes: int, expected: int) -> None:
    emulator = Emulator(Config(memory=256 << 20, concurrent_executes=lanes))
    emulator.acl.init()
    npu = Driver(emulator)
    assert len(emulator.threads) == 1 + lanes
    x = np.ones((500, 500), np.float32)
    runs = [(npu.load(slow(60)), *npu.bind([x], [x])[:2], npu.stream()) for _ in range(2)]
    streams = [stream for *_, stream in runs]
    for run in runs:  # when both are there: loading the second must not outlast the first's run
        npu.ok(npu.mdl.execute_async(*run))
    seen = 0
    engine = emulator._process.devices[0].engine  # type: ignore[union-attr]
    while any(npu.rt.stream_query(stream) == (1, 0) for stream in streams):
        seen = max(seen, engine.model.compute.active)  # type: ignore[union-attr]
        time.sleep(0.0005)
    assert seen == expected
    emulator.shutdown()


def test_a_run_leaves_the_interpreter_free(npu: Driver) -> None:
    loaded, stream = npu.load(slow(60)), npu.stream()
    x = np.ones((500, 500), np.float32)
    given, taken, _ = npu.bind([x], [x])
    npu.ok(npu.mdl.execute_async(loaded, given, taken, stream))
    turns = 0
    while npu.rt.stream_query(stream) == (1, 0):
        turns += 1
        time.sleep(0.001)
    assert turns > 5


def test_shutdown_ends_a_run_in_the_middle(machine: Emulator, npu: Driver) -> None:
    loaded, stream = npu.load(slow(2000)), npu.stream()
    x = np.ones((500, 500), np.float32)
    given, taken, _ = npu.bind([x], [x])
    npu.ok(npu.mdl.execute_async(loaded, given, taken, stream))
    start = time.monotonic()
    while not machine._process.devices[0].engine.model.compute.active:  # type: ignore[union-attr]
        assert time.monotonic() < start + 5
        time.sleep(0.001)
    start = time.monotonic()
    machine.shutdown()
    assert time.monotonic() < start + 2
    assert machine.threads == ()


def test_many_loads_and_unloads_leave_no_handles(npu: Driver) -> None:
    process = npu.emulator._process
    free = npu.rt.get_mem_info(0)[0]
    for _ in range(50):
        npu.ok(npu.mdl.unload(npu.load(doubler())))
        npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(b"x" * 64), 64)
    assert process.models == {}
    assert process.run_options == []
    assert npu.rt.get_mem_info(0)[0] == free


def test_models_load_on_several_threads_at_once(npu: Driver) -> None:
    content, loaded = doubler(), []

    def work() -> None:
        npu.rt.set_context(npu.context)
        loaded.append(npu.load(content))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(loaded)) == 6


def test_without_onnxruntime_the_message_says_what_to_install(npu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    content = doubler()
    assert npu.mdl.load_from_mem(npu.acl.util.bytes_to_ptr(content), len(content)) == (0, 545000)
    assert 'pip install "aioascend[emulator]"' in npu.acl.get_recent_err_msg()


def test_an_empty_tensor(npu: Driver) -> None:
    loaded = npu.load(
        model([node("Concat", ["x", "x"], ["y"], axis=0)], [tensor("x", ("N",), FLOAT)], [tensor("y", (None,))]),
        shapes={"x": (0,)},
    )
    empty = np.zeros(0, np.float32)
    assert npu.run(loaded, [empty], [empty])[0].shape == (0,)
