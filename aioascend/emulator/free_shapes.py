"""Models whose axes stay open (-1): every run says its input shapes, and learns its output shapes (reference §11).

Input shapes come from tensor descriptors in the dataset. Output buffers are large guesses, or empty ones that a
synchronous run fills with memory of its own, which the program then frees. The real output shapes are told through
tensor descriptors in the output dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import codes
from .acl_dataset import DatasetCalls
from .acl_tensor import TensorCalls, TensorDesc
from .acl_top import DataBuffer
from .args import Failure
from .device_model import Lane
from .memory import Block, DeviceMemory, move
from .model import Execute, Model, accesses
from .process import Process
from .profile import Profile
from .streams import Fault
from .tensors import Tensor

_ND = 2


class FreeRun(Execute):
    """One run of a model with open axes."""

    __slots__ = ("inputs", "memory", "results", "tell")

    def __init__(
        self,
        lane: Lane,
        model: Model,
        addresses: tuple[int, ...],
        blocks: tuple[Block, ...],
        profile: Profile | None,
        inputs: tuple[Tensor, ...],
        results: Sequence[tuple[DataBuffer, Block | None]],
        memory: DeviceMemory,
        tell: Callable[[int, Tensor], None],
    ) -> None:
        super().__init__(lane, model, addresses, blocks, profile)
        self.inputs = inputs
        self.results = results
        self.memory = memory
        self.tell = tell

    def compute(self, network: Any) -> Fault | None:
        """Run on the inputs; ORT allocates the outputs, which are then copied to where they belong."""
        values = network.run_free(self.inputs, self.addresses)
        if isinstance(values, str):
            return Fault(codes.MODEL_EXECUTE, f"model {self.model.id} failed on the device: {values}")
        for index, (value, (buffer, block)) in enumerate(zip(values, self.results, strict=True)):
            declared = network.signature.outputs[index]
            tensor = Tensor(declared.name, declared.type, tuple(value.shape()))
            if buffer.address == 0:
                try:
                    block = self.memory.allocate(max(tensor.nbytes, 1))
                except Failure as failure:
                    return Fault(codes.DEVICE_OOM, failure.text)
                buffer.address, buffer.size = block.start, tensor.nbytes
            elif buffer.size < tensor.nbytes:
                text = f"output {tensor.name!r} has {tensor.nbytes} bytes, its data buffer {buffer.size}"
                return Fault(codes.MODEL_EXECUTE, f"model {self.model.id} failed on the device: {text}")
            if tensor.nbytes and block is not None:
                move(buffer.address + block.delta, value.data_ptr(), tensor.nbytes)
            self.tell(index, tensor)
        return None


class FreeRuns:
    """Prepares such runs."""

    def __init__(self, process: Process, datasets: DatasetCalls, tensors: TensorCalls) -> None:
        self._process = process
        self._datasets = datasets
        self._tensors = tensors

    def prepare(self, model: Model, network: Any, inputs: int, outputs: int, waits: bool) -> FreeRun:
        """A run of `model`; `waits`: the caller waits for it, so that it may allocate outputs."""
        signature = network.signature
        given, taken = (
            self._buffers(inputs, signature.inputs, "input"),
            self._buffers(outputs, signature.outputs, "output"),
        )
        tensors, addresses, blocks = [], [], [one.block for one in model.borrowed]
        for index, (declared, buffer) in enumerate(zip(signature.inputs, given, strict=True)):
            tensor = self._shaped(inputs, index, declared)
            if buffer.size < tensor.nbytes:
                text = f"input {tensor.name!r} takes {tensor.nbytes} bytes, its data buffer has {buffer.size}"
                raise Failure(codes.MODEL_INPUT_NOT_MATCH, text)
            block = self._block(buffer, tensor.nbytes, codes.MODEL_INPUT_NOT_MATCH)
            tensors.append(tensor)
            addresses.append(buffer.address + block.delta)
            blocks.append(block)
        results: list[tuple[DataBuffer, Block | None]] = []
        for declared, buffer in zip(signature.outputs, taken, strict=True):
            if buffer.address == 0 and not waits:
                text = f"output {declared.name!r}: only a synchronous run allocates outputs"
                raise Failure(codes.MODEL_OUTPUT_NOT_MATCH, text)
            if buffer.address == 0:
                results.append((buffer, None))
                continue
            block = self._block(buffer, buffer.size, codes.MODEL_OUTPUT_NOT_MATCH)
            results.append((buffer, block))
            blocks.append(block)
        device = model.context.device
        run = FreeRun(
            device.running().model.compute,
            model,
            tuple(addresses),
            tuple(blocks),
            self._process.config.profile,
            tuple(tensors),
            results,
            device.memory,
            lambda index, tensor: self._tell(outputs, index, tensor),
        )
        if self._process.races is not None:
            # how much of its outputs it writes is not known before
            places = [(buffer, block) for buffer, block in results if block is not None]
            sizes = [tensor.nbytes for tensor in tensors] + [buffer.size for buffer, _ in places]
            starts = [*addresses, *(buffer.address + block.delta for buffer, block in places)]
            run.accesses = accesses(model, blocks, starts, sizes, len(tensors))
        return run

    def _buffers(self, dataset: int, tensors: Sequence[Tensor], side: str) -> list[DataBuffer]:
        handles = self._datasets.dataset(dataset)
        if len(handles) != len(tensors):
            code = codes.MODEL_INPUT_NOT_MATCH if side == "input" else codes.MODEL_OUTPUT_NOT_MATCH
            raise Failure(code, f"the model has {len(tensors)} {side}s, the dataset has {len(handles)} buffers")
        buffers = [self._datasets.buffers.get(handle) for handle in handles]
        found = [buffer for buffer in buffers if buffer is not None]
        if len(found) != len(buffers):
            raise Failure(codes.INVALID_PARAM, f"dataset {dataset:#x} holds a destroyed data buffer")
        return found

    def _shaped(self, dataset: int, index: int, declared: Tensor) -> Tensor:
        handle = self._datasets.shapes.get((dataset, index))
        if handle is None:
            if any(size < 0 for size in declared.shape):
                text = f"input {declared.name!r} {declared.shape} has no shape: call set_dataset_tensor_desc"
                raise Failure(codes.GE_SHAPE_INVALID, text)
            return declared
        dims = self._tensors.descriptor(handle).dims
        fits = len(dims) == len(declared.shape) and all(
            size >= 0 and fixed in (-1, size) for fixed, size in zip(declared.shape, dims, strict=True)
        )
        if not fits:
            raise Failure(codes.GE_SHAPE_INVALID, f"input {declared.name!r} is {declared.shape}, {dims} was given")
        return Tensor(declared.name, declared.type, tuple(dims))

    def _block(self, buffer: DataBuffer, size: int, code: int) -> Block:
        block = self._process.block_of(buffer.address, size) if buffer.address else None
        if block is None or block.device < 0:
            raise Failure(code, f"{buffer.address:#x} is not device memory")
        return block

    def _tell(self, dataset: int, index: int, tensor: Tensor) -> None:
        descriptor = TensorDesc(tensor.type.acl, list(tensor.shape), _ND)
        handle = self._datasets.shapes.get((dataset, index))
        if handle is not None and handle in self._tensors.descriptors:
            self._tensors.descriptors[handle] = descriptor
        else:
            self._datasets.shapes[dataset, index] = self._tensors.own(descriptor)
