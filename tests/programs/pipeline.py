"""Two streams and two sets of buffers: while one request computes, the next is copied in and the last one out.

Takes the model's path and the number of requests. Prints one line of outputs for every request, in order.
"""

import ctypes
import sys

import acl
import numpy as np

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
ACL_EVENT_SYNC = 1
SHAPE = (1, 8)
SIZE = 32


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} returned {ret}: {acl.get_recent_err_msg()}")


class Place:
    """The buffers of one request in flight: pinned and on the device, with their datasets and events."""

    def __init__(self):
        self.device = []
        self.pinned = []
        self.views = []
        self.buffers = []
        self.datasets = []
        self.events = []
        for _ in range(2):
            pointer, ret = acl.rt.malloc(SIZE, ACL_MEM_MALLOC_HUGE_FIRST)
            check("malloc", ret)
            host, ret = acl.rt.malloc_host(SIZE)
            check("malloc_host", ret)
            buffer = acl.create_data_buffer(pointer, SIZE)
            dataset, ret = acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), buffer)
            check("add_dataset_buffer", ret)
            event, ret = acl.rt.create_event_ex_with_flag(ACL_EVENT_SYNC)
            check("create_event_ex_with_flag", ret)
            self.device.append(pointer)
            self.pinned.append(host)
            self.views.append(np.frombuffer((ctypes.c_char * SIZE).from_address(host), np.float32).reshape(SHAPE))
            self.buffers.append(buffer)
            self.datasets.append(dataset)
            self.events.append(event)
        self.copied_out, ret = acl.rt.create_event_ex_with_flag(ACL_EVENT_SYNC)
        check("create_event_ex_with_flag", ret)

    def submit(self, model_id, x, copies, compute):
        copied_in, computed = self.events
        self.views[0][:] = x
        ret = acl.rt.memcpy_async(self.device[0], SIZE, self.pinned[0], SIZE, ACL_MEMCPY_HOST_TO_DEVICE, copies)
        check("memcpy_async", ret)
        check("record_event", acl.rt.record_event(copied_in, copies))
        check("stream_wait_event", acl.rt.stream_wait_event(compute, copied_in))
        check("execute_async", acl.mdl.execute_async(model_id, *self.datasets, compute))
        check("record_event", acl.rt.record_event(computed, compute))

    def fetch(self, copies):
        check("stream_wait_event", acl.rt.stream_wait_event(copies, self.events[1]))
        ret = acl.rt.memcpy_async(self.pinned[1], SIZE, self.device[1], SIZE, ACL_MEMCPY_DEVICE_TO_HOST, copies)
        check("memcpy_async", ret)
        check("record_event", acl.rt.record_event(self.copied_out, copies))

    def result(self):
        check("synchronize_event", acl.rt.synchronize_event(self.copied_out))
        return self.views[1].copy()

    def close(self):
        for event in (*self.events, self.copied_out):
            check("destroy_event", acl.rt.destroy_event(event))
        for buffer, dataset, pointer, host in zip(self.buffers, self.datasets, self.device, self.pinned, strict=True):
            check("destroy_data_buffer", acl.destroy_data_buffer(buffer))
            check("destroy_dataset", acl.mdl.destroy_dataset(dataset))
            check("free", acl.rt.free(pointer))
            check("free_host", acl.rt.free_host(host))


def main(path, requests):
    check("init", acl.init())
    context, ret = acl.rt.create_context(0)
    check("create_context", ret)
    copies, ret = acl.rt.create_stream()
    check("create_stream", ret)
    compute, ret = acl.rt.create_stream()
    check("create_stream", ret)
    model_id, ret = acl.mdl.load_from_file(path)
    check("load_from_file", ret)
    places = [Place(), Place()]

    flying = []
    for number in range(requests):
        place = places[number % 2]
        if len(flying) == 2:
            print(*flying.pop(0).result().ravel().tolist())
        place.submit(model_id, number + np.arange(8, dtype=np.float32).reshape(SHAPE), copies, compute)
        if flying:
            flying[-1].fetch(copies)
        flying.append(place)
    flying[-1].fetch(copies)
    while flying:
        print(*flying.pop(0).result().ravel().tolist())

    for stream in (copies, compute):
        check("synchronize_stream", acl.rt.synchronize_stream(stream))
        check("destroy_stream", acl.rt.destroy_stream(stream))
    for place in places:
        place.close()
    check("unload", acl.mdl.unload(model_id))
    check("destroy_context", acl.rt.destroy_context(context))
    check("finalize", acl.finalize())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
