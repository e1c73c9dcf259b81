"""Call forms of pyACL as the reference lists them (pyACL reference §4-§13).

A line reads `submodule.function(arguments) -> results`. Brackets hold an argument that may be left out; `None` is no
result. Functions that the reference only names are in `NAMED_ONLY`: calling one is building on a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """How one function is called: the numbers of positional arguments it takes, and how many results it gives."""

    arities: frozenset[int]
    results: tuple[str, ...]

    def __str__(self) -> str:
        counts = " or ".join(str(count) for count in sorted(self.arities))
        return f"takes {counts} positional arguments and gives {', '.join(self.results) or 'nothing'}"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FORMS = """
init([config_path]) -> ret
finalize() -> ret
finalize_reference() -> refcnt, ret
get_soc_name() -> name
get_recent_err_msg() -> msg
get_version() -> major, minor, patch, ret
get_cann_version(package) -> info, ret
get_version_str(package) -> version, ret
get_device_capability(device, info) -> value, ret
data_type_size(dtype) -> size
float16_to_float(u16) -> f
float_to_float16(f) -> u16
app_log(level, message) -> None

rt.set_device(device) -> ret
rt.reset_device(device) -> ret
rt.reset_device_force(device) -> ret
rt.get_device() -> device, ret
rt.get_device_count() -> count, ret
rt.get_run_mode() -> mode, ret
rt.synchronize_device() -> ret
rt.synchronize_device_with_timeout(ms) -> ret
rt.set_ts_device(ts_id) -> ret
rt.set_device_sat_mode(mode) -> ret
rt.get_device_sat_mode() -> mode, ret
rt.get_device_utilization_rate(device) -> info, ret
rt.query_device_status(device) -> status, ret
rt.device_can_access_peer(device, peer) -> can, ret
rt.device_enable_peer_access(peer, flags) -> ret
rt.device_disable_peer_access(peer) -> ret
rt.device_peer_access_status(device, peer) -> status, ret
rt.device_task_abort(device, timeout) -> ret
rt.get_device_info(device, attr) -> value, ret
rt.device_get_stream_priority_range() -> least, greatest, ret
rt.create_context(device) -> context, ret
rt.destroy_context(context) -> ret
rt.set_context(context) -> ret
rt.get_context() -> context, ret

rt.create_stream() -> stream, ret
rt.create_stream_with_config(priority, flag) -> stream, ret
rt.destroy_stream(stream) -> ret
rt.destroy_stream_force(stream) -> ret
rt.synchronize_stream(stream) -> ret
rt.synchronize_stream_with_timeout(stream, ms) -> ret
rt.stream_query(stream) -> status, ret
rt.stream_abort(stream) -> ret
rt.stream_wait_event(stream, event) -> ret
rt.set_stream_failure_mode(stream, mode) -> ret
rt.get_stream_available_num() -> count, ret
rt.stream_get_id(stream) -> id, ret

rt.create_event() -> event, ret
rt.create_event_with_flag(flag) -> event, ret
rt.create_event_ex_with_flag(flag) -> event, ret
rt.destroy_event(event) -> ret
rt.record_event(event, stream) -> ret
rt.reset_event(event, stream) -> ret
rt.query_event(event) -> status, ret
rt.query_event_status(event) -> status, ret
rt.query_event_wait_status(event) -> status, ret
rt.synchronize_event(event) -> ret
rt.synchronize_event_with_timeout(event, ms) -> ret
rt.event_elapsed_time(start, end) -> ms, ret
rt.event_get_timestamp(event) -> us, ret
rt.get_event_id(event) -> id, ret
rt.get_event_avail_num() -> count, ret
rt.set_op_wait_timeout(seconds) -> ret
rt.set_op_execute_timeout_v2(us) -> actual, ret

rt.malloc(size, policy) -> ptr, ret
rt.malloc_align32(size, policy) -> ptr, ret
rt.malloc_cached(size, policy) -> ptr, ret
rt.mem_flush(ptr, size) -> ret
rt.mem_invalidate(ptr, size) -> ret
rt.free(ptr) -> ret
rt.malloc_host(size) -> ptr, ret
rt.free_host(ptr) -> ret
rt.memset(ptr, max, value, count) -> ret
rt.memset_async(ptr, max, value, count, stream) -> ret
rt.memcpy(dst, dst_max, src, count, kind) -> ret
rt.memcpy_async(dst, dst_max, src, count, kind, stream) -> ret
rt.get_mem_info(attr) -> free, total, ret
rt.host_register(host_ptr, size, type) -> devptr, ret
rt.host_unregister(host_ptr) -> ret
rt.host_register_v2(ptr, size, flag) -> ret
rt.host_get_device_pointer(ptr, flag) -> devptr, ret
rt.pointer_get_attributes(ptr) -> attrs, ret

rt.subscribe_report(thread_id, stream) -> ret
rt.launch_callback(fn, user_data, block_type, stream) -> ret
rt.process_report(timeout_ms) -> ret
rt.unsubscribe_report(thread_id, stream) -> ret

rt.set_exception_info_callback(fn) -> ret
rt.get_task_id_from_exception_info(info) -> v
rt.get_stream_id_from_exception_info(info) -> v
rt.get_thread_id_from_exception_info(info) -> v
rt.get_device_id_from_exception_info(info) -> v
rt.get_error_code_from_exception_info(info) -> v
rt.peek_at_last_error(level) -> err
rt.get_last_error(level) -> err

mdl.load_from_file(path) -> model_id, ret
mdl.load_from_mem(ptr, size) -> model_id, ret
mdl.load_from_file_with_mem(path, work_ptr, work_size, weight_ptr, weight_size) -> model_id, ret
mdl.load_from_mem_with_mem(ptr, size, work_ptr, work_size, weight_ptr, weight_size) -> model_id, ret
mdl.load_from_file_with_q(path, in_q_list_ptr, n_in, out_q_list_ptr, n_out) -> model_id, ret
mdl.load_from_mem_with_q(ptr, size, in_q_list_ptr, n_in, out_q_list_ptr, n_out) -> model_id, ret
mdl.query_size(path) -> work, weight, ret
mdl.query_size_from_mem(ptr, size) -> work, weight, ret
mdl.create_config_handle() -> h
mdl.set_config_opt(h, attr, value) -> ret
mdl.load_with_config(h) -> model_id, ret
mdl.destroy_config_handle(h) -> ret
mdl.execute(model_id, in_ds, out_ds) -> ret
mdl.execute_async(model_id, in_ds, out_ds, stream) -> ret
mdl.execute_v2(model_id, in_ds, out_ds, stream, exec_handle) -> ret
mdl.create_exec_config_handle() -> exec_handle
mdl.set_exec_config_opt(h, attr, value) -> ret
mdl.destroy_exec_config_handle(h) -> ret
mdl.unload(model_id) -> ret
mdl.create_and_get_op_desc(device, stream, task, max_len) -> name, in_desc, n_in, out_desc, n_out, ret

mdl.create_desc() -> desc
mdl.get_desc(desc, model_id) -> ret
mdl.get_desc_from_file(desc, path) -> ret
mdl.get_desc_from_mem(desc, ptr, size) -> ret
mdl.destroy_desc(desc) -> ret
mdl.get_num_inputs(desc) -> n
mdl.get_num_outputs(desc) -> n
mdl.get_input_size_by_index(desc, i) -> size
mdl.get_output_size_by_index(desc, i) -> size
mdl.get_input_dims(desc, i) -> dims, ret
mdl.get_input_dims_v2(desc, i) -> dims, ret
mdl.get_output_dims(desc, i) -> dims, ret
mdl.get_cur_output_dims(desc, i) -> dims, ret
mdl.get_input_name_by_index(desc, i) -> name
mdl.get_output_name_by_index(desc, i) -> name
mdl.get_tensor_real_name(desc, name) -> real
mdl.get_input_index_by_name(desc, name) -> i, ret
mdl.get_output_index_by_name(desc, name) -> i, ret
mdl.get_input_format(desc, i) -> v
mdl.get_output_format(desc, i) -> v
mdl.get_input_data_type(desc, i) -> v
mdl.get_output_data_type(desc, i) -> v
mdl.get_dynamic_batch(desc) -> batch, ret
mdl.get_dynamic_hw(desc, index) -> hw, ret
mdl.get_input_dynamic_gear_count(desc, index) -> n, ret
mdl.get_input_dynamic_dims(desc, index, n) -> gears, ret
mdl.get_input_dims_range(desc, i) -> rng, ret
mdl.get_op_attr(desc, op_name, attr_name) -> text

mdl.set_dynamic_batch_size(model_id, in_ds, index, batch) -> ret
mdl.set_dynamic_hw_size(model_id, in_ds, index, h, w) -> ret
mdl.set_input_dynamic_dims(model_id, in_ds, index, dims) -> ret
mdl.set_dataset_tensor_desc(ds, tensor_desc, index) -> ds, ret
mdl.get_dataset_tensor_desc(ds, index) -> td

mdl.get_aipp_type(model_id, i) -> type, dyn_index, ret
mdl.get_first_aipp_info(model_id, i) -> info, ret
mdl.create_aipp(batch) -> aipp
mdl.destroy_aipp(aipp) -> ret
mdl.set_input_aipp(model_id, ds, index, aipp) -> ret
mdl.get_aipp_data_size(batch) -> size, ret

mdl.create_dataset() -> ds
mdl.destroy_dataset(ds) -> ret
mdl.add_dataset_buffer(ds, buf) -> ds, ret
mdl.get_dataset_num_buffers(ds) -> n
mdl.get_dataset_buffer(ds, i) -> buf
create_data_buffer(ptr, size) -> buf
destroy_data_buffer(buf) -> ret
update_data_buffer(buf, ptr, size) -> ret
get_data_buffer_addr(buf) -> ptr
get_data_buffer_size(buf) -> size
get_data_buffer_size_v2(buf) -> size
create_tensor_desc(dtype, dims, format) -> td
destroy_tensor_desc(td) -> None
get_tensor_desc_dim(td, i) -> dim
get_tensor_desc_dim_v2(td, i) -> dim, ret
get_tensor_desc_by_index(td, i) -> td
get_tensor_desc_dim_range(td, i, n) -> rng, ret
trans_tensor_desc_format(td, format) -> td, ret

util.start_thread(func, args) -> tid, ret
util.stop_thread(tid) -> ret
util.bytes_to_ptr(b) -> ptr
util.ptr_to_bytes(ptr, size) -> b
util.numpy_to_ptr(arr) -> ptr
util.numpy_contiguous_to_ptr(arr) -> ptr, arr
util.ptr_to_numpy(ptr, shape, npy_type) -> arr
"""

NAMED_ONLY = _words(
    """
    get_cann_attribute
    rt.ctx_get_current_default_stream rt.ctx_get_sys_param_opt rt.ctx_set_sys_param_opt rt.get_sys_param_opt
    rt.set_sys_param_opt rt.set_group rt.get_group_count rt.get_all_group_info
    rt.get_stream_attribute rt.set_stream_attribute rt.get_stream_overflow_switch rt.set_stream_overflow_switch
    rt.set_op_execute_timeout rt.get_op_execute_timeout rt.get_op_timeout_interval rt.get_thread_last_task_id
    rt.reduce_async rt.memcpy2d rt.memcpy2d_async rt.memcpy_async_with_condition rt.malloc_with_cfg
    rt.malloc_host_with_cfg rt.reserve_mem_address rt.release_mem_address rt.malloc_physical rt.free_physical
    rt.map_mem rt.unmap_mem rt.mem_export_shareable_handle rt.mem_import_shareable_handle rt.get_mem_uce_info
    rt.mem_uce_repair rt.cmo_async
    mdl.bundle_load_from_file mdl.bundle_load_from_mem mdl.bundle_unload mdl.bundle_get_model_num
    mdl.bundle_get_model_id mdl.init_dump mdl.set_dump mdl.finalize_dump
    mdl.set_aipp_input_format mdl.set_aipp_csc_params mdl.set_aipp_rbuv_swap_switch mdl.set_aipp_ax_swap_switch
    mdl.set_aipp_src_image_size mdl.set_aipp_crop_params mdl.set_aipp_scf_params mdl.set_aipp_padding_params
    mdl.set_aipp_dtc_pixel_mean mdl.set_aipp_dtc_pixel_min mdl.set_aipp_pixel_var_reci mdl.set_aipp_by_input_index
    get_tensor_desc_type get_tensor_desc_format get_tensor_desc_size get_tensor_desc_element_count
    get_tensor_desc_num_dims get_tensor_desc_name get_tensor_desc_address
    set_tensor_desc_name set_tensor_shape_range set_tensor_format set_tensor_shape set_tensor_origin_format
    set_tensor_origin_shape set_tensor_storage_format set_tensor_storage_shape set_tensor_const
    set_tensor_dynamic_input set_tensor_place_ment set_tensor_value_range
    """
)

# Names that are in no pyACL although programs and texts use them (pyACL reference §9, §11, §13, §16, §19).
ABSENT = _words(
    """
    rt.get_version rt.get_ptr_addr rt.synchronize rt.free_device rt.launch_host_func rt.subscribe_host_func
    rt.process_host_func rt.unsubscribe_host_func mdl.execute_async_v2 mdl.get_input_dims_gear_count
    mdl.add_input_buffer mdl.add_output_buffer mdl.get_output_shape util.vector_to_ptr util.get_ptr
    """
)

SUBMODULES = frozenset({"rt", "mdl", "util", "op", "media", "blas", "prof", "himpi", "fv"})


def read_forms(text: str) -> dict[str, Form]:
    """Read lines of the notation above."""
    forms: dict[str, Form] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = re.fullmatch(r"([\w.]+)\((.*)\) -> (.+)", line)
        assert match, line
        name, arguments, results = match[1], match[2], match[3]
        assert name not in forms, name
        given = [part.strip() for part in arguments.split(",") if part.strip()]
        optional = sum(part.startswith("[") for part in given)
        forms[name] = Form(
            arities=frozenset(range(len(given) - optional, len(given) + 1)),
            results=() if results == "None" else tuple(part.strip() for part in results.split(",")),
        )
    return forms


FORMS = read_forms(_FORMS)
