"""A model executor: load from memory, one input and one output buffer for all runs, synchronous execute.

Takes the model's path. Prints the outputs of three runs, one line each.
"""

import sys

import acl
import numpy as np

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
DTYPES = {0: np.float32, 1: np.float16, 2: np.int8, 3: np.int32, 4: np.uint8, 9: np.int64, 12: np.bool_}


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} returned {ret}: {acl.get_recent_err_msg()}")


class ModelExecutor:
    def __init__(self, path):
        with open(path, "rb") as file:
            model = file.read()
        self.model_id, ret = acl.mdl.load_from_mem(acl.util.bytes_to_ptr(model), len(model))
        check("load_from_mem", ret)
        self.desc = acl.mdl.create_desc()
        check("get_desc", acl.mdl.get_desc(self.desc, self.model_id))
        self.inputs = [
            self._tensor(index, acl.mdl.get_input_size_by_index, acl.mdl.get_input_dims, acl.mdl.get_input_data_type)
            for index in range(acl.mdl.get_num_inputs(self.desc))
        ]
        self.outputs = [
            self._tensor(index, acl.mdl.get_output_size_by_index, acl.mdl.get_output_dims, acl.mdl.get_output_data_type)
            for index in range(acl.mdl.get_num_outputs(self.desc))
        ]
        self.input_dataset = self._dataset(self.inputs)
        self.output_dataset = self._dataset(self.outputs)

    def _tensor(self, index, size_of, dims_of, type_of):
        size = size_of(self.desc, index)
        dims, ret = dims_of(self.desc, index)
        check("dims", ret)
        pointer, ret = acl.rt.malloc(size, ACL_MEM_MALLOC_HUGE_FIRST)
        check("malloc", ret)
        return pointer, size, tuple(dims["dims"]), DTYPES[type_of(self.desc, index)]

    def _dataset(self, tensors):
        dataset = acl.mdl.create_dataset()
        for pointer, size, _, _ in tensors:
            _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(pointer, size))
            check("add_dataset_buffer", ret)
        return dataset

    def execute(self, *arrays):
        for array, (pointer, size, shape, dtype) in zip(arrays, self.inputs, strict=True):
            data = np.ascontiguousarray(array, dtype).reshape(shape).tobytes()
            source = acl.util.bytes_to_ptr(data)
            check("memcpy", acl.rt.memcpy(pointer, size, source, len(data), ACL_MEMCPY_HOST_TO_DEVICE))
        check("execute", acl.mdl.execute(self.model_id, self.input_dataset, self.output_dataset))
        results = []
        for pointer, size, shape, dtype in self.outputs:
            host, ret = acl.rt.malloc_host(size)
            check("malloc_host", ret)
            check("memcpy", acl.rt.memcpy(host, size, pointer, size, ACL_MEMCPY_DEVICE_TO_HOST))
            results.append(np.frombuffer(acl.util.ptr_to_bytes(host, size), dtype).reshape(shape))
            check("free_host", acl.rt.free_host(host))
        return results

    def unload(self):
        for dataset, tensors in ((self.output_dataset, self.outputs), (self.input_dataset, self.inputs)):
            for index in range(acl.mdl.get_dataset_num_buffers(dataset)):
                check("destroy_data_buffer", acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, index)))
            check("destroy_dataset", acl.mdl.destroy_dataset(dataset))
            for pointer, _, _, _ in tensors:
                check("free", acl.rt.free(pointer))
        check("destroy_desc", acl.mdl.destroy_desc(self.desc))
        check("unload", acl.mdl.unload(self.model_id))


def main(path):
    check("init", acl.init())
    check("set_device", acl.rt.set_device(0))
    executor = ModelExecutor(path)
    shape = executor.inputs[0][2]
    for start in range(3):
        x = start + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        (y,) = executor.execute(x)
        print(*y.ravel().tolist())
    executor.unload()
    check("reset_device", acl.rt.reset_device(0))
    check("finalize", acl.finalize())


if __name__ == "__main__":
    main(sys.argv[1])
