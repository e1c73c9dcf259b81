"""Every function of the reference that has a call form is there, takes as many arguments, and answers in its form."""

from __future__ import annotations

import ctypes
import mmap
import threading
from typing import Any

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver, doubler, gather

# name: number of arguments (pyACL reference §4 to §13, and what the programs of the usage table call)
FORMS = {
    "acl": {
        "finalize": 0, "finalize_reference": 0, "get_soc_name": 0, "get_recent_err_msg": 0, "get_version": 0,
        "get_cann_version": 1, "get_version_str": 1, "get_device_capability": 2, "trans_tensor_desc_format": 2,
        "data_type_size": 1, "float16_to_float": 1, "float_to_float16": 1, "app_log": 2, "create_data_buffer": 2,
        "destroy_data_buffer": 1, "update_data_buffer": 3, "get_data_buffer_addr": 1, "get_data_buffer_size": 1,
        "get_data_buffer_size_v2": 1, "create_tensor_desc": 3, "destroy_tensor_desc": 1, "get_tensor_desc_type": 1,
        "get_tensor_desc_format": 1, "get_tensor_desc_size": 1, "get_tensor_desc_element_count": 1,
        "get_tensor_desc_num_dims": 1, "get_tensor_desc_dim": 2, "get_tensor_desc_dim_v2": 2,
        "get_tensor_desc_dim_range": 3, "get_tensor_desc_name": 1, "set_tensor_desc_name": 2,
        "set_tensor_shape_range": 2, "set_tensor_format": 2, "set_tensor_shape": 2, "set_tensor_const": 3,
    },
    "rt": {
        "set_device": 1, "reset_device": 1, "reset_device_force": 1, "get_device": 0, "get_device_count": 0,
        "get_run_mode": 0, "synchronize_device_with_timeout": 1, "set_ts_device": 1,
        "set_device_sat_mode": 1, "get_device_sat_mode": 0, "get_device_utilization_rate": 1,
        "query_device_status": 1, "device_can_access_peer": 2, "device_enable_peer_access": 2,
        "device_disable_peer_access": 1, "device_peer_access_status": 2, "device_task_abort": 2,
        "device_get_stream_priority_range": 0, "create_context": 1, "destroy_context": 1, "set_context": 1,
        "get_context": 0, "create_stream": 0, "create_stream_with_config": 2, "destroy_stream": 1,
        "destroy_stream_force": 1, "synchronize_stream": 1, "synchronize_stream_with_timeout": 2, "stream_query": 1,
        "stream_abort": 1, "stream_wait_event": 2, "set_stream_failure_mode": 2, "get_stream_available_num": 0,
        "stream_get_id": 1, "create_event": 0, "create_event_with_flag": 1, "create_event_ex_with_flag": 1,
        "destroy_event": 1, "record_event": 2, "reset_event": 2, "query_event": 1, "query_event_status": 1,
        "query_event_wait_status": 1, "synchronize_event": 1, "synchronize_event_with_timeout": 2,
        "event_elapsed_time": 2, "event_get_timestamp": 1, "get_event_id": 1, "get_event_avail_num": 0,
        "set_op_wait_timeout": 1, "set_op_execute_timeout": 1, "set_op_execute_timeout_v2": 1, "malloc": 2,
        "malloc_align32": 2, "malloc_cached": 2, "mem_flush": 2, "mem_invalidate": 2, "free": 1, "malloc_host": 1,
        "free_host": 1, "memset": 4, "memset_async": 5, "memcpy": 5, "memcpy_async": 6, "get_mem_info": 1,
        "host_register": 3, "host_unregister": 1, "host_register_v2": 3, "host_get_device_pointer": 2,
        "subscribe_report": 2, "launch_callback": 4, "process_report": 1, "unsubscribe_report": 2,
        "set_exception_info_callback": 1, "get_task_id_from_exception_info": 1,
        "get_stream_id_from_exception_info": 1, "get_thread_id_from_exception_info": 1,
        "get_device_id_from_exception_info": 1, "get_error_code_from_exception_info": 1, "peek_at_last_error": 1,
        "get_last_error": 1, "get_device_info": 2, "pointer_get_attributes": 1,
    },
    "mdl": {
        "load_from_file": 1, "load_from_mem": 2, "load_from_file_with_mem": 5, "load_from_mem_with_mem": 6,
        "query_size": 1, "query_size_from_mem": 2, "create_config_handle": 0, "set_config_opt": 3,
        "load_with_config": 1, "destroy_config_handle": 1, "execute": 3, "execute_async": 4, "execute_v2": 5,
        "create_exec_config_handle": 0, "set_exec_config_opt": 3, "destroy_exec_config_handle": 1, "unload": 1,
        "bundle_load_from_file": 1, "bundle_load_from_mem": 2, "bundle_unload": 1, "bundle_get_model_num": 1,
        "bundle_get_model_id": 2, "create_desc": 0, "get_desc": 2, "get_desc_from_file": 2, "get_desc_from_mem": 3,
        "destroy_desc": 1, "get_num_inputs": 1, "get_num_outputs": 1, "get_input_size_by_index": 2,
        "get_output_size_by_index": 2, "get_input_dims": 2, "get_input_dims_v2": 2, "get_output_dims": 2,
        "get_cur_output_dims": 2, "get_input_name_by_index": 2, "get_output_name_by_index": 2,
        "get_tensor_real_name": 2, "get_input_index_by_name": 2, "get_output_index_by_name": 2,
        "get_input_format": 2, "get_output_format": 2, "get_input_data_type": 2, "get_output_data_type": 2,
        "get_dynamic_batch": 1, "get_dynamic_hw": 2, "get_input_dynamic_gear_count": 2,
        "get_input_dynamic_dims": 3, "get_op_attr": 3, "set_dynamic_batch_size": 4, "set_dynamic_hw_size": 5,
        "set_input_dynamic_dims": 4, "set_dataset_tensor_desc": 3, "get_dataset_tensor_desc": 2,
        "get_aipp_type": 2, "get_first_aipp_info": 2, "create_dataset": 0, "destroy_dataset": 1,
        "add_dataset_buffer": 2, "get_dataset_num_buffers": 1, "get_dataset_buffer": 2, "init_dump": 0,
        "set_dump": 1, "finalize_dump": 0, "load_from_file_with_q": 5, "load_from_mem_with_q": 6,
        "create_and_get_op_desc": 4, "create_aipp": 1, "destroy_aipp": 1, "set_input_aipp": 4, "get_aipp_data_size": 1,
        "get_input_dims_range": 2,
    },
    "util": {
        "start_thread": 2, "stop_thread": 1, "bytes_to_ptr": 1, "ptr_to_bytes": 2, "numpy_to_ptr": 1,
        "numpy_contiguous_to_ptr": 1, "ptr_to_numpy": 3,
    },
    "op": {
        "set_model_dir": 1, "create_attr": 0, "destroy_attr": 1, "set_attr_bool": 3, "execute": 7, "execute_v2": 7,
        "cast": 6, "create_handle": 4, "destroy_handle": 1, "execute_with_handle": 4,
    },
    "prof": {"init": 1, "create_config": 4, "start": 1, "stop": 1, "destroy_config": 1, "finalize": 0},
    "media": {"dvpp_malloc": 1, "dvpp_free": 1},
}  # fmt: skip
EVERY = [(part, name, count) for part, names in FORMS.items() for name, count in names.items()]


@pytest.fixture(scope="module")
def untouched() -> Any:
    """The `acl` of an emulator that is never initialised, which is looked at after the arguments are."""
    return Emulator(Config()).acl


@pytest.mark.parametrize("part, name, count", EVERY)
def test_a_function_takes_its_number_of_arguments(untouched: Any, part: str, name: str, count: int) -> None:
    module = untouched if part == "acl" else getattr(untouched, part)
    assert name in dir(module)
    with pytest.raises(TypeError, match=rf"{name}.*it takes {count} positional"):
        getattr(module, name)(*[0] * (count + 1))


def test_synchronize_device_ignores_an_argument(npu: Driver) -> None:
    assert npu.rt.synchronize_device() == npu.rt.synchronize_device(0) == 0
    with pytest.raises(TypeError, match="synchronize_device"):
        npu.rt.synchronize_device(0, 0)


def test_functions_that_do_not_exist_in_pyacl_are_absent(acl: Any) -> None:
    for name in ("get_version", "launch_host_func", "get_ptr_addr", "synchronize"):
        assert not hasattr(acl.rt, name)
    for name in ("execute_async_v2", "get_input_dims_gear_count", "add_input_buffer", "get_output_shape"):
        assert not hasattr(acl.mdl, name)
    assert not hasattr(acl.util, "vector_to_ptr")


def test_modules_have_the_names_that_imports_use(machine: Emulator) -> None:
    assert set(machine.modules) >= {"acl", "acl.rt", "acl.mdl", "acl.util", "acl.op", "acl.media"}
    for name, module in machine.modules.items():
        assert module.__name__ == name


def test_what_the_emulator_lacks_says_its_name_when_called(acl: Any) -> None:
    function = acl.media.dvpp_vpc_resize_async
    with pytest.raises(NotImplementedError, match=r"acl\.media\.dvpp_vpc_resize_async"):
        function(1, 2, 3)
    with pytest.raises(NotImplementedError, match=r"acl\.blas\.gemm"):
        acl.blas.gemm()
    with pytest.raises(NotImplementedError, match=r"acl\.rt\.launch_kernel_with_config"):
        acl.rt.launch_kernel_with_config(1, 2, 3, [], 4, 0)


def test_small_helpers(acl: Any) -> None:
    assert [acl.data_type_size(kind) for kind in (0, 1, 9, 27, 29, 99)] == [4, 2, 8, 2, 0, 0]
    assert acl.float16_to_float(0x3E00) == 1.5
    assert acl.float_to_float16(1.5) == 0x3E00
    assert acl.float_to_float16(1e10) == 0x7C00
    assert acl.app_log(1, "text") is None
    assert acl.prof.finalize() == 0


def test_picture_memory_is_device_memory(npu: Driver) -> None:
    address = npu.ok(npu.acl.media.dvpp_malloc(100))
    npu.ok(npu.rt.memset(address, 100, 1, 100))
    npu.ok(npu.acl.media.dvpp_free(address))


class Operators:
    """Descriptors and data buffers for single operators."""

    def __init__(self, npu: Driver) -> None:
        self.npu, self.acl = npu, npu.acl

    def tensor(self, array: np.ndarray, kind: int) -> tuple[int, int, int]:
        """Descriptor, data buffer and address of an array on the device."""
        address = self.npu.upload(array)
        descriptor = self.acl.create_tensor_desc(kind, list(array.shape), 2)
        return descriptor, self.acl.create_data_buffer(address, array.nbytes), address

    def run(self, name: str, inputs: list[Any], output: tuple[int, int, int], attributes: int = 0) -> None:
        self.npu.ok(self.acl.op.set_model_dir("nowhere"))
        stream = self.npu.stream()
        self.npu.ok(
            self.acl.op.execute_v2(
                name,
                [one[0] for one in inputs],
                [one[1] for one in inputs],
                [output[0]],
                [output[1]],
                attributes,
                stream,
            )
        )
        self.npu.ok(self.npu.rt.synchronize_stream(stream))


def test_single_operators(npu: Driver) -> None:
    ops = Operators(npu)
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.full((2, 3), 10, np.int32)
    out = ops.tensor(np.zeros((2, 3), np.int32), 3)
    ops.run("Add", [ops.tensor(a, 3), ops.tensor(b, 3)], out)
    assert np.array_equal(npu.download(out[2], a), a + b)

    axis = ops.tensor(np.array([1], np.int32), 3)
    where = ops.tensor(np.zeros(2, np.int32), 3)
    ops.run("ArgMaxV2", [ops.tensor(a, 3), axis], where)
    assert npu.download(where[2], np.zeros(2, np.int32)).tolist() == [2, 2]
    number = (1).to_bytes(4, "little")
    npu.ok(npu.acl.set_tensor_const(axis[0], npu.acl.util.bytes_to_ptr(number), 4))
    ops.run("ArgMaxV2", [ops.tensor(a, 3), axis], where)

    x, y = np.arange(6, dtype=np.float32).reshape(1, 3, 2), np.ones((1, 3, 4), np.float32)
    product = ops.tensor(np.zeros((1, 2, 4), np.float32), 0)
    attributes = npu.acl.op.create_attr()
    npu.ok(npu.acl.op.set_attr_bool(attributes, "adj_x1", True))
    ops.run("BatchMatMul", [ops.tensor(x, 0), ops.tensor(y, 0)], product, attributes)
    assert np.array_equal(npu.download(product[2], np.zeros((1, 2, 4), np.float32)), x.swapaxes(1, 2) @ y)
    npu.acl.op.destroy_attr(attributes)


def test_casting_and_slicing(npu: Driver) -> None:
    ops, stream = Operators(npu), npu.stream()
    x = np.array([1.7, -2.2], np.float32)
    source, target = ops.tensor(x, 0), ops.tensor(np.zeros(2, np.int32), 3)
    npu.ok(npu.acl.op.cast(source[0], source[1], target[0], target[1], 0, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.download(target[2], np.zeros(2, np.int32)).tolist() == [1, -2]
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    parts = [ops.tensor(data, 0), ops.tensor(np.array([1, 1]), 9), ops.tensor(np.array([2, 3]), 9)]
    out = ops.tensor(np.zeros((2, 3), np.float32), 0)
    handle = npu.ok(npu.acl.op.create_handle("Slice", [one[0] for one in parts], [out[0]], 0))
    npu.ok(npu.acl.op.execute_with_handle(handle, [one[1] for one in parts], [out[1]], stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert np.array_equal(npu.download(out[2], np.zeros((2, 3), np.float32)), data[1:3, 1:4])
    npu.acl.op.destroy_handle(handle)


def test_the_older_form_of_executing_an_operator(npu: Driver) -> None:
    ops = Operators(npu)
    a, out = ops.tensor(np.array([1, 2], np.float32), 0), ops.tensor(np.zeros(2, np.float32), 0)
    npu.ok(npu.acl.op.execute("Add", [a[0], a[0]], [a[1], a[1]], [out[0]], [out[1]], 0, 0))
    npu.ok(npu.rt.synchronize_device(0))
    assert npu.download(out[2], np.zeros(2, np.float32)).tolist() == [2, 4]


def test_operators_that_cannot_run(npu: Driver) -> None:
    ops, op = Operators(npu), npu.acl.op
    a = ops.tensor(np.ones(2, np.float32), 0)
    bad = ops.tensor(np.ones(3, np.float32), 0)
    assert op.execute_v2("Nothing", [], [], [], [], 0, 0) == 100024
    assert op.execute_v2("Add", [a[0]], [], [a[0]], [a[1]], 0, 0) == 100021
    assert op.execute_v2("Add", [a[0], bad[0]], [a[1], bad[1]], [a[0]], [a[1]], 0, 0) == 0
    assert npu.rt.synchronize_stream(0) == 507015


def test_tensor_descriptors(acl: Any) -> None:
    descriptor = acl.create_tensor_desc(0, [2, 3], 2)
    assert acl.get_tensor_desc_type(descriptor) == 0
    assert acl.get_tensor_desc_size(descriptor) == 24
    assert acl.get_tensor_desc_element_count(descriptor) == 6
    assert acl.get_tensor_desc_num_dims(descriptor) == 2
    assert acl.get_tensor_desc_dim_v2(descriptor, 1) == (3, 0)
    assert acl.get_tensor_desc_dim_v2(descriptor, 2)[1] != 0
    acl.set_tensor_desc_name(descriptor, "name")
    assert acl.get_tensor_desc_name(descriptor) == "name"
    assert acl.destroy_tensor_desc(descriptor) is None
    assert acl.get_tensor_desc_size(descriptor) == 0


def test_loading_with_a_config(npu: Driver, tmp_path: Any) -> None:
    path, mdl = tmp_path / "m.onnx", npu.mdl
    path.write_bytes(doubler())
    handle = mdl.create_config_handle()
    assert mdl.load_with_config(handle) == (0, 100000)
    npu.ok(mdl.set_config_opt(handle, 1, 1))
    npu.ok(mdl.set_config_opt(handle, 2, str(path)))
    assert npu.ok(mdl.load_with_config(handle))
    with pytest.raises(TypeError):
        mdl.set_config_opt(handle, 2, 5)
    npu.ok(mdl.destroy_config_handle(handle))
    bundle = npu.ok(mdl.bundle_load_from_file(str(path)))
    assert mdl.bundle_get_model_num(bundle) == (1, 0)
    assert npu.ok(mdl.bundle_get_model_id(bundle, 0))
    npu.ok(mdl.bundle_unload(bundle))
    assert mdl.bundle_unload(bundle) == 148053


def test_running_with_a_limit(npu: Driver) -> None:
    loaded, stream, mdl = npu.load(doubler()), npu.stream(), npu.mdl
    dataset = npu.dataset((npu.device(24), 24))
    config = mdl.create_exec_config_handle()
    npu.ok(mdl.set_exec_config_opt(config, 0, 20))
    npu.ok(mdl.execute_v2(loaded, dataset, dataset, stream, config))
    npu.emulator.faults.hang("execute")
    assert mdl.execute_v2(loaded, dataset, dataset, stream, config) == 545601
    assert mdl.execute_v2(loaded, dataset, dataset, stream, 0) == 100000


def test_the_exception_callback_tells_which_task_failed(npu: Driver) -> None:
    seen: list[tuple[int, ...]] = []
    rt = npu.rt

    def note(info: int) -> None:
        seen.append(
            (
                rt.get_task_id_from_exception_info(info),
                rt.get_stream_id_from_exception_info(info),
                rt.get_device_id_from_exception_info(info),
                rt.get_error_code_from_exception_info(info),
            )
        )

    npu.ok(rt.set_exception_info_callback(note))
    loaded, stream = npu.load(gather()), npu.stream()
    bad, to, _ = npu.bind([np.array([9])], [np.zeros(1, np.float32)])
    npu.ok(npu.rt.record_event(npu.ok(rt.create_event()), stream))
    npu.ok(npu.mdl.execute_async(loaded, bad, to, stream))
    assert rt.synchronize_stream(stream) == 507011
    assert seen == [(2, npu.ok(rt.stream_get_id(stream)), 0, 507011)]
    assert rt.get_error_code_from_exception_info(1) == 0xFFFFFFFF
    npu.ok(rt.set_exception_info_callback(None))


def test_the_last_error_of_a_thread(npu: Driver) -> None:
    assert npu.rt.malloc(0, 0) == (0, 100000)
    assert npu.rt.peek_at_last_error(0) == 100000
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(npu.rt.get_last_error(0)))
    thread.start()
    thread.join()
    assert others == [0]
    assert npu.rt.get_last_error(0) == 100000
    assert npu.rt.get_last_error(0) == 0


def test_rarer_answers(npu: Driver) -> None:
    acl, rt, mdl = npu.acl, npu.rt, npu.mdl
    assert acl.get_version_str("runtime")[1] == acl.get_cann_version(0)[1] == 0
    assert rt.get_device_info(0, 5) == (0, 207000)
    assert rt.pointer_get_attributes(npu.device(64))[0]["location"] == {"id": 0, "type": 1}
    assert mdl.load_from_file_with_q("m.om", 0, 0, 0, 0) == (0, 200001)
    assert mdl.create_and_get_op_desc(0, 1, 2, 100) == ("", 0, 0, 0, 0, 100024)
    loaded, description = npu.load(doubler()), mdl.create_desc()
    npu.ok(mdl.get_desc(description, loaded))
    assert mdl.get_input_dims_range(description, 0) == ({"rangeCount": 2, "range": [[2, 2], [3, 3]]}, 0)
    aipp = mdl.create_aipp(1)
    assert mdl.set_input_aipp(loaded, 0, 0, aipp) == 145015
    npu.ok(mdl.destroy_aipp(aipp))
    assert mdl.get_aipp_type(loaded, 0)[0] == 0
    assert mdl.get_op_attr(description, "op", "attr") == ""
    descriptor = acl.create_tensor_desc(0, [2], 2)
    other = npu.ok(acl.trans_tensor_desc_format(descriptor, 0))
    assert acl.get_tensor_desc_format(other) == 0


def test_registered_host_memory_is_pinned(npu: Driver) -> None:
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    pages[:5] = b"hello"
    view = ctypes.c_char.from_buffer(pages)
    address = ctypes.addressof(view)
    assert npu.rt.host_register(address, mmap.PAGESIZE, 0) == (address, 0)
    assert npu.rt.host_register(address, mmap.PAGESIZE, 0) == (0, 507910)
    stream, target = npu.stream(), npu.device(8)
    release = npu.hold(stream)
    npu.ok(npu.rt.memcpy_async(target, 8, address, 5, 1, stream))
    pages[:5] = b"HELLO"
    release()
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.download(target, np.zeros(5, np.uint8)).tobytes() == b"HELLO"
    npu.ok(npu.rt.host_unregister(address))
    assert npu.rt.host_unregister(address) == 507911


def test_conversions_of_acl_util(acl: Any, npu: Driver) -> None:
    util = acl.util
    data = b"some bytes"
    assert util.ptr_to_bytes(util.bytes_to_ptr(data), 4) == b"some"
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    address, same = util.numpy_contiguous_to_ptr(array)
    assert same is array
    assert np.array_equal(util.ptr_to_numpy(address, (2, 3), 11), array)
    _, copied = util.numpy_contiguous_to_ptr(array.T)
    assert copied.flags.c_contiguous
    with pytest.warns(DeprecationWarning, match="deprecated"):
        assert util.numpy_to_ptr(array) == address
    with pytest.raises(TypeError):
        util.bytes_to_ptr("text")
    with pytest.raises(TypeError):
        util.ptr_to_numpy(address, [2, 3], 11)
    with pytest.raises(ValueError, match="not host memory"):
        util.ptr_to_bytes(npu.device(64), 4)


def test_a_bytes_object_can_be_the_destination_of_a_copy(npu: Driver) -> None:
    address = npu.upload(np.array([1, 2, 3], np.uint8))
    buffer = np.zeros(3, np.uint8).tobytes()
    npu.ok(npu.rt.memcpy(npu.acl.util.bytes_to_ptr(buffer), 3, address, 3, 2))
    assert buffer == b"\1\2\3"
