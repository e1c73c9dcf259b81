"""A pool that gives each request the device with the fewest requests, a context for each.

Takes the model's path and the number of requests, which run on one thread each. Prints "request device outputs" for
every request, in order, then how often each device was used.
"""

import sys
import threading

import acl
import numpy as np

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} returned {ret}: {acl.get_recent_err_msg()}")


class DevicePool:
    def __init__(self):
        check("init", acl.init())
        count, ret = acl.rt.get_device_count()
        check("get_device_count", ret)
        self.running = dict.fromkeys(range(count), 0)
        self.used = dict.fromkeys(range(count), 0)
        self.lock = threading.Lock()

    def acquire(self):
        with self.lock:
            device = min(self.running, key=lambda one: (self.running[one], self.used[one]))
            self.running[device] += 1
            self.used[device] += 1
        context, ret = acl.rt.create_context(device)
        check("create_context", ret)
        return device, context

    def release(self, device, context):
        check("destroy_context", acl.rt.destroy_context(context))
        with self.lock:
            self.running[device] -= 1

    def close(self):
        check("finalize", acl.finalize())


def infer(path, x):
    model_id, ret = acl.mdl.load_from_file(path)
    check("load_from_file", ret)
    source, ret = acl.rt.malloc_host(x.nbytes)
    check("malloc_host", ret)
    pointers = []
    datasets = []
    buffers = []
    for _ in range(2):
        pointer, ret = acl.rt.malloc(x.nbytes, ACL_MEM_MALLOC_HUGE_FIRST)
        check("malloc", ret)
        buffer = acl.create_data_buffer(pointer, x.nbytes)
        dataset, ret = acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), buffer)
        check("add_dataset_buffer", ret)
        pointers.append(pointer)
        buffers.append(buffer)
        datasets.append(dataset)
    check("memcpy", acl.rt.memcpy(pointers[0], x.nbytes, x.ctypes.data, x.nbytes, ACL_MEMCPY_HOST_TO_DEVICE))
    check("execute", acl.mdl.execute(model_id, datasets[0], datasets[1]))
    y = np.empty_like(x)
    check("memcpy", acl.rt.memcpy(y.ctypes.data, y.nbytes, pointers[1], y.nbytes, ACL_MEMCPY_DEVICE_TO_HOST))
    for buffer, dataset, pointer in zip(buffers, datasets, pointers, strict=True):
        check("destroy_data_buffer", acl.destroy_data_buffer(buffer))
        check("destroy_dataset", acl.mdl.destroy_dataset(dataset))
        check("free", acl.rt.free(pointer))
    check("free_host", acl.rt.free_host(source))
    check("unload", acl.mdl.unload(model_id))
    return y


def main(path, requests):
    pool = DevicePool()
    results = [None] * requests
    # So that no request ends before the last one has its device.
    everybody_has_one = threading.Barrier(requests)

    def serve(number):
        device, context = pool.acquire()
        try:
            everybody_has_one.wait(30)
            results[number] = device, infer(path, np.full((1, 8), number, np.float32))
        finally:
            pool.release(device, context)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (device, y) in enumerate(results):
        print(number, device, *y.ravel().tolist())
    print("used", *pool.used.values())
    pool.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
