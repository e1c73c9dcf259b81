"""A correct program into which one mistake can be planted.

Takes the model's path and the name of the mistake, or "none". Prints the outputs of one run, where there is one.
"""

import os
import sys
import threading

import acl
import numpy as np

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
ACL_EVENT_SYNC = 1
SIZE = 32

PATH, MISTAKE = sys.argv[1:]


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} returned {ret}: {acl.get_recent_err_msg()}")


def made(name, pair):
    check(name, pair[1])
    return pair[0]


def forgotten(what):
    return f"missing {what}" == MISTAKE


def reports(stop, context):
    check("set_context", acl.rt.set_context(context))
    while not stop.is_set():
        acl.rt.process_report(20)
        stop.wait(0.005)


class Program:
    def __init__(self):
        check("init", acl.init())
        check("set_device", acl.rt.set_device(0))
        self.context = made("create_context", acl.rt.create_context(0))
        self.stream = made("create_stream", acl.rt.create_stream())
        self.event = made("create_event", acl.rt.create_event_ex_with_flag(ACL_EVENT_SYNC))
        self.model = made("load_from_file", acl.mdl.load_from_file(PATH))
        self.desc = acl.mdl.create_desc()
        check("get_desc", acl.mdl.get_desc(self.desc, self.model))
        self.host = made("malloc_host", acl.rt.malloc_host(SIZE))
        self.pointers = [made("malloc", acl.rt.malloc(SIZE, ACL_MEM_MALLOC_HUGE_FIRST)) for _ in range(2)]
        self.buffers = [acl.create_data_buffer(pointer, SIZE) for pointer in self.pointers]
        self.datasets = [
            made("add_dataset_buffer", acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), buffer))
            for buffer in self.buffers
        ]
        self.stop = threading.Event()
        self.thread = threading.Thread(target=reports, args=(self.stop, self.context))
        self.thread.start()
        check("subscribe_report", acl.rt.subscribe_report(self.thread.ident, self.stream))

    def copy_in(self, x, stream):
        check("memcpy", acl.rt.memcpy(self.host, SIZE, x.ctypes.data, SIZE, 0))
        ret = acl.rt.memcpy_async(self.pointers[0], SIZE, self.host, SIZE, ACL_MEMCPY_HOST_TO_DEVICE, stream)
        check("memcpy_async", ret)

    def run(self):
        self.copy_in(np.arange(8, dtype=np.float32), self.stream)
        check("execute_async", acl.mdl.execute_async(self.model, *self.datasets, self.stream))
        check("record_event", acl.rt.record_event(self.event, self.stream))
        ret = acl.rt.memcpy_async(self.host, SIZE, self.pointers[1], SIZE, ACL_MEMCPY_DEVICE_TO_HOST, self.stream)
        check("memcpy_async", ret)
        self.plant()
        check("synchronize_stream", acl.rt.synchronize_stream(self.stream))
        print(*np.frombuffer(acl.util.ptr_to_bytes(self.host, SIZE), np.float32).tolist())

    def plant(self):
        """The mistakes of running programs. What a call returns is ignored, as careless programs do."""
        rt, stream, pointer = acl.rt, self.stream, self.pointers[0]
        spare = made("malloc", rt.malloc(SIZE, ACL_MEM_MALLOC_HUGE_FIRST))
        if MISTAKE == "double free":
            rt.free(spare)
            rt.free(spare)
            return
        if MISTAKE == "use after free":
            rt.free(spare)
            rt.memcpy(self.host, SIZE, spare, SIZE, ACL_MEMCPY_DEVICE_TO_HOST)
            return
        if MISTAKE == "free of memory in use":
            # Tasks wait behind a callback that is held up, so that the copy is queued when its memory goes.
            gate = threading.Event()
            rt.launch_callback(lambda data: gate.wait(10), None, 1, stream)
            rt.memcpy_async(self.host, SIZE, spare, SIZE, ACL_MEMCPY_DEVICE_TO_HOST, stream)
            rt.free(spare)
            gate.set()
            rt.synchronize_stream(stream)
            rt.free(spare)
            return
        check("free", rt.free(spare))
        if MISTAKE == "overflow of dst_max":
            rt.memcpy(pointer, SIZE, self.host, 2 * SIZE, ACL_MEMCPY_HOST_TO_DEVICE)
        elif MISTAKE == "copy beyond the end of a block":
            rt.memcpy(pointer, 64 * SIZE, self.host, 64 * SIZE, ACL_MEMCPY_HOST_TO_DEVICE)
        elif MISTAKE == "one model on two streams":
            other = made("create_stream", rt.create_stream())
            gate = threading.Event()
            rt.launch_callback(lambda data: gate.wait(10), None, 1, stream)
            acl.mdl.execute_async(self.model, *self.datasets, stream)
            acl.mdl.execute_async(self.model, *self.datasets, other)
            gate.set()
            rt.synchronize_stream(other)
            rt.synchronize_stream(stream)
            rt.destroy_stream(other)
        elif MISTAKE == "acl call in a callback":
            done = threading.Event()

            def callback(data):
                pointer, ret = rt.malloc_host(SIZE)
                if ret == 0:
                    rt.free_host(pointer)
                done.set()

            rt.launch_callback(callback, None, 0, stream)
            done.wait(10)
        elif MISTAKE == "pageable memory in memcpy_async":
            x = np.zeros(8, np.float32)
            rt.memcpy_async(pointer, SIZE, x.ctypes.data, SIZE, ACL_MEMCPY_HOST_TO_DEVICE, stream)
            rt.synchronize_stream(stream)
        elif MISTAKE == "callback on an unsubscribed stream":
            other = made("create_stream", rt.create_stream())
            rt.launch_callback(lambda data: None, None, 0, other)
            rt.destroy_stream(other)
        elif MISTAKE == "stream of another context":
            other = made("create_context", rt.create_context(0))
            rt.synchronize_stream(stream)
            rt.set_context(self.context)
            rt.destroy_context(other)
        elif MISTAKE == "no context":

            def without_context():
                rt.create_stream()

            thread = threading.Thread(target=without_context)
            thread.start()
            thread.join()
        elif MISTAKE == "event destroyed twice":
            event = made("create_event", rt.create_event_ex_with_flag(ACL_EVENT_SYNC))
            rt.destroy_event(event)
            rt.destroy_event(event)
        elif MISTAKE == "device memory freed as pinned":
            other = made("malloc", rt.malloc(SIZE, ACL_MEM_MALLOC_HUGE_FIRST))
            rt.free_host(other)
            rt.free(other)

        elif MISTAKE == "model unloaded in use":
            model = made("load_from_file", acl.mdl.load_from_file(PATH))
            gate = threading.Event()
            rt.launch_callback(lambda data: gate.wait(10), None, 1, stream)
            acl.mdl.execute_async(model, *self.datasets, stream)
            acl.mdl.unload(model)
            gate.set()
            rt.synchronize_stream(stream)
            acl.mdl.unload(model)
        elif MISTAKE == "use in a forked child":
            child = os.fork()
            if child == 0:
                ret = rt.synchronize_stream(stream)
                os._exit(0 if ret == 0 else 1)
            _, status = os.waitpid(child, 0)
            print("the child's call", "worked" if status == 0 else "was refused")

    def close(self):
        check("unsubscribe_report", acl.rt.unsubscribe_report(self.thread.ident, self.stream))
        self.stop.set()
        self.thread.join()
        if MISTAKE == "reset before everything":
            acl.rt.reset_device(0)
            acl.rt.destroy_context(self.context)
            acl.rt.destroy_stream(self.stream)
            acl.mdl.unload(self.model)
            acl.rt.free(self.pointers[0])
        if MISTAKE == "finalize before everything":
            acl.finalize()
        if MISTAKE == "context destroyed before its streams":
            check("destroy_context", acl.rt.destroy_context(self.context))
        if not forgotten("destroy_event"):
            acl.rt.destroy_event(self.event)
        if not forgotten("destroy_stream"):
            acl.rt.destroy_stream(self.stream)
        if not forgotten("destroy_data_buffer"):
            acl.destroy_data_buffer(self.buffers[0])
        acl.destroy_data_buffer(self.buffers[1])
        if not forgotten("destroy_dataset"):
            acl.mdl.destroy_dataset(self.datasets[0])
        acl.mdl.destroy_dataset(self.datasets[1])
        if not forgotten("free"):
            acl.rt.free(self.pointers[0])
        acl.rt.free(self.pointers[1])
        if not forgotten("free_host"):
            acl.rt.free_host(self.host)
        if not forgotten("destroy_desc"):
            acl.mdl.destroy_desc(self.desc)
        if not forgotten("unload"):
            acl.mdl.unload(self.model)
        if not forgotten("destroy_context"):
            acl.rt.destroy_context(self.context)
        if not forgotten("reset_device"):
            acl.rt.reset_device(0)
        if not forgotten("finalize"):
            acl.finalize()


if __name__ == "__main__":
    program = Program()
    program.run()
    program.close()
