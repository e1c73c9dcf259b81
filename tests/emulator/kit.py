"""Small models and shorthand for driving the emulated `acl`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aioascend.emulator import Emulator

Shape = Sequence[int | str | None]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def tensor(name: str, shape: Shape | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> bytes:
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "kit", inputs, outputs, initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return proto.SerializeToString()


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, **attributes)


def doubler(shape: Shape = (2, 3)) -> bytes:
    """y = x + x."""
    return model([node("Add", ["x", "x"], ["y"])], [tensor("x", shape)], [tensor("y", shape)])


def identity(kind: int, shape: Shape = (2, 3)) -> bytes:
    return model([node("Identity", ["x"], ["y"])], [tensor("x", shape, kind)], [tensor("y", shape, kind)])


def gather() -> bytes:
    """y = [10, 20, 30, 40][i]: index 9 fails at run time."""
    table = np.array([10, 20, 30, 40], np.float32)
    return model(
        [node("Gather", ["table", "i"], ["y"])], [tensor("i", (1,), INT64)], [tensor("y", (1,))], {"table": table}
    )


def slow(layers: int, size: int = 500) -> bytes:
    """A chain of square products: about a millisecond or two a layer."""
    weight = np.eye(size, dtype=np.float32)
    names = ["x"] + [f"t{i}" for i in range(layers - 1)] + ["y"]
    nodes = [node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(layers)]
    return model(nodes, [tensor("x", (size, size))], [tensor("y", (size, size))], {"w": weight})


def nonzero() -> bytes:
    """An output whose shape depends on the values."""
    return model([node("NonZero", ["x"], ["y"])], [tensor("x", (4,))], [tensor("y", (1, None), INT64)])


class Driver:
    """A context of one device with buffers and models: every call is checked for a status of 0."""

    def __init__(self, emulator: Emulator, device: int = 0) -> None:
        self.emulator = emulator
        self.acl: Any = emulator.acl
        self.rt: Any = self.acl.rt
        self.mdl: Any = self.acl.mdl
        self.keep: list[Any] = []
        self.context = self.ok(self.rt.create_context(device))

    def ok(self, result: Any) -> Any:
        """The value before a status of 0."""
        *values, code = result if isinstance(result, tuple) else (result,)
        assert code == 0, f"{code}: {self.acl.get_recent_err_msg()}"
        return values[0] if len(values) == 1 else tuple(values)

    def stream(self) -> int:
        stream: int = self.ok(self.rt.create_stream())
        return stream

    def pinned(self, like: np.ndarray) -> tuple[int, np.ndarray]:
        """Pinned memory with the content of an array: address and view."""
        address = self.ok(self.rt.malloc_host(max(like.nbytes, 1)))
        buffer = (ctypes.c_char * max(like.nbytes, 1)).from_address(address)
        view = np.frombuffer(buffer, like.dtype, like.size).reshape(like.shape)
        view[...] = like
        return address, view

    def device(self, size: int) -> int:
        address: int = self.ok(self.rt.malloc(max(size, 1), 0))
        return address

    def load(self, content: bytes, **fixed: Any) -> int:
        if fixed:
            content = self.emulator.compile(content, **fixed)
        model: int = self.ok(self.mdl.load_from_mem(self.acl.util.bytes_to_ptr(content), len(content)))
        return model

    def dataset(self, *buffers: tuple[int, int]) -> int:
        dataset: int = self.mdl.create_dataset()
        for address, size in buffers:
            assert self.ok(self.mdl.add_dataset_buffer(dataset, self.acl.create_data_buffer(address, size))) == dataset
        return dataset

    def upload(self, array: np.ndarray) -> int:
        """Device memory with the content of an array."""
        address = self.device(array.nbytes)
        if array.nbytes:
            source = np.ascontiguousarray(array)
            self.ok(self.rt.memcpy(address, array.nbytes, source.ctypes.data, array.nbytes, 1))
        return address

    def download(self, address: int, like: np.ndarray) -> np.ndarray:
        result = np.zeros_like(like)
        if result.nbytes:
            self.ok(self.rt.memcpy(result.ctypes.data, result.nbytes, address, result.nbytes, 2))
        return result

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> tuple[int, int, list[int]]:
        """Datasets for these arrays: inputs uploaded, room for the outputs; and the outputs' addresses."""
        places = [(self.upload(array), array.nbytes) for array in inputs]
        results = [(self.device(array.nbytes), array.nbytes) for array in outputs]
        return self.dataset(*places), self.dataset(*results), [address for address, _ in results]

    def run(self, model: int, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Execute and fetch."""
        given, taken, addresses = self.bind(inputs, outputs)
        self.ok(self.mdl.execute(model, given, taken))
        return [self.download(address, like) for address, like in zip(addresses, outputs, strict=True)]

    def hold(self, stream: int) -> Callable[[], None]:
        """Keep a stream waiting; the function returned lets it go."""
        event = self.ok(self.rt.create_event_with_flag(1))
        self.ok(self.rt.stream_wait_event(stream, event))
        other = self.stream()

        def release() -> None:
            self.ok(self.rt.record_event(event, other))

        return release


class ReportThread:
    """A thread that runs callbacks until told to end."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._end = threading.Event()
        self._begin = threading.Event()
        self.codes: list[int] = []
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._thread.ident is not None
        self.ident: int = self._thread.ident

    def start(self) -> None:
        """Begin to ask for reports (after something was subscribed)."""
        self._begin.set()

    def _run(self) -> None:
        rt = self._driver.rt
        rt.set_context(self._driver.context)
        self._begin.wait()
        while not self._end.is_set():
            try:
                code = rt.process_report(20)
            except SystemError as error:
                self.errors.append(error)
                continue
            self.codes.append(code)
            if code == 107012:
                return

    def close(self) -> None:
        self._end.set()
        self._begin.set()
        self._thread.join(5)
        assert not self._thread.is_alive()
