"""Every device with a thread, a context and several streams, each stream with a model instance of its own.

Takes the model's path and the number of streams a device. Prints "device stream outputs" of every run.
"""

import sys
import threading

import acl
import numpy as np

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
SIZE = 32


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} returned {ret}: {acl.get_recent_err_msg()}")


class Lane:
    """One stream of the current context with a model instance; the same model id is never on two streams."""

    def __init__(self, path):
        self.stream, ret = acl.rt.create_stream()
        check("create_stream", ret)
        self.model_id, ret = acl.mdl.load_from_file(path)
        check("load_from_file", ret)
        self.host, ret = acl.rt.malloc_host(SIZE)
        check("malloc_host", ret)
        self.pointers = []
        self.buffers = []
        self.datasets = []
        for _ in range(2):
            pointer, ret = acl.rt.malloc(SIZE, ACL_MEM_MALLOC_HUGE_FIRST)
            check("malloc", ret)
            self.pointers.append(pointer)
            self.buffers.append(acl.create_data_buffer(pointer, SIZE))
            dataset, ret = acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), self.buffers[-1])
            check("add_dataset_buffer", ret)
            self.datasets.append(dataset)

    def submit(self, x):
        check("memcpy", acl.rt.memcpy(self.host, SIZE, x.ctypes.data, SIZE, 0))
        ret = acl.rt.memcpy_async(self.pointers[0], SIZE, self.host, SIZE, ACL_MEMCPY_HOST_TO_DEVICE, self.stream)
        check("memcpy_async", ret)
        check("execute_async", acl.mdl.execute_async(self.model_id, *self.datasets, self.stream))
        ret = acl.rt.memcpy_async(self.host, SIZE, self.pointers[1], SIZE, ACL_MEMCPY_DEVICE_TO_HOST, self.stream)
        check("memcpy_async", ret)

    def result(self):
        check("synchronize_stream", acl.rt.synchronize_stream(self.stream))
        return np.frombuffer(acl.util.ptr_to_bytes(self.host, SIZE), np.float32)

    def close(self):
        check("destroy_stream", acl.rt.destroy_stream(self.stream))
        for buffer, dataset, pointer in zip(self.buffers, self.datasets, self.pointers, strict=True):
            check("destroy_data_buffer", acl.destroy_data_buffer(buffer))
            check("destroy_dataset", acl.mdl.destroy_dataset(dataset))
            check("free", acl.rt.free(pointer))
        check("free_host", acl.rt.free_host(self.host))
        check("unload", acl.mdl.unload(self.model_id))


def serve(device, path, streams, results):
    check("set_device", acl.rt.set_device(device))
    context, ret = acl.rt.create_context(device)
    check("create_context", ret)
    lanes = [Lane(path) for _ in range(streams)]
    for number, lane in enumerate(lanes):
        lane.submit(np.full(8, 10 * device + number, np.float32))
    for number, lane in enumerate(lanes):
        results[device, number] = lane.result()
    for lane in lanes:
        lane.close()
    check("destroy_context", acl.rt.destroy_context(context))
    check("reset_device", acl.rt.reset_device(device))


def main(path, streams):
    check("init", acl.init())
    devices, ret = acl.rt.get_device_count()
    check("get_device_count", ret)
    results = {}
    threads = [threading.Thread(target=serve, args=(device, path, streams, results)) for device in range(devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (device, number), y in sorted(results.items()):
        print(device, number, *y.tolist())
    check("finalize", acl.finalize())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
