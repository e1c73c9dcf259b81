"""A pool of device blocks of a few sizes, shared by many requests; blocks over a limit go back to the device.

Takes the model's path. Prints the sum of each run's outputs, then how many blocks were allocated and how many requests
were served from the pool.
"""

import sys
from collections import deque

import acl
import numpy as np

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEM_MALLOC_NORMAL_ONLY = 2
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
ACL_HBM_MEM = 1


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} returned {ret}: {acl.get_recent_err_msg()}")


class DeviceMemoryPool:
    def __init__(self, sizes, blocks_a_size, limit=8):
        self.limit = limit
        self.allocated = self.reused = 0
        self.free_blocks = {size: deque(self._malloc(size) for _ in range(blocks_a_size)) for size in sorted(sizes)}

    def _malloc(self, size, policy=ACL_MEM_MALLOC_HUGE_FIRST):
        pointer, ret = acl.rt.malloc(size, policy)
        check("malloc", ret)
        self.allocated += 1
        return pointer

    def _class_of(self, size):
        return next((block for block in self.free_blocks if block >= size), None)

    def take(self, size):
        block = self._class_of(size)
        if block is not None and self.free_blocks[block]:
            self.reused += 1
            return self.free_blocks[block].popleft()
        return self._malloc(block or size, ACL_MEM_MALLOC_NORMAL_ONLY)

    def give_back(self, pointer, size):
        block = self._class_of(size)
        if block is not None and len(self.free_blocks[block]) < self.limit:
            self.free_blocks[block].append(pointer)
        else:
            check("free", acl.rt.free(pointer))

    def close(self):
        for blocks in self.free_blocks.values():
            while blocks:
                check("free", acl.rt.free(blocks.pop()))


class Model:
    def __init__(self, path):
        self.model_id, ret = acl.mdl.load_from_file(path)
        check("load_from_file", ret)
        # The buffers are bound anew for every run.
        self.buffers = [acl.create_data_buffer(0, 0) for _ in range(2)]
        self.datasets = []
        for buffer in self.buffers:
            dataset, ret = acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), buffer)
            check("add_dataset_buffer", ret)
            self.datasets.append(dataset)

    def run(self, source, target, size):
        for buffer, pointer in zip(self.buffers, (source, target), strict=True):
            check("update_data_buffer", acl.update_data_buffer(buffer, pointer, size))
        check("execute", acl.mdl.execute(self.model_id, *self.datasets))

    def close(self):
        for buffer, dataset in zip(self.buffers, self.datasets, strict=True):
            check("destroy_data_buffer", acl.destroy_data_buffer(buffer))
            check("destroy_dataset", acl.mdl.destroy_dataset(dataset))
        check("unload", acl.mdl.unload(self.model_id))


def main(path):
    check("init", acl.init())
    check("set_device", acl.rt.set_device(0))
    free_before, total, ret = acl.rt.get_mem_info(ACL_HBM_MEM)
    check("get_mem_info", ret)
    pool = DeviceMemoryPool([1 << 10, 1 << 16], blocks_a_size=2, limit=2)
    model = Model(path)
    in_flight = []
    for number in range(6):
        x = np.full((1, 8), number, np.float32)
        y = np.empty_like(x)
        source, target = pool.take(x.nbytes), pool.take(y.nbytes)
        check("memcpy", acl.rt.memcpy(source, x.nbytes, x.ctypes.data, x.nbytes, ACL_MEMCPY_HOST_TO_DEVICE))
        model.run(source, target, x.nbytes)
        check("memcpy", acl.rt.memcpy(y.ctypes.data, y.nbytes, target, y.nbytes, ACL_MEMCPY_DEVICE_TO_HOST))
        print(float(y.sum()))
        in_flight += [source, target]
        if number % 2:
            while in_flight:
                pool.give_back(in_flight.pop(), x.nbytes)
    model.close()
    print("allocated", pool.allocated, "reused", pool.reused)
    pool.close()
    free_after, _, ret = acl.rt.get_mem_info(ACL_HBM_MEM)
    check("get_mem_info", ret)
    print("same" if free_after == free_before <= total else "different", "free memory as before")
    check("reset_device", acl.rt.reset_device(0))
    check("finalize", acl.finalize())


if __name__ == "__main__":
    main(sys.argv[1])
