"""Faults on demand: in calls, in tasks, in callbacks, of whole devices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver, doubler


def test_the_nth_call_fails_and_does_nothing(npu: Driver) -> None:
    free = npu.rt.get_mem_info(0)[0]
    rule = npu.emulator.faults.fail("acl.rt.malloc", 207001, nth=3)
    results = [npu.rt.malloc(64, 0)[1] for _ in range(4)]
    assert results == [0, 0, 207001, 0]
    assert (rule.seen, rule.hits) == (4, 1)
    assert free - npu.rt.get_mem_info(0)[0] == 3 * 128
    npu.emulator.faults.fail("rt.malloc", 207001)
    assert npu.rt.malloc(64, 0) == (0, 207001)
    assert "told to fail" in npu.acl.get_recent_err_msg()


def test_a_failing_call_has_its_usual_shape(npu: Driver) -> None:
    for name in ("rt.get_mem_info", "mdl.create_dataset", "mdl.get_input_dims", "rt.synchronize_stream"):
        npu.emulator.faults.fail(name, 500000, times=None)
    assert npu.rt.get_mem_info(0) == (0, 0, 500000)
    assert npu.mdl.create_dataset() == 0
    assert npu.mdl.get_input_dims(1, 1) == ({}, 500000)
    assert npu.rt.synchronize_stream(0) == 500000
    assert npu.rt.synchronize_stream(0) == 500000
    npu.emulator.faults.clear()
    assert npu.rt.synchronize_stream(0) == 0


def test_wrong_arguments_come_before_faults(npu: Driver) -> None:
    npu.emulator.faults.fail("acl.rt.malloc", 207001)
    with pytest.raises(TypeError):
        npu.rt.malloc(64)


def test_an_unknown_function_or_kind_is_refused(machine: Emulator) -> None:
    with pytest.raises(ValueError, match=r"acl\.rt\.nothing"):
        machine.faults.fail("acl.rt.nothing", 1)
    with pytest.raises(ValueError, match=r"'walk'.*execute"):
        machine.faults.fail_task("walk")


def execute(npu: Driver, stream: int) -> None:
    loaded = npu.load(doubler())
    x = np.ones((2, 3), np.float32)
    given, taken, _ = npu.bind([x], [x])
    npu.ok(npu.mdl.execute_async(loaded, given, taken, stream))


def test_a_task_fails_on_the_device(npu: Driver) -> None:
    stream = npu.stream()
    npu.emulator.faults.fail_task("execute", 507015, nth=2)
    execute(npu, stream)
    execute(npu, stream)
    execute(npu, stream)
    assert npu.rt.synchronize_stream(stream) == 507015
    assert npu.rt.synchronize_stream(stream) == 0
    npu.emulator.faults.fail_task("copy", 507899)
    a, b = npu.upload(np.ones(4)), npu.upload(np.zeros(4))
    npu.ok(npu.rt.memcpy_async(b, 32, a, 32, 3, stream))
    assert npu.rt.synchronize_stream(stream) == 507899
    assert npu.download(b, np.zeros(4)).sum() == 0


@pytest.mark.parametrize("way", ["stream_abort", "destroy_stream_force"])
def test_a_task_that_never_ends(npu: Driver, way: str) -> None:
    stream, other = npu.stream(), npu.stream()
    npu.emulator.faults.hang("execute")
    execute(npu, stream)
    assert npu.rt.synchronize_stream_with_timeout(stream, 20) == 507046
    execute(npu, other)
    assert npu.rt.synchronize_stream_with_timeout(other, 20) == 507046  # the core is taken
    npu.ok(getattr(npu.rt, way)(stream))
    assert npu.rt.synchronize_stream_with_timeout(other, 5000) == 0


def test_a_device_with_a_hanging_task_can_be_reset(machine: Emulator) -> None:
    npu = Driver(machine)
    npu.ok(npu.rt.set_device(0))
    stream = npu.stream()
    machine.faults.hang("execute")
    execute(npu, stream)
    assert npu.rt.synchronize_stream_with_timeout(stream, 20) == 507046
    npu.ok(npu.rt.reset_device(0))
    npu.ok(npu.rt.destroy_context(npu.context))
    assert machine.threads == ()


def test_shutdown_in_spite_of_a_hanging_task(machine: Emulator, npu: Driver) -> None:
    machine.faults.hang("any")
    execute(npu, npu.stream())
    start = time.monotonic()
    machine.shutdown()
    assert time.monotonic() < start + 2


def test_a_callback_comes_late_and_the_next_ones_behind_it(npu: Driver) -> None:
    stream, seen = npu.stream(), []
    npu.ok(npu.rt.subscribe_report(threading.get_ident(), stream))
    npu.emulator.faults.delay_callback(0.05)
    start = time.monotonic()
    npu.ok(npu.rt.launch_callback(seen.append, 1, 0, stream))
    npu.ok(npu.rt.launch_callback(seen.append, 2, 0, stream))
    assert npu.rt.process_report(10) == 507012
    while len(seen) < 2:
        npu.rt.process_report(1000)
    assert time.monotonic() >= start + 0.05
    assert seen == [1, 2]


def lost(machine: Emulator, **options: Any) -> Driver:
    npu = Driver(machine)
    npu.stream()
    machine.faults.lose_device(0, **options)
    return npu


def test_a_lost_device_answers_every_call_with_its_code(machine: Emulator) -> None:
    npu = Driver(machine)
    loaded, stream, event = npu.load(doubler()), npu.stream(), npu.ok(npu.rt.create_event())
    dataset = npu.dataset((npu.device(24), 24))
    machine.faults.lose_device(0, 507010)
    assert npu.rt.query_device_status(0) == (1, 0)
    assert npu.rt.malloc(64, 0) == (0, 507010)
    assert npu.rt.synchronize_stream(stream) == 507010
    assert npu.rt.stream_query(stream)[1] == 507010
    assert npu.rt.record_event(event, stream) == 507010
    assert npu.rt.stream_wait_event(stream, event) == 507010
    assert npu.mdl.execute(loaded, dataset, dataset) == 507010
    assert npu.mdl.execute_async(loaded, dataset, dataset, stream) == 507010
    assert npu.rt.synchronize_device() == 507010
    assert npu.rt.create_context(0) == (0, 507010)
    assert npu.rt.set_device(0) == 507010
    assert "device 0 is lost" in npu.acl.get_recent_err_msg()


def test_losing_a_device_wakes_those_that_wait_for_it(machine: Emulator) -> None:
    npu = Driver(machine)
    stream, event = npu.stream(), npu.ok(npu.rt.create_event())
    npu.hold(stream)
    npu.ok(npu.rt.record_event(event, stream))
    codes: dict[str, int] = {}

    def wait(name: str, call: Any, *arguments: int) -> None:
        npu.rt.set_context(npu.context)
        codes[name] = call(*arguments)

    threads = [
        threading.Thread(target=wait, args=("stream", npu.rt.synchronize_stream, stream)),
        threading.Thread(target=wait, args=("event", npu.rt.synchronize_event, event)),
    ]
    for thread in threads:
        thread.start()
    while len(machine._process.devices[0].engine.hosts) < 2:  # type: ignore[union-attr]
        time.sleep(0.001)
    machine.faults.lose_device(0)
    for thread in threads:
        thread.join(5)
    assert codes == {"stream": 507010, "event": 507010}


@pytest.mark.parametrize("call, code", [("destroy_stream", 507010), ("destroy_context", 507010), ("reset_device", 0)])
def test_what_is_waiting_to_be_given_up_when_the_device_is_lost_is_gone(
    machine: Emulator, call: str, code: int
) -> None:
    npu = Driver(machine)
    if call == "reset_device":
        npu.ok(npu.rt.set_device(0))
        npu.context = npu.ok(npu.rt.get_context())
    stream = npu.stream()
    npu.hold(stream)
    given = {"destroy_stream": stream, "destroy_context": npu.context, "reset_device": 0}[call]
    codes: list[int] = []

    def give_up() -> None:
        npu.rt.set_context(npu.context)
        codes.append(getattr(npu.rt, call)(given))

    thread = threading.Thread(target=give_up)
    thread.start()
    while not machine._process.devices[0].engine.hosts:  # type: ignore[union-attr]
        time.sleep(0.001)
    machine.faults.lose_device(0)
    thread.join(5)
    assert codes == [code]
    process = machine._process
    assert given not in process.streams
    assert (npu.context in process.contexts) == (call == "destroy_stream")


def test_a_lost_device_is_well_again_after_its_reset(machine: Emulator) -> None:
    npu = Driver(machine)
    npu.ok(npu.rt.set_device(0))
    npu.ok(npu.rt.set_context(npu.context))
    stream, loaded = npu.stream(), npu.load(doubler())
    npu.ok(npu.rt.subscribe_report(threading.get_ident(), stream))
    machine.faults.lose_device(0)
    assert npu.rt.unsubscribe_report(threading.get_ident(), stream) == 507010
    assert npu.rt.destroy_stream(stream) == 507010
    npu.ok(npu.mdl.unload(loaded))
    assert npu.rt.destroy_context(npu.context) == 507010
    npu.ok(npu.rt.reset_device(0))
    assert machine.threads == ()
    fresh = Driver(machine)
    x = np.ones((2, 3), np.float32)
    assert fresh.run(fresh.load(doubler()), [x], [x])[0].sum() == 12
    assert fresh.rt.process_report(1) == 107012


def test_a_device_lost_for_good_stays_lost_and_the_other_one_works(machine: Emulator) -> None:
    npu = lost(machine, code=507899, recoverable=False)
    assert npu.rt.destroy_context(npu.context) == 507899
    assert npu.rt.set_device(0) == 507899
    assert npu.rt.reset_device(0) == 507899
    other = Driver(machine, 1)
    assert other.device(64)
    assert len(machine.threads) == 2


def test_a_device_is_lost_at_its_nth_task(machine: Emulator) -> None:
    npu = Driver(machine)
    stream = npu.stream()
    machine.faults.lose_device(0, at_task=3)
    a, b = npu.upload(np.ones(4)), npu.upload(np.zeros(4))
    for _ in range(2):
        npu.ok(npu.rt.memcpy_async(b, 32, a, 32, 3, stream))
        npu.ok(npu.rt.synchronize_stream(stream))
    npu.ok(npu.rt.memcpy_async(b, 32, a, 32, 3, stream))
    assert npu.rt.synchronize_stream_with_timeout(stream, 5000) == 507010


def test_what_is_freed_the_moment_a_device_is_lost_is_not_in_use_any_more() -> None:
    machine = Emulator(Config(devices=1, strict=True))
    machine.acl.init()
    npu = Driver(machine)
    stream, (pinned, _) = npu.stream(), npu.pinned(np.ones(64))
    target = npu.device(512)
    machine.faults.hang("copy")
    npu.ok(npu.rt.memcpy_async(target, 512, pinned, 512, 1, stream))
    engine: Any = machine._process.devices[0].engine  # type: ignore[union-attr]
    wake = engine.wake_hosts
    freed = []

    def free() -> None:
        npu.rt.set_context(npu.context)
        freed.append((npu.rt.free(target), npu.rt.free_host(pinned)))

    def wake_and_free(code: int) -> None:  # as another thread may that is told of the loss, before the next line here
        wake(code)
        thread = threading.Thread(target=free)
        thread.start()
        thread.join(5)

    engine.wake_hosts = wake_and_free
    machine.faults.lose_device(0)
    assert freed == [(0, 0)]
    assert [str(violation) for violation in machine.report().violations] == []
    machine.shutdown()


def test_what_was_queued_the_moment_before_a_device_was_lost_is_freed_without_a_race(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Emulator(Config(devices=1, strict=True))
    machine.acl.init()
    npu = Driver(machine)
    stream, target = npu.stream(), npu.device(64)
    results: list[int] = []

    def elsewhere(call: Callable[..., int], *args: int) -> None:
        def run() -> None:
            npu.rt.set_context(npu.context)
            results.append(call(*args))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(5)

    races: Any = machine._process.races
    engine: Any = machine._process.devices[0].engine  # type: ignore[union-attr]
    settled, stop = races.settled, engine.stop

    def settle_and_queue(streams: Any) -> None:
        settled(streams)
        if not results:
            elsewhere(npu.rt.memset_async, target, 64, 1, 64, stream)

    def free_and_stop(*code: int) -> None:
        if len(results) == 1:
            elsewhere(npu.rt.free, target)
        stop(*code)

    monkeypatch.setattr(races, "settled", settle_and_queue)
    monkeypatch.setattr(engine, "stop", free_and_stop)
    machine.faults.lose_device(0)
    assert results == [0, 0]
    assert [str(violation) for violation in machine.report().violations] == []
    machine.shutdown()


@pytest.mark.parametrize("call", ["set_device", "lose_device"])
def test_a_reset_does_not_wait_for_a_function_that_waits_for_it(call: str) -> None:
    machine = Emulator(Config(devices=1))
    machine.acl.init()
    npu = Driver(machine)
    stream, a, b = npu.stream(), npu.upload(np.ones(4)), npu.upload(np.zeros(4))
    told, reset, over = threading.Event(), threading.Event(), threading.Event()

    def failed(_: int) -> None:
        told.set()
        reset.wait(5)
        if call == "set_device":
            npu.rt.set_device(0)
        else:
            machine.faults.lose_device(0)
        over.set()

    npu.ok(npu.rt.set_exception_info_callback(failed))
    machine.faults.fail_task("copy", 507013)
    npu.ok(npu.rt.memcpy_async(b, 32, a, 32, 3, stream))
    assert told.wait(5)
    machine.faults.lose_device(0)
    npu.rt.destroy_stream_force(stream)
    timer = threading.Timer(0.1, reset.set)  # when the device is being closed
    timer.start()
    before = time.monotonic()
    npu.rt.destroy_context(npu.context)
    npu.rt.reset_device(0)
    assert over.wait(10)
    assert time.monotonic() - before < 10  # the threads of a device are waited for for 30 s
    timer.join()
    machine.shutdown()


@pytest.mark.parametrize("nbytes", [512, 1 << 20])
def test_the_task_that_a_device_is_lost_at_needs_its_memory_no_more(nbytes: int) -> None:
    machine = Emulator(Config(devices=1, strict=True))
    machine.acl.init()
    for _ in range(10):
        npu = Driver(machine)
        stream, (pinned, _) = npu.stream(), npu.pinned(np.ones(nbytes, np.uint8))
        target = npu.device(nbytes)
        machine.faults.lose_device(0, at_task=1)
        npu.ok(npu.rt.memcpy_async(target, nbytes, pinned, nbytes, 1, stream))
        assert npu.rt.synchronize_stream_with_timeout(stream, 5000) == 507010
        npu.rt.free(target)
        npu.rt.destroy_stream(stream)
        npu.rt.destroy_context(npu.context)
        npu.ok(npu.rt.reset_device(0))
        npu.ok(npu.rt.free_host(pinned))
    assert [str(violation) for violation in machine.report().violations] == []
    machine.shutdown()


def test_a_call_that_is_under_way_when_its_device_is_lost_queues_nothing(machine: Emulator) -> None:
    npu = Driver(machine)
    stream, a, b = npu.stream(), npu.upload(np.ones(4)), npu.upload(np.zeros(4))
    process: Any = machine._process
    queued = process.streams[stream]
    engine = process.engine_of(queued)

    class Lost:
        """The engine's lock, when it was waited for while the device was lost."""

        def __init__(self, lock: Any) -> None:
            self._lock = lock

        def __enter__(self) -> None:
            engine.lock = self._lock
            machine.faults.lose_device(0)
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    engine.lock = Lost(engine.lock)
    assert npu.rt.memcpy_async(b, 32, a, 32, 3, stream) == 507010
    assert not queued.queue


def test_faults_from_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "acl.rt.malloc#2=207001; acl.rt.create_stream#2+=207008, task.execute#1=507015;hang.copy;late.callback=0.01"
    monkeypatch.setenv("AIOASCEND_EMULATOR_FAULTS", text)
    emulator = Emulator(Config(memory=1 << 20))
    emulator.acl.init()
    npu = Driver(emulator)
    assert [npu.rt.malloc(64, 0)[1] for _ in range(3)] == [0, 207001, 0]
    assert [npu.rt.create_stream()[1] for _ in range(3)] == [0, 207008, 207008]
    emulator.shutdown()


@pytest.mark.parametrize("text", ["acl.rt.malloc", "acl.rt.malloc#x=1", "late.callback", "task.walk=1", "!!", "nope=1"])
def test_a_fault_that_cannot_be_read_is_refused(machine: Emulator, text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        machine.faults.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "acl.rt.malloc#0=1",
        "acl.rt.malloc=0",
        "task.execute=0",
        "task.execute#0",
        "hang.copy=5",
        "late.callback=0",
        "late.callback=1.2.3",
        "lost.7",
        "lost.0=0",
        "acl.rt.malloc=1.5",
    ],
)
def test_a_fault_that_can_never_strike_is_refused(machine: Emulator, text: str) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        machine.faults.parse(text)


def test_a_fault_of_a_device_that_is_not_there_is_refused(machine: Emulator) -> None:
    for ask in (machine.faults.hang, machine.faults.fail_task):
        with pytest.raises(ValueError, match="no device 2, only 2"):
            ask("copy", device=2)
    with pytest.raises(ValueError, match="no device 2, only 2"):
        machine.faults.lose_device(2)
    with pytest.raises(ValueError, match="0 times"):
        machine.faults.hang(times=0)


def test_a_wrong_fault_of_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_EMULATOR_FAULTS", "acl.rt.mallo=1")
    with pytest.raises(ValueError, match=r"AIOASCEND_EMULATOR_FAULTS: .*acl\.rt\.mallo"):
        Emulator()


def test_a_fatal_failure_leaves_the_context_dead_and_no_other(machine: Emulator) -> None:
    machine = Emulator(Config(devices=1, fatal_faults=True))
    machine.acl.init()
    npu, other = Driver(machine), Driver(machine)
    assert npu.rt.set_context(npu.context) == 0
    stream, second = npu.stream(), npu.stream()
    a, b = npu.upload(np.ones(4)), npu.upload(np.zeros(4))
    machine.faults.fail_task("copy", 507015)
    npu.ok(npu.rt.memcpy_async(b, 32, a, 32, 3, stream))
    for _ in range(2):  # not once, as for other failures
        assert npu.rt.synchronize_stream(stream) == 507015
    assert npu.rt.synchronize_stream(second) == 507015
    assert npu.rt.memcpy_async(b, 32, a, 32, 3, second) == 507015
    assert npu.rt.destroy_stream(stream) == 0
    assert npu.rt.destroy_stream(second) == 0
    npu.ok(npu.rt.free(a))
    npu.ok(npu.rt.free(b))
    npu.ok(npu.rt.destroy_context(npu.context))
    npu.ok(npu.rt.set_context(other.context))
    stream = other.stream()
    machine.faults.fail_task("copy", 507011)
    a = other.upload(np.ones(4))
    other.ok(other.rt.memcpy_async(a, 32, a, 32, 3, stream))
    assert other.rt.synchronize_stream(stream) == 507011
    assert other.rt.synchronize_stream(stream) == 0
    machine.shutdown()


def test_a_device_that_was_lost_for_good_can_be_given_back(machine: Emulator) -> None:
    npu = lost(machine, recoverable=False)
    assert npu.rt.destroy_context(npu.context) == 507010
    assert npu.rt.set_device(0) == 507010
    machine.faults.return_device(0)
    npu.ok(npu.rt.set_device(0))
    npu.ok(npu.rt.reset_device(0))
    with pytest.raises(ValueError, match="no device 7"):
        machine.faults.return_device(7)
