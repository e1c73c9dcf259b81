"""Loaded models: ONNX Runtime reading and writing emulated device memory in place."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from . import codes, onnx_wire
from .args import Failure
from .borrowed import Borrowings
from .config import Config
from .device_model import ComputeUnit, DeviceModel, Lane, Work
from .gears import Gear, Signature
from .memory import Block, move
from .offline import ModelFile, Source
from .profile import Profile
from .streams import Fault, Stream
from .tensors import BY_ONNX, Tensor, from_ort_type

_BINDINGS = 64


def onnxruntime() -> Any:
    """The onnxruntime module, imported when the first model is loaded or compiled."""
    # Its telemetry (1.32) starts a thread at import whose clean-up hangs the exit of every forked child. Whoever wants
    # it sets the variable to 0, and does not fork.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime as module
    except ImportError as error:
        raise Failure(
            codes.GE_INTERNAL_ERROR,
            f"the emulator computes with onnxruntime, which cannot be imported ({error}): "
            'pip install "aioascend[emulator]"',
        ) from None
    return module


def session_options(config: Config) -> Any:
    """The ``onnxruntime.SessionOptions`` that every model of an emulator gets."""
    module = onnxruntime()
    options = module.SessionOptions()
    options.intra_op_num_threads = config.intra_op_threads
    options.inter_op_num_threads = 1
    options.execution_mode = module.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    # an idle intra-op thread that spins takes a core away from the program under test
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def open_session(source: Source, pieces: Sequence[memoryview], config: Config, external: bool) -> Any:
    """An ``InferenceSession`` of the model that `pieces` make up; ORT's own error passes through."""
    module = onnxruntime()
    options = session_options(config)
    providers = ["CPUExecutionProvider"]
    if source.path is not None and len(pieces) == 1 and pieces[0] is source.data:
        return module.InferenceSession(source.path, options, providers=providers)
    if external and source.path is not None:
        folder = os.path.dirname(source.path)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    with ModelFile(pieces) as file:
        return module.InferenceSession(file.path, options, providers=providers)


def check_tensors(entries: Sequence[onnx_wire.TensorInput], side: str) -> None:
    """Refuse inputs that are no tensors of numbers."""
    wrong = []
    for entry in entries:
        if entry.elem_type is None:
            wrong.append(f"{entry.name!r} is a {entry.kind}")
        elif entry.elem_type == 8:
            wrong.append(f"{entry.name!r} is a tensor of strings")
        elif entry.elem_type not in BY_ONNX:
            wrong.append(f"{entry.name!r} has the element type {entry.elem_type} of ONNX")
    if wrong:
        raise Failure(codes.GE_DATATYPE_INVALID, f"{side} must be tensors of numbers, but " + ", ".join(sorted(wrong)))


def first_lines(error: BaseException) -> str:
    """An ORT error as one line of reasonable length."""
    text = " ".join(str(error).split())
    return text if len(text) <= 1500 else text[:1500] + " ..."


class Computation(ABC):
    """A model that is loaded and can run.

    A run is described by the host-visible addresses of its inputs and outputs.
    """

    def __init__(self, name: str, signature: Signature, weight: int) -> None:
        self.name = name
        self.signature = signature
        self.weight_size = weight

    @abstractmethod
    def device_bytes(self) -> tuple[int, int]:
        """(work, weight) bytes of device memory."""

    @abstractmethod
    def run(self, addresses: tuple[int, ...]) -> str | None:
        """Run on these addresses (inputs, then outputs); the reason when it fails."""

    @abstractmethod
    def run_free(self, inputs: Sequence[Tensor], addresses: Sequence[int]) -> list[Any] | str:
        """Run with these input shapes; the outputs as ORT values, or the reason when it fails."""

    @abstractmethod
    def terminate(self) -> None:
        """Make a run in progress, and every later one, fail at once."""

    @property
    @abstractmethod
    def terminated(self) -> bool:
        """Whether it was."""


class Network(Computation):
    """A model that ONNX Runtime computes.

    The bindings of addresses are cached, as programs use the same few buffers again and again.
    """

    def __init__(self, session: Any, signature: Signature, weight: int, name: str) -> None:
        super().__init__(name, signature, weight)
        self.session = session
        self._run, self._native = _native_run(session)
        # ORT leaves an output alone that is an input under the same name
        names = [tensor.name for tensor in signature.inputs]
        self._passed = [
            (names.index(tensor.name), len(names) + position, position)
            for position, tensor in enumerate(signature.outputs)
            if tensor.name in names
        ]
        self.options = onnxruntime().RunOptions()
        self._bindings: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def device_bytes(self) -> tuple[int, int]:
        """An estimate, steady for one model: room for the tensors, and the file."""
        tensors = sum(tensor.nbytes for tensor in (*self.signature.inputs, *self.signature.outputs))
        return -(-(2 * tensors + 4096) // 512) * 512, -(-self.weight_size // 512) * 512

    def run(self, addresses: tuple[int, ...]) -> str | None:
        """Run on these addresses (inputs, then outputs); the reason when it fails."""
        signature = self.signature
        inputs, outputs, key = signature.inputs, signature.outputs, addresses
        gears = signature.gears
        if gears is not None:
            gear = gears.at(addresses[len(inputs) - 1])
            if gear is None:
                return "its ascend_mbatch_shape_data holds no gear of the model: none was set for this dataset"
            inputs, outputs, key = gear.inputs, gear.outputs, (*addresses, *gear.values)
        try:
            binding = self._bindings.get(key)
            if binding is None:
                binding = self._bind(key, addresses, inputs, outputs)
            self._run(binding, self.options)
            for source, destination, position in self._passed:
                move(addresses[destination], addresses[source], outputs[position].nbytes)
        except Exception as error:
            return first_lines(error)
        return None

    def run_free(self, inputs: Sequence[Tensor], addresses: Sequence[int]) -> list[Any] | str:
        """Run with these input shapes; the outputs as ORT values, or the reason when it fails."""
        try:
            binding = self.session.io_binding()
            for tensor, address in zip(inputs, addresses, strict=True):
                binding.bind_input(tensor.name, "cpu", 0, tensor.type.onnx, list(tensor.shape), address)
            for tensor in self.signature.outputs:
                binding.bind_output(tensor.name, "cpu")
            self.session.run_with_iobinding(binding, self.options)
            values: list[Any] = binding.get_outputs()
        except Exception as error:
            return first_lines(error)
        return values

    def _bind(
        self, key: tuple[int, ...], addresses: tuple[int, ...], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Any:
        binding = self.session.io_binding()
        for tensor, address in zip(inputs, addresses, strict=False):
            binding.bind_input(tensor.name, "cpu", 0, tensor.type.onnx, list(tensor.shape), address)
        for tensor, address in zip(outputs, addresses[len(self.signature.inputs) :], strict=True):
            binding.bind_output(tensor.name, "cpu", 0, tensor.type.onnx, list(tensor.shape), address)
        if len(self._bindings) >= _BINDINGS:
            self._bindings.popitem(last=False)
        # what ORT's own object is called inside the public one
        native = getattr(binding, "_iobinding", binding) if self._native else binding
        self._bindings[key] = native
        return native

    def terminate(self) -> None:
        """Make a run in progress end at once."""
        self.options.terminate = True

    @property
    def terminated(self) -> bool:
        """Whether it was."""
        return bool(self.options.terminate)


def _native_run(session: Any) -> tuple[Any, bool]:
    """The function that runs a binding, and whether it takes the native binding.

    The public ``run_with_iobinding`` looks for settings of GPU providers on every call, which takes ten times as long
    as a small model does.
    """
    run = getattr(getattr(session, "_sess", None), "run_with_iobinding", None)
    return (session.run_with_iobinding, False) if run is None else (run, True)


def output_tensors(session: Any, shapes: dict[str, tuple[int, ...]]) -> tuple[Tensor, ...]:
    """The outputs of an ORT session; `shapes` where known, else what ORT inferred. Unknown axes raise `Failure`."""
    found = []
    wrong = []
    for entry in session.get_outputs():
        kind = from_ort_type(entry.type)
        if kind is None:
            wrong.append(f"{entry.name!r} is {entry.type}")
            continue
        shape = shapes.get(entry.name)
        if shape is None:
            if any(not isinstance(size, int) for size in entry.shape):
                raise Failure(codes.GE_SHAPE_INVALID, f"the shape of output {entry.name!r} is not fixed: {entry.shape}")
            shape = tuple(entry.shape)
        found.append(Tensor(entry.name, kind, shape))
    if wrong:
        raise Failure(codes.GE_INTERNAL_ERROR, "outputs must be tensors of numbers, but " + ", ".join(wrong))
    return tuple(found)


class Prepared:
    """How a run with two datasets was prepared, while no dataset or data buffer, and no gear, has changed since."""

    __slots__ = ("addresses", "blocks", "gear", "lane", "version")

    def __init__(
        self, version: int, gear: Gear | None, lane: Lane, addresses: tuple[int, ...], blocks: tuple[Block, ...]
    ) -> None:
        self.version = version
        self.gear = gear
        self.lane = lane
        self.addresses = addresses
        self.blocks = blocks


class Model(ComputeUnit):
    """A network under a model id: loaded in one context, with its device memory."""

    __slots__ = ("blocks", "borrowed", "context", "gear", "id", "network", "prepared", "queued", "stream")

    def __init__(
        self, number: int, context: Any, network: Computation, blocks: list[Block], borrowed: Borrowings
    ) -> None:
        super().__init__()
        self.id = number
        self.context = context
        self.network: Computation | None = network
        self.blocks = blocks
        self.borrowed = borrowed
        self.queued = 0
        # where it was put last: a model belongs on one stream at a time
        self.stream: Stream | None = None
        # the one set last, for whichever dataset: a property of the model, as on hardware
        self.gear: Gear | None = None
        # by the datasets of inputs and outputs
        self.prepared: dict[tuple[int, int], Prepared] = {}

    def keep(self, datasets: tuple[int, int], prepared: Prepared) -> None:
        """Remember how a run was prepared."""
        if len(self.prepared) >= _BINDINGS:
            self.prepared.clear()
        self.prepared[datasets] = prepared


def accesses(
    model: Model, blocks: Sequence[Block], addresses: Sequence[int], nbytes: Sequence[int], inputs: int
) -> tuple[tuple[Block, int, int, bool], ...]:
    """What a run reads and writes: its inputs, which come first, its outputs, and memory that the model has borrowed.

    `blocks` are those of the borrowed memory and of every tensor, but perhaps of empty ones.
    """
    found = []
    borrowed = list(model.borrowed)
    for one in borrowed:
        start = one.place - one.block.delta
        found.append((one.block, start, start + one.size, one.what == "work"))
    place = len(borrowed)
    for index, (address, size) in enumerate(zip(addresses, nbytes, strict=True)):
        if size:
            block = blocks[place]
            while not block.start <= address - block.delta < block.start + block.size:
                place += 1
                block = blocks[place]
            place += 1
            start = address - block.delta
            found.append((block, start, start + size, index >= inputs))
    return tuple(found)


_USED = "use-after-free"


class Execute(Work):
    """One run of a model on a stream."""

    kind = "execute"
    call = "acl.mdl.execute_async"

    __slots__ = ("addresses", "blocks", "model", "profile")

    def __init__(
        self,
        lane: Lane,
        model: Model,
        addresses: tuple[int, ...],
        blocks: tuple[Block, ...],
        profile: Profile | None = None,
    ) -> None:
        self.inline = False
        self.stream = None
        self.lane = lane
        self.unit = self.model = model
        self.profile = profile
        self.addresses = addresses
        self.blocks = blocks
        model.queued += 1

    def duration(self, last: ComputeUnit | None) -> float:
        """The model's time by the profile, more if the core did something else before."""
        profile, network = self.profile, self.model.network
        if profile is None or network is None or network.terminated:
            return 0.0
        switched = last is not None and last is not self.model
        return profile.run(network.name) + (profile.switch if switched else 0.0)

    def run(self) -> Fault | None:
        """Run, if everything the run needs is still there."""
        network = self.model.network
        if network is None:
            return Fault(codes.MODEL_EXECUTE, f"model {self.model.id} was unloaded while a run of it was queued")
        for block in self.blocks:
            if not block.alive:
                return Fault(codes.MODEL_EXECUTE, f"model {self.model.id}: {block!r} was freed before the run", _USED)
        if damage := self.model.borrowed.damage():
            return Fault(codes.AICORE_EXCEPTION, f"model {self.model.id}: {damage}", "weights-overwritten")
        return self.compute(network)

    def compute(self, network: Computation) -> Fault | None:
        """Run on the addresses."""
        reason = network.run(self.addresses)
        if reason is None:
            return None
        return Fault(codes.MODEL_EXECUTE, f"model {self.model.id} failed on the device: {reason}")

    def finished(self, model: DeviceModel) -> None:
        """One run less, and the lane is free."""
        self.model.queued -= 1
        super().finished(model)

    def dropped(self, model: DeviceModel) -> None:
        """One run less."""
        self.model.queued -= 1
        super().dropped(model)
