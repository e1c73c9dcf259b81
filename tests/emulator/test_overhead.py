"""The emulator itself costs little, and leaves the interpreter to others while it works.

Bounds are far above what is measured on a quiet machine (calls 0.4 to 5 µs, a pipeline round trip 50 µs): they catch
a wrong order of magnitude, not a slow machine.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from .kit import Driver, doubler, node, tensor


def microseconds(action: Callable[[], Any], count: int = 300) -> float:
    """The best of five measurements."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            action()
        best = min(best, (time.perf_counter() - start) / count * 1e6)
    return best


def test_a_call_takes_microseconds(npu: Driver) -> None:
    stream, event = npu.stream(), npu.ok(npu.rt.create_event_ex_with_flag(1))
    a, b = npu.upload(np.ones(4)), npu.upload(np.ones(4))
    loaded = npu.load(doubler())
    dataset = npu.dataset((npu.device(24), 24))
    release = npu.hold(stream)
    calls = {
        "stream_query": lambda: npu.rt.stream_query(stream),
        "query_event_status": lambda: npu.rt.query_event_status(event),
        "memcpy_async": lambda: npu.rt.memcpy_async(b, 32, a, 32, 3, stream),
        "record_event": lambda: npu.rt.record_event(event, stream),
        "stream_wait_event": lambda: npu.rt.stream_wait_event(stream, event),
        "execute_async": lambda: npu.mdl.execute_async(loaded, dataset, dataset, stream),
    }
    # all of them together fit into a stream
    measured = {name: microseconds(call, 100) for name, call in calls.items()}
    release()
    npu.ok(npu.rt.synchronize_stream(stream))
    assert {name: us for name, us in measured.items() if us > 100} == {}


def test_a_task_takes_microseconds(npu: Driver) -> None:
    stream, event = npu.stream(), npu.ok(npu.rt.create_event_ex_with_flag(1))

    def run() -> None:
        for _ in range(1000):
            npu.rt.record_event(event, stream)
        npu.ok(npu.rt.synchronize_stream(stream))

    assert microseconds(run, 1) / 1000 < 100


def test_a_round_trip_through_three_streams_takes_less_than_a_few_milliseconds(npu: Driver) -> None:
    loaded = npu.load(doubler((4,)))
    streams = [npu.stream() for _ in range(3)]
    events = [npu.ok(npu.rt.create_event_ex_with_flag(1)) for _ in range(2)]
    (source, _), (back, _) = npu.pinned(np.ones(4, np.float32)), npu.pinned(np.ones(4, np.float32))
    din, dout = npu.device(16), npu.device(16)
    inputs, outputs = npu.dataset((din, 16)), npu.dataset((dout, 16))
    npu.ok(npu.rt.subscribe_report(threading.get_ident(), streams[2]))

    def trip() -> None:
        npu.rt.memcpy_async(din, 16, source, 16, 1, streams[0])
        npu.rt.record_event(events[0], streams[0])
        npu.rt.stream_wait_event(streams[1], events[0])
        npu.mdl.execute_async(loaded, inputs, outputs, streams[1])
        npu.rt.record_event(events[1], streams[1])
        npu.rt.stream_wait_event(streams[2], events[1])
        npu.rt.memcpy_async(back, 16, dout, 16, 2, streams[2])
        npu.rt.launch_callback(id, 0, 0, streams[2])
        npu.ok(npu.rt.process_report(5000))

    assert microseconds(trip, 100) < 5000


class Ticker:
    """A thread that wants to run every two milliseconds and notes how long it had to wait."""

    def __init__(self) -> None:
        self._gaps: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        last = time.perf_counter()
        while not self._end.is_set():
            time.sleep(0.002)
            now = time.perf_counter()
            self._gaps.append(now - last)
            last = now

    def during(self, action: Callable[[], Any]) -> tuple[Any, float]:
        """The action's result and the largest gap while it ran, in milliseconds."""
        self._gaps.clear()
        result = action()
        time.sleep(0.01)
        return result, max(self._gaps) * 1e3

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture
def big_model(tmp_path: Path) -> Path:
    """64 MiB of weights."""
    weight = np.ones((4096, 4096), np.float32)
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"])],
        "big",
        [tensor("x", ("N", 4096))],
        [tensor("y", ("N", 4096))],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "big.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _onnxruntime_version() -> tuple[int, ...]:
    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


@pytest.mark.skipif(_onnxruntime_version() < (1, 31), reason="older onnxruntime holds the GIL while it makes a session")
@pytest.mark.slow
def test_other_threads_run_while_a_big_model_is_compiled_loaded_and_unloaded(npu: Driver, big_model: Path) -> None:
    worst: dict[str, list[float]] = {}
    content = big_model.read_bytes()
    with Ticker() as ticker:
        for _ in range(3):
            for name, given in (("path", str(big_model)), ("bytes", content)):
                compiled, gap = ticker.during(lambda given=given: npu.emulator.compile(given, shapes={"x": (1, 4096)}))
                worst.setdefault(f"compile {name}", []).append(gap)
                address = npu.acl.util.bytes_to_ptr(compiled)
                load = lambda a=address, c=compiled: npu.mdl.load_from_mem(a, len(c))  # noqa: E731
                (loaded, code), gap = ticker.during(load)
                assert code == 0
                worst.setdefault(f"load {name}", []).append(gap)
                code, gap = ticker.during(lambda loaded=loaded: npu.mdl.unload(loaded))
                assert code == 0
                worst.setdefault(f"unload {name}", []).append(gap)
                del compiled
    medians = {name: statistics.median(gaps) for name, gaps in worst.items()}
    assert {name: gap for name, gap in medians.items() if gap > 50} == {}


@pytest.mark.slow
def test_other_threads_run_while_much_memory_is_copied(npu: Driver) -> None:
    size = 100 << 20
    source, target = npu.ok(npu.rt.malloc_host(size)), npu.device(size)
    with Ticker() as ticker:
        gaps = [ticker.during(lambda: npu.ok(npu.rt.memcpy(target, size, source, size, 1)))[1] for _ in range(3)]
    assert statistics.median(gaps) < 50
