"""What the emulator itself costs: microseconds per call, per task that does nothing, per round trip, and many streams.

Every figure is the best of several rounds, in microseconds, so that what else the machine does counts as little as
possible. A task's time is that of a long queue behind a held stream, from its release to its end, by its length.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parents[2]))

from aioascend.emulator import Config, Emulator

STREAMS = 2000
SHAPE = (3, 4)
NBYTES = 4 * int(np.prod(SHAPE))
H2D, D2H = 1, 2
SYNC = 1


def doubler() -> bytes:
    """y = x + x of a dozen numbers: nearly all of a run's time is overhead."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doubler", tensors[:1], tensors[1:])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def ok(result: Any) -> Any:
    """The value before a status of 0."""
    *values, code = result if isinstance(result, tuple) else (result,)
    if code:
        raise SystemExit(f"a call gave {code}")
    return values[0] if values else None


class Bench:
    """An open device with a model, three streams, and the buffers of one request."""

    def __init__(self, rounds: int, **settings: Any) -> None:
        self.rounds = rounds
        self.emulator = Emulator(Config(streams=STREAMS + 100, stream_depth=1 << 20, **settings))
        self.acl = acl = self.emulator.acl
        self.rt, self.mdl = acl.rt, acl.mdl
        ok(acl.init())
        self.context = ok(self.rt.create_context(0))
        content = doubler()
        self.model = ok(self.mdl.load_from_mem(acl.util.bytes_to_ptr(content), len(content)))
        self.host_in, self.host_out = (ok(self.rt.malloc_host(NBYTES)) for _ in range(2))
        self.device_in, self.device_out = (ok(self.rt.malloc(NBYTES, 0)) for _ in range(2))
        self.buffers = [acl.create_data_buffer(place, NBYTES) for place in (self.device_in, self.device_out)]
        self.given, self.taken = (
            ok(self.mdl.add_dataset_buffer(self.mdl.create_dataset(), buffer)) for buffer in self.buffers
        )
        self.inward, self.core, self.outward = (ok(self.rt.create_stream()) for _ in range(3))
        self.copied, self.computed = (ok(self.rt.create_event_ex_with_flag(SYNC)) for _ in range(2))
        ok(self.rt.subscribe_report(threading.get_ident(), self.outward))

    def best(
        self,
        action: Callable[[], Any],
        count: int,
        after: Callable[[], Any] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> float:
        """Microseconds of one `action`."""
        found = float("inf")
        for _ in range(self.rounds):
            start = clock()
            for _ in range(count):
                action()
            found = min(found, (clock() - start) / count * 1e6)
            after()
        return found

    def calls(self) -> dict[str, float]:
        """Calls that queue nothing."""
        acl, rt = self.acl, self.rt
        actions: dict[str, Callable[[], Any]] = {
            "a Python function that does nothing": lambda: None,
            "acl.update_data_buffer": lambda: acl.update_data_buffer(self.buffers[0], self.device_in, NBYTES),
            "acl.get_recent_err_msg": acl.get_recent_err_msg,
            "acl.rt.set_context": lambda: rt.set_context(self.context),
            "acl.rt.stream_query": lambda: rt.stream_query(self.inward),
            "acl.rt.query_event_status": lambda: rt.query_event_status(self.copied),
            "acl.rt.synchronize_stream, idle": lambda: rt.synchronize_stream(self.inward),
            "acl.rt.memcpy, 48 bytes": lambda: rt.memcpy(self.device_in, NBYTES, self.host_in, NBYTES, H2D),
            "acl.rt.malloc and free, 4 KiB": lambda: rt.free(rt.malloc(4096, 0)[0]),
        }
        return {name: self.best(action, 2000) for name, action in actions.items()}

    def tasks(self) -> dict[str, tuple[float, float]]:
        """Tasks: to submit one, and to run one."""
        rt = self.rt
        return {
            "record_event": self._queued(self.inward, lambda: rt.record_event(self.copied, self.inward)),
            "stream_wait_event": self._queued(self.inward, lambda: rt.stream_wait_event(self.inward, self.copied)),
            "memcpy_async, 48 bytes": self._queued(self.inward, lambda: self._copy_in(self.inward)),
            "launch_callback": self._queued(self.outward, lambda: rt.launch_callback(id, 0, 0, self.outward)),
            "execute_async, 12 numbers": self._queued(self.core, lambda: self._execute(self.core)),
        }

    def _queued(self, stream: int, submit: Callable[[], Any], count: int = 1000) -> tuple[float, float]:
        rt = self.rt
        gate, opener = ok(rt.create_event_with_flag(SYNC)), ok(rt.create_stream())
        submitting = running = float("inf")
        for _ in range(self.rounds):
            ok(rt.stream_wait_event(stream, gate))
            time.sleep(0.005)
            start = time.perf_counter()
            for _ in range(count):
                submit()
            submitting = min(submitting, (time.perf_counter() - start) / count * 1e6)
            start = time.perf_counter()
            ok(rt.record_event(gate, opener))
            ok(rt.synchronize_stream(stream))
            running = min(running, (time.perf_counter() - start) / count * 1e6)
            ok(rt.reset_event(gate, stream))
            ok(rt.synchronize_stream(stream))
            self._drain()
        ok(rt.destroy_event(gate))
        ok(rt.destroy_stream(opener))
        return submitting, running

    def trips(self) -> dict[str, float]:
        """Requests: copy in, run and copy out on three streams, with events between them."""
        rt = self.rt

        def synchronised() -> None:
            self._request()
            ok(rt.synchronize_stream(self.outward))

        def called_back() -> None:
            self._request()
            ok(rt.launch_callback(id, 0, 0, self.outward))
            ok(rt.process_report(5000))

        def drained() -> None:
            ok(rt.synchronize_stream(self.outward))

        return {
            "one at a time, synchronize_stream": self.best(synchronised, 300),
            "one at a time, callback": self.best(called_back, 300),
            "one after the other, submission alone": self.best(self._request, 300, drained),
        }

    def through(self, count: int = 500) -> dict[str, float]:
        """Tasks of each kind, from submission until the host has waited for all: CPU time of the process by task."""
        rt = self.rt
        frame = 3 * 1080 * 1920
        picture, target = ok(rt.malloc_host(frame)), ok(rt.malloc(frame, 0))
        found = {}
        for name, number, submit in (
            ("record_event", count, lambda: rt.record_event(self.copied, self.inward)),
            ("stream_wait_event", count, lambda: rt.stream_wait_event(self.inward, self.copied)),
            ("memcpy_async, 48 bytes", count, lambda: self._copy_in(self.inward)),
            ("memcpy_async, 6 MB", 10, lambda: rt.memcpy_async(target, frame, picture, frame, H2D, self.inward)),
            ("execute_async, 12 numbers", count, lambda: self._execute(self.inward)),
        ):

            def many(submit: Callable[[], Any] = submit, number: int = number) -> None:
                for _ in range(number):
                    ok(submit())
                ok(rt.synchronize_stream(self.inward))

            found[name] = self.best(many, 1, clock=time.process_time) / number

        def request() -> None:
            self._request()
            ok(rt.synchronize_stream(self.outward))

        found["a request on three streams"] = self.best(request, 300, clock=time.process_time)
        return found

    def streams(self) -> dict[str, float]:
        """Many streams: made, given a copy and a record each, waited for; and the threads that it takes."""
        rt = self.rt
        before = len(self.emulator.threads)
        start = time.perf_counter()
        made = [ok(rt.create_stream()) for _ in range(STREAMS)]
        between = time.perf_counter()
        for stream in made:
            self._copy_in(stream)
            rt.record_event(self.copied, stream)
        most = len(self.emulator.threads)
        for stream in made:
            ok(rt.synchronize_stream(stream))
        end = time.perf_counter()
        for stream in made:
            ok(rt.destroy_stream(stream))
        return {
            "streams": STREAMS,
            "made, milliseconds": (between - start) * 1e3,
            "used, milliseconds": (end - between) * 1e3,
            "threads before": before,
            "threads with all of them in use": most,
        }

    def _copy_in(self, stream: int) -> None:
        self.rt.memcpy_async(self.device_in, NBYTES, self.host_in, NBYTES, H2D, stream)

    def _execute(self, stream: int) -> None:
        self.mdl.execute_async(self.model, self.given, self.taken, stream)

    def _request(self) -> None:
        rt = self.rt
        self._copy_in(self.inward)
        rt.record_event(self.copied, self.inward)
        rt.stream_wait_event(self.core, self.copied)
        self._execute(self.core)
        rt.record_event(self.computed, self.core)
        rt.stream_wait_event(self.outward, self.computed)
        rt.memcpy_async(self.host_out, NBYTES, self.device_out, NBYTES, D2H, self.outward)

    def _drain(self) -> None:
        while self.rt.process_report(1) == 0:
            pass


def strictness(rounds: int) -> dict[str, tuple[float, float, float]]:
    """Tasks in an emulator of the usual kind, in a strict one that does not look for races, and in one that does."""
    columns = []
    for settings in ({}, {"strict": True, "races": False}, {"strict": True}):
        bench = Bench(rounds, **settings)
        columns.append(bench.through())
        found = [str(violation) for violation in bench.emulator.report().violations]
        bench.emulator.shutdown()
        if found:
            raise SystemExit(f"the benchmark breaks rules: {found[0]}")
    return {name: (columns[0][name], columns[1][name], columns[2][name]) for name in columns[0]}


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results for people."""
    lines = []
    for title, rows in results.items():
        lines.append(title)
        for name, value in rows.items():
            values = value if isinstance(value, (list, tuple)) else (value,)
            numbers = "".join(f"{number:10.2f}" if isinstance(number, float) else f"{number:10d}" for number in values)
            lines.append(f"  {name:40}{numbers}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds the best is taken of (default 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    bench = Bench(options.rounds)
    results: dict[str, dict[str, Any]] = {
        "calls (µs)": bench.calls(),
        "tasks (µs to submit, µs to run)": bench.tasks(),
        "round trips (µs)": bench.trips(),
        "many streams": bench.streams(),
    }
    bench.emulator.shutdown()
    results["tasks (µs of CPU), strict without races, strict"] = strictness(options.rounds)
    print(json.dumps(results, indent=2, ensure_ascii=False) if options.json else table(results))


if __name__ == "__main__":
    main()
