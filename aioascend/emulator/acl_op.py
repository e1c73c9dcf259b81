"""``acl.op``: single operators on the device, computed with numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy

from . import codes
from .acl_tensor import TensorCalls, TensorDesc
from .acl_top import TopCalls
from .args import Failure, call
from .device_model import Work
from .memory import Block
from .process import Process
from .streams import Fault
from .tensors import BY_ACL

Array = Any
Operator = Callable[[list[Array], dict[str, Any]], Array]


def _matmul(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    first, second = inputs
    if attributes.get("adj_x1"):
        first = numpy.swapaxes(first, -1, -2)
    if attributes.get("adj_x2"):
        second = numpy.swapaxes(second, -1, -2)
    return numpy.matmul(first, second)


def _slice(inputs: list[Array], _: dict[str, Any]) -> Array:
    data, offsets, sizes = inputs
    parts = zip(offsets.reshape(-1), sizes.reshape(-1), data.shape, strict=True)
    return data[tuple(slice(int(at), int(at + size) if size >= 0 else end) for at, size, end in parts)]


OPERATORS: dict[str, Operator] = {
    "Add": lambda inputs, _: inputs[0] + inputs[1],
    "Sub": lambda inputs, _: inputs[0] - inputs[1],
    "Mul": lambda inputs, _: inputs[0] * inputs[1],
    "ArgMaxV2": lambda inputs, _: numpy.argmax(inputs[0], axis=int(inputs[1].reshape(-1)[0])),
    "BatchMatMul": _matmul,
    "Cast": lambda inputs, _: inputs[0],
    "Slice": _slice,
}


class Operation(Work):
    """One run of an operator."""

    call = "acl.op.execute"

    __slots__ = ("attributes", "blocks", "descriptors", "name", "operator", "places")

    def __init__(
        self,
        name: str,
        descriptors: tuple[list[TensorDesc], list[TensorDesc]],
        places: tuple[list[int], list[int]],
        blocks: list[Block],
        attributes: dict[str, Any],
    ) -> None:
        super().__init__()
        self.name = name
        self.operator = OPERATORS[name]
        self.descriptors = descriptors
        self.places = places
        self.blocks = blocks
        self.attributes = attributes

    def run(self) -> Fault | None:
        """Compute with numpy on the device's memory."""
        if not all(block.alive for block in self.blocks):
            text = f"memory of the operator {self.name} was freed before it ran"
            return Fault(codes.AICORE_EXCEPTION, text, "use-after-free")
        inputs, (output,) = self.descriptors
        arrays = [_array(one, address) for one, address in zip(inputs, self.places[0], strict=True)]
        try:
            result = _array(output, self.places[1][0])
            result[...] = numpy.asarray(self.operator(arrays, self.attributes)).reshape(result.shape)
        except (ValueError, TypeError, IndexError) as error:
            return Fault(codes.AICORE_EXCEPTION, f"the operator {self.name} failed: {error}")
        return None


def _array(descriptor: TensorDesc, address: int) -> Array:
    dtype = numpy.dtype(BY_ACL[descriptor.dtype].numpy)
    if descriptor.const is not None:
        return numpy.frombuffer(descriptor.const, dtype, descriptor.count).reshape(descriptor.dims)
    if descriptor.nbytes == 0:
        return numpy.empty(descriptor.dims, dtype)
    buffer = memoryview((ctypes.c_char * descriptor.nbytes).from_address(address))
    return numpy.frombuffer(buffer, dtype).reshape(descriptor.dims)


class OpCalls:
    """Operator functions."""

    def __init__(self, process: Process, top: TopCalls, tensors: TensorCalls) -> None:
        self._process = process
        self._top = top
        self._tensors = tensors
        self._attributes: dict[int, dict[str, Any]] = {}
        self._handles: dict[int, tuple[str, list[TensorDesc], list[TensorDesc], dict[str, Any]]] = {}

    @call("s")
    def set_model_dir(self, path: str) -> int:
        """Where compiled operators are; the emulator needs none, so that any path will do."""
        return codes.SUCCESS

    @call(bare=0)
    def create_attr(self) -> int:
        """An empty set of attributes."""
        handle = self._process.new_handle()
        self._attributes[handle] = {}
        return handle

    @call("k", bare=None)
    def destroy_attr(self, attributes: int) -> None:
        """Forget attributes."""
        self._attributes.pop(attributes, None)

    def _set(self, handle: int, name: str, value: Any) -> int:
        found = self._attributes.get(handle)
        if found is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a set of attributes")
        found[name] = value
        return codes.SUCCESS

    @call("ksi")
    def set_attr_bool(self, attributes: int, name: str, value: int) -> int:
        """Set a truth value."""
        return self._set(attributes, name, bool(value))

    @call("ksk")
    def set_attr_int(self, attributes: int, name: str, value: int) -> int:
        """Set a 64-bit integer."""
        return self._set(attributes, name, value - (1 << 64) if value >> 63 else value)

    @call("ksf")
    def set_attr_float(self, attributes: int, name: str, value: float) -> int:
        """Set a real number."""
        return self._set(attributes, name, value)

    @call("kss")
    def set_attr_string(self, attributes: int, name: str, value: str) -> int:
        """Set a text."""
        return self._set(attributes, name, value)

    @call("sOOOOkk")
    def execute(
        self, name: str, inputs: Any, buffers: Any, outputs: Any, results: Any, attributes: int, stream: int
    ) -> int:
        """The older form of `execute_v2`."""
        return self.execute_v2(name, inputs, buffers, outputs, results, attributes, stream)

    @call("sOOOOkk")
    def execute_v2(
        self, name: str, inputs: Any, buffers: Any, outputs: Any, results: Any, attributes: int, stream: int
    ) -> int:
        """Run an operator on a stream."""
        found = self._attributes.get(attributes, {})
        return self._submit(name, self._described(inputs), buffers, self._described(outputs), results, found, stream)

    @call("kkkkIk")
    def cast(self, source: int, buffer: int, target: int, result: int, truncate: int, stream: int) -> int:
        """Convert a tensor's elements."""
        return self._submit(
            "Cast", self._described([source]), [buffer], self._described([target]), [result], {}, stream
        )

    @call("sOOk", failed=(0,))
    def create_handle(self, name: str, inputs: Any, outputs: Any, attributes: int) -> tuple[int, int]:
        """An operator ready to run many times."""
        self._known(name)
        handle = self._process.new_handle()
        found = dict(self._attributes.get(attributes, {}))
        self._handles[handle] = (name, self._described(inputs), self._described(outputs), found)
        return handle, codes.SUCCESS

    @call("k", bare=None)
    def destroy_handle(self, handle: int) -> None:
        """Forget an operator."""
        self._handles.pop(handle, None)

    @call("kOOk")
    def execute_with_handle(self, handle: int, buffers: Any, results: Any, stream: int) -> int:
        """Run an operator made by `create_handle`."""
        found = self._handles.get(handle)
        if found is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not an operator")
        name, inputs, outputs, attributes = found
        return self._submit(name, inputs, buffers, outputs, results, attributes, stream)

    def _known(self, name: str) -> None:
        if name not in OPERATORS:
            raise Failure(codes.OP_NOT_FOUND, f"the emulator has no operator {name!r}, only {', '.join(OPERATORS)}")

    def _described(self, handles: Any) -> list[TensorDesc]:
        return [self._tensors.descriptor(handle).copy() for handle in handles]

    def _submit(
        self,
        name: str,
        inputs: list[TensorDesc],
        buffers: Any,
        outputs: list[TensorDesc],
        results: Any,
        attributes: dict[str, Any],
        stream: int,
    ) -> int:
        self._known(name)
        process = self._process
        target = process.stream(stream)
        blocks: list[Block] = []
        places: tuple[list[int], list[int]] = ([], [])
        touched: list[tuple[Block, int, int, bool]] = []
        for descriptors, handles, addresses, code in (
            (inputs, buffers, places[0], codes.OP_INPUT_NOT_MATCH),
            (outputs, results, places[1], codes.OP_OUTPUT_NOT_MATCH),
        ):
            if len(descriptors) != len(handles):
                raise Failure(code, f"{name}: {len(descriptors)} descriptors and {len(handles)} data buffers")
            for descriptor, handle in zip(descriptors, handles, strict=True):
                place = self._place(name, descriptor, handle, blocks, code)
                addresses.append(place)
                if place:
                    start = place - blocks[-1].delta
                    touched.append((blocks[-1], start, start + descriptor.nbytes, addresses is places[1]))
        if len(outputs) != 1:
            raise Failure(codes.OP_OUTPUT_NOT_MATCH, f"{name} has one output, {len(outputs)} were given")
        task = Operation(name, (inputs, outputs), places, blocks, attributes)
        engine = process.engine_of(target)
        for block in blocks:
            process.at_home(block, target.context.device.index, f"the operator {name}")
        process.watch(task, *blocks)
        if process.races is not None:
            task.accesses = tuple(touched)
        engine.submit(target, task, f"the operator {name}")
        return codes.SUCCESS

    def _place(self, name: str, descriptor: TensorDesc, handle: int, blocks: list[Block], code: int) -> int:
        kind = BY_ACL.get(descriptor.dtype)
        if kind is None or kind.numpy is None:
            raise Failure(codes.UNSUPPORTED_DATA_TYPE, f"{name}: no operators on element type {descriptor.dtype}")
        buffer = self._top.buffer(handle)
        if descriptor.const is not None or descriptor.nbytes == 0:
            return 0
        if buffer.size < descriptor.nbytes or buffer.address == 0:
            raise Failure(code, f"{name}: a tensor takes {descriptor.nbytes} bytes, its data buffer has {buffer.size}")
        block = self._process.block_of(buffer.address, descriptor.nbytes)
        if block is None or block.device < 0:
            raise Failure(code, f"{name}: {buffer.address:#x} is not device memory")
        blocks.append(block)
        return buffer.address + block.delta
