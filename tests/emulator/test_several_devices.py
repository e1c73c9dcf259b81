"""Two devices in one process keep out of each other's way."""

from __future__ import annotations

import threading

import numpy as np

from aioascend.emulator import Emulator

from .kit import Driver, ReportThread, doubler


def test_each_device_has_its_own_memory_and_threads(machine: Emulator) -> None:
    first, second = Driver(machine, 0), Driver(machine, 1)
    assert len(machine.threads) == 4
    on_second = second.device(1 << 20)
    first.ok(first.rt.set_context(first.context))
    assert first.rt.get_mem_info(0)[0] == 256 << 20
    on_first = first.device(1 << 20)
    assert on_first != on_second
    first.ok(first.rt.destroy_context(first.context))
    assert len(machine.threads) == 2
    first.ok(first.rt.free(on_second))


def test_a_copy_between_devices(machine: Emulator) -> None:
    data = np.arange(100.0)
    first = Driver(machine, 0)
    source = first.upload(data)
    second = Driver(machine, 1)
    target = second.device(data.nbytes)
    second.ok(second.rt.memcpy(target, data.nbytes, source, data.nbytes, 3))
    assert np.array_equal(second.download(target, data), data)


def test_an_event_of_another_device_cannot_be_waited_for(machine: Emulator) -> None:
    first = Driver(machine, 0)
    event = first.ok(first.rt.create_event_ex_with_flag(1))
    second = Driver(machine, 1)
    assert second.rt.stream_wait_event(second.stream(), event) == 107003


def test_both_devices_work_at_once_with_their_own_report_threads(machine: Emulator) -> None:
    failures: list[BaseException] = []

    def work(device: int) -> None:
        try:
            npu = Driver(machine, device)
            reports = ReportThread(npu)
            stream, seen = npu.stream(), []
            npu.ok(npu.rt.subscribe_report(reports.ident, stream))
            reports.start()
            loaded = npu.load(doubler((4,)))
            source, given = npu.pinned(np.zeros(4, np.float32))
            back, taken = npu.pinned(np.zeros(4, np.float32))
            din, dout = npu.device(16), npu.device(16)
            inputs, outputs = npu.dataset((din, 16)), npu.dataset((dout, 16))
            for turn in range(100):
                given[:] = turn + 1000 * device
                npu.ok(npu.rt.memcpy_async(din, 16, source, 16, 1, stream))
                npu.ok(npu.mdl.execute_async(loaded, inputs, outputs, stream))
                npu.ok(npu.rt.memcpy_async(back, 16, dout, 16, 2, stream))
                npu.ok(npu.rt.launch_callback(seen.append, turn, 1, stream))
                npu.ok(npu.rt.synchronize_stream(stream))
                assert (taken == 2 * given).all()
            assert seen == list(range(100))
            npu.ok(npu.rt.unsubscribe_report(reports.ident, stream))
            reports.close()
            npu.ok(npu.rt.destroy_context(npu.context))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(device,)) for device in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert machine.threads == ()
