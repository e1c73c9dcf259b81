"""A model with batch or picture-size gears, as programs built on acllite use it.

Takes the model's path and the sizes to run: "3" is a batch, "4x6" height and width. Prints "size: shape sum" for each
run, or "size: no such gear code".
"""

import sys

import acl
import numpy as np

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
DYNAMIC_TENSOR_NAME = "ascend_mbatch_shape_data"


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} returned {ret}: {acl.get_recent_err_msg()}")


class Model:
    def __init__(self, path):
        self.model_id, ret = acl.mdl.load_from_file(path)
        check("load_from_file", ret)
        self.desc = acl.mdl.create_desc()
        check("get_desc", acl.mdl.get_desc(self.desc, self.model_id))
        # The largest gear's sizes.
        self.outputs = self._dataset(acl.mdl.get_num_outputs(self.desc), acl.mdl.get_output_size_by_index)
        self.inputs = self._dataset(acl.mdl.get_num_inputs(self.desc), acl.mdl.get_input_size_by_index)
        self.gear_index, ret = acl.mdl.get_input_index_by_name(self.desc, DYNAMIC_TENSOR_NAME)
        check("get_input_index_by_name", ret)
        batches, ret = acl.mdl.get_dynamic_batch(self.desc)
        check("get_dynamic_batch", ret)
        sizes, ret = acl.mdl.get_dynamic_hw(self.desc, -1)
        check("get_dynamic_hw", ret)
        print("gears", *batches["batch"], *("x".join(map(str, pair)) for pair in sizes["hw"]))

    def _dataset(self, count, size_of):
        dataset = acl.mdl.create_dataset()
        for index in range(count):
            size = size_of(self.desc, index)
            pointer, ret = acl.rt.malloc(size, ACL_MEM_MALLOC_HUGE_FIRST)
            check("malloc", ret)
            _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(pointer, size))
            check("add_dataset_buffer", ret)
        return dataset

    def set_gear(self, values):
        if len(values) == 1:
            return acl.mdl.set_dynamic_batch_size(self.model_id, self.inputs, self.gear_index, *values)
        return acl.mdl.set_dynamic_hw_size(self.model_id, self.inputs, self.gear_index, *values)

    def shape_of(self, values):
        dims, ret = acl.mdl.get_input_dims(self.desc, 0)
        check("get_input_dims", ret)
        left = list(values)
        return [left.pop(0) if size == -1 else size for size in dims["dims"]]

    def run(self, x):
        buffer = acl.mdl.get_dataset_buffer(self.inputs, 0)
        pointer, size = acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size_v2(buffer)
        data = x.tobytes()
        source = acl.util.bytes_to_ptr(data)
        check("memcpy", acl.rt.memcpy(pointer, size, source, len(data), ACL_MEMCPY_HOST_TO_DEVICE))
        check("execute", acl.mdl.execute(self.model_id, self.inputs, self.outputs))
        dims, ret = acl.mdl.get_cur_output_dims(self.desc, 0)
        check("get_cur_output_dims", ret)
        y = np.zeros(dims["dims"], np.float32)
        # Into the bytes object itself, as acllite does.
        received = y.tobytes()
        pointer = acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(self.outputs, 0))
        target = acl.util.bytes_to_ptr(received)
        check("memcpy", acl.rt.memcpy(target, len(received), pointer, len(received), ACL_MEMCPY_DEVICE_TO_HOST))
        return np.frombuffer(received, np.float32).reshape(y.shape)

    def close(self):
        for dataset in (self.inputs, self.outputs):
            for index in range(acl.mdl.get_dataset_num_buffers(dataset)):
                buffer = acl.mdl.get_dataset_buffer(dataset, index)
                check("free", acl.rt.free(acl.get_data_buffer_addr(buffer)))
                check("destroy_data_buffer", acl.destroy_data_buffer(buffer))
            check("destroy_dataset", acl.mdl.destroy_dataset(dataset))
        check("destroy_desc", acl.mdl.destroy_desc(self.desc))
        check("unload", acl.mdl.unload(self.model_id))


def main(path, sizes):
    check("init", acl.init())
    check("set_device", acl.rt.set_device(0))
    model = Model(path)
    for text in sizes:
        values = [int(number) for number in text.split("x")]
        ret = model.set_gear(values)
        if ret:
            print(f"{text}: no such gear {ret}")
            continue
        shape = model.shape_of(values)
        y = model.run(np.ones(shape, np.float32))
        print(f"{text}: {y.shape} {float(y.sum())}")
    model.close()
    check("reset_device", acl.rt.reset_device(0))
    check("finalize", acl.finalize())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
