"""A pipeline on three streams from which one edge can be taken away.

Takes the model's path and what is wrong, or "nothing". Does not look at what calls return, as careless programs do.
"""

import sys

import acl
import numpy as np

H2D, D2H = 1, 2
SIZE = 32
PATH, WRONG = sys.argv[1:]


def view(pointer):
    return acl.util.ptr_to_numpy(pointer, (8,), 11)


class Pipeline:
    def __init__(self):
        acl.init()
        acl.rt.set_device(0)
        self.context, _ = acl.rt.create_context(0)
        self.model, _ = acl.mdl.load_from_file(PATH)
        self.streams = [acl.rt.create_stream()[0] for _ in range(3)]
        self.events = [acl.rt.create_event_ex_with_flag(1)[0] for _ in range(3)]
        self.host = [acl.rt.malloc_host(SIZE)[0] for _ in range(2)]
        self.device = [acl.rt.malloc(SIZE, 0)[0] for _ in range(2)]
        self.buffers = [acl.create_data_buffer(pointer, SIZE) for pointer in self.device]
        self.datasets = [acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), one)[0] for one in self.buffers]

    def run(self, x):
        h2d, compute, d2h = self.streams
        copied, computed, other = self.events
        view(self.host[0])[:] = x
        if WRONG == "wait before record":
            acl.rt.stream_wait_event(compute, copied)
        acl.rt.record_event(other, d2h)
        acl.rt.memcpy_async(self.device[0], SIZE, self.host[0], SIZE, H2D, h2d)
        if WRONG == "input overwritten while queued":
            acl.rt.memset(self.host[0], SIZE, 0, SIZE)
        if WRONG == "stage buffer reused early":
            view(self.host[0])[:] = 99
        acl.rt.record_event(copied, d2h if WRONG == "record on the wrong stream" else h2d)
        if WRONG not in ("missing wait", "wait before record"):
            acl.rt.stream_wait_event(compute, other if WRONG == "wait for the wrong event" else copied)
        acl.mdl.execute_async(self.model, *self.datasets, compute)
        acl.rt.record_event(computed, compute)
        acl.rt.stream_wait_event(d2h, computed)
        acl.rt.memcpy_async(self.host[1], SIZE, self.device[1], SIZE, D2H, d2h)
        if WRONG == "next run before the copy":
            acl.mdl.execute_async(self.model, *self.datasets, compute)
        if WRONG == "output read before its copy":
            acl.util.ptr_to_bytes(self.host[1], SIZE)
        acl.rt.synchronize_stream(d2h)
        print(*view(self.host[1]).tolist())

    def close(self):
        for stream in self.streams:
            acl.rt.synchronize_stream(stream)
            acl.rt.destroy_stream(stream)
        for event in self.events:
            acl.rt.destroy_event(event)
        for dataset, buffer, pointer in zip(self.datasets, self.buffers, self.device, strict=True):
            acl.mdl.destroy_dataset(dataset)
            acl.destroy_data_buffer(buffer)
            acl.rt.free(pointer)
        for pointer in self.host:
            acl.rt.free_host(pointer)
        acl.mdl.unload(self.model)
        acl.rt.destroy_context(self.context)
        acl.rt.reset_device(0)
        acl.finalize()


if __name__ == "__main__":
    pipeline = Pipeline()
    for start in range(3):
        pipeline.run(np.arange(start, start + 8))
    pipeline.close()
