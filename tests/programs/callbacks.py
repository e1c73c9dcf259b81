"""Completion by callback: a report thread runs `process_report`, the main thread only submits.

Takes the model's path, the number of requests, and what makes the thread: "start_thread" (of acl.util) or "threading".
Prints one line of outputs for every request in the order of completion, then where the callbacks ran.
"""

import ctypes
import sys
import threading

import acl
import numpy as np

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
ACL_CALLBACK_NO_BLOCK = 0
THREAD_NOT_SUBSCRIBED = 107012
SIZE = 32


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} returned {ret}: {acl.get_recent_err_msg()}")


class ReportThread:
    def __init__(self, kind, context):
        self.kind = kind
        self.leaving = threading.Event()
        self.subscribed = threading.Event()
        if kind == "start_thread":
            self.ident, ret = acl.util.start_thread(self._run, [context])
            check("start_thread", ret)
        else:
            self.thread = threading.Thread(target=self._run, args=([context],))
            self.thread.start()
            self.ident = self.thread.ident

    def _run(self, arguments):
        (context,) = arguments
        check("set_context", acl.rt.set_context(context))
        self.subscribed.wait(30)
        while not self.leaving.is_set():
            if acl.rt.process_report(50) == THREAD_NOT_SUBSCRIBED:
                self.leaving.wait(30)

    def close(self):
        self.leaving.set()
        if self.kind == "start_thread":
            check("stop_thread", acl.util.stop_thread(self.ident))
        else:
            self.thread.join()


def place():
    pointer, ret = acl.rt.malloc(SIZE, ACL_MEM_MALLOC_HUGE_FIRST)
    check("malloc", ret)
    host, ret = acl.rt.malloc_host(SIZE)
    check("malloc_host", ret)
    buffer = acl.create_data_buffer(pointer, SIZE)
    dataset, ret = acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), buffer)
    check("add_dataset_buffer", ret)
    view = np.frombuffer((ctypes.c_char * SIZE).from_address(host), np.float32)
    return pointer, host, buffer, dataset, view


def main(path, requests, kind):
    check("init", acl.init())
    check("set_device", acl.rt.set_device(0))
    context, ret = acl.rt.get_context()
    check("get_context", ret)
    stream, ret = acl.rt.create_stream()
    check("create_stream", ret)
    model_id, ret = acl.mdl.load_from_file(path)
    check("load_from_file", ret)

    reports = ReportThread(kind, context)
    check("subscribe_report", acl.rt.subscribe_report(reports.ident, stream))
    reports.subscribed.set()

    done = threading.Semaphore(0)
    order = []
    threads = set()

    def completed(number):
        order.append(number)
        threads.add(threading.get_ident())
        done.release()

    places = [(place(), place()) for _ in range(requests)]
    for number, (source, target) in enumerate(places):
        source[4][:] = number
        ret = acl.rt.memcpy_async(source[0], SIZE, source[1], SIZE, ACL_MEMCPY_HOST_TO_DEVICE, stream)
        check("memcpy_async", ret)
        check("execute_async", acl.mdl.execute_async(model_id, source[3], target[3], stream))
        ret = acl.rt.memcpy_async(target[1], SIZE, target[0], SIZE, ACL_MEMCPY_DEVICE_TO_HOST, stream)
        check("memcpy_async", ret)
        check("launch_callback", acl.rt.launch_callback(completed, number, ACL_CALLBACK_NO_BLOCK, stream))
    for _ in range(requests):
        if not done.acquire(timeout=30):
            raise RuntimeError("a callback did not come")
    check("synchronize_stream", acl.rt.synchronize_stream(stream))
    for number in order:
        print(number, *places[number][1][4].tolist())
    print("callbacks ran on the report thread" if threads == {reports.ident} else f"callbacks ran on {threads}")

    check("unsubscribe_report", acl.rt.unsubscribe_report(reports.ident, stream))
    reports.close()
    check("destroy_stream", acl.rt.destroy_stream(stream))
    for pointer, host, buffer, dataset, _ in (one for pair in places for one in pair):
        check("destroy_data_buffer", acl.destroy_data_buffer(buffer))
        check("destroy_dataset", acl.mdl.destroy_dataset(dataset))
        check("free", acl.rt.free(pointer))
        check("free_host", acl.rt.free_host(host))
    check("unload", acl.mdl.unload(model_id))
    check("reset_device", acl.rt.reset_device(0))
    check("finalize", acl.finalize())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
