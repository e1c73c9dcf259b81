"""``acl.mdl``: load, run, unload (reference §11)."""

from __future__ import annotations

import ctypes
import itertools
import logging
from functools import partial
from time import perf_counter

from . import codes
from .acl_dataset import DatasetCalls
from .acl_top import DataBuffer
from .args import Failure, call
from .borrowed import Borrowed, Borrowings
from .compile import load_network
from .contexts import Context
from .dry import DryNetwork
from .findings import counted, here
from .free_shapes import FreeRuns
from .memory import Block
from .model import Computation, Execute, Model, Prepared, accesses
from .offline import Source, from_memory, from_path
from .order import runs_after
from .process import Process
from .streams import Stream
from .tensors import Tensor
from .waiting import wait_for_stream

logger = logging.getLogger("aioascend.emulator")

_EMPTY = bytearray(64)


class ModelCalls:
    """Loading and running models."""

    def __init__(self, process: Process, datasets: DatasetCalls, free: FreeRuns) -> None:
        self._free = free
        self._process = process
        self._datasets = datasets
        self._ids = itertools.count(1)
        self._dry: set[str] = set()
        self._profile = process.config.profile
        # nobody watches, and nothing takes a profile's time
        findings = process.findings
        self._plain = not (self._profile or process.races or findings.strict or findings.trace)

    # -- loading ------------------------------------------------------------------------------------------------

    @call("s", failed=(0,))
    def load_from_file(self, path: str) -> tuple[int, int]:
        """Load a static .onnx or an offline model, whatever the file's name."""
        self._ready()
        return self._load(from_path(path), 0, 0, 0, 0)

    @call("kk", failed=(0,))
    def load_from_mem(self, address: int, size: int) -> tuple[int, int]:
        """The same from host memory."""
        self._ready()
        return self._load(self._memory(address, size), 0, 0, 0, 0)

    @call("skkkk", failed=(0,))
    def load_from_file_with_mem(
        self, path: str, work: int, work_size: int, weight: int, weight_size: int
    ) -> tuple[int, int]:
        """The same with the caller's device memory (0: the system's)."""
        self._ready()
        return self._load(from_path(path), work, work_size, weight, weight_size)

    @call("kkkkkk", failed=(0,))
    def load_from_mem_with_mem(
        self, address: int, size: int, work: int, work_size: int, weight: int, weight_size: int
    ) -> tuple[int, int]:
        """The same from host memory with the caller's device memory."""
        self._ready()
        return self._load(self._memory(address, size), work, work_size, weight, weight_size)

    def _ready(self) -> None:
        self._process.require_init()
        self._process.current()

    def _memory(self, address: int, size: int) -> Source:
        if address == 0:
            raise Failure(codes.INVALID_PARAM, "the model's address is 0")
        block = self._process.block_of(address, size)
        if block is not None and block.device >= 0:
            if self._process.config.run_mode:
                raise Failure(codes.GE_MODEL_ADDR_INVALID, "the model must be in host memory on a PCIe host")
            address += block.delta
        return from_memory(address, size)

    def _load(self, source: Source, work: int, work_size: int, weight: int, weight_size: int) -> tuple[int, int]:
        process = self._process
        context = process.current()
        start = perf_counter()
        network = self.network(source)
        if self._profile is not None:
            process.spend(self._profile.load(network.weight_size) - (perf_counter() - start), "acl.mdl.load")
        wanted_work, wanted_weight = network.device_bytes()
        borrowed: list[Borrowed] = []
        blocks = []
        memory = context.device.memory
        try:
            for address, given, wanted, what in (
                (work, work_size, wanted_work, "work"),
                (weight, weight_size, wanted_weight, "weight"),
            ):
                if address:
                    block = self._borrowed(address, given, wanted, what)
                    if process.races is not None and what == "weight":
                        process.races.host(block, address, wanted, True, "acl.mdl.load", codes.PARAM_INVALID)
                    borrowed.append(Borrowed(block, address + block.delta, wanted, what))
                elif wanted:
                    blocks.append(memory.allocate(wanted, internal=True))
        except Failure:
            for block in blocks:
                memory.release(block.start)
            raise
        number = next(self._ids)
        with process.lock:
            if not context.alive or process.closed:
                for block in blocks:
                    memory.release(block.start)
                raise Failure(codes.CONTEXT_NULL, "the context was destroyed while the model was loading")
            process.models[number] = Model(number, context, network, blocks, Borrowings(network, borrowed))
        process.findings.made("model", number)
        return number, codes.SUCCESS

    def _borrowed(self, address: int, given: int, wanted: int, what: str) -> Block:
        if given < wanted:
            raise Failure(
                codes.GE_MODEL_DATA_SIZE_INVALID, f"the model needs {wanted} bytes of {what} memory, {given} were given"
            )
        block = self._process.block_of(address, given)
        if block is None or block.device < 0:
            raise Failure(codes.GE_MODEL_ADDR_INVALID, f"the {what} memory at {address:#x} is not device memory")
        return block

    def network(self, source: Source) -> Computation:
        """Load the computation; shutdown ends the example runs that this may take."""
        running = self._process.run_options
        mine: list[object] = []

        def note(options: object) -> None:
            mine.append(options)
            running.append(options)

        try:
            network = load_network(source, self._process.config, note)
        finally:
            for options in mine:
                running.remove(options)
        if isinstance(network, DryNetwork) and source.where not in self._dry:
            self._dry.add(source.where)
            logger.warning("%s: a dry run; nothing is computed, the outputs are made up: 0, 1, 2, ...", source.where)
        return network

    @call("s", failed=(0, 0))
    def query_size(self, path: str) -> tuple[int, int, int]:
        """Bytes of work and weight memory that loading takes."""
        return self._query(from_path(path))

    @call("kk", failed=(0, 0))
    def query_size_from_mem(self, address: int, size: int) -> tuple[int, int, int]:
        """The same for a model in memory."""
        return self._query(self._memory(address, size))

    def _query(self, source: Source) -> tuple[int, int, int]:
        return (*self.network(source).device_bytes(), codes.SUCCESS)

    @call("I")
    def unload(self, model: int) -> int:
        """Unload a model that nothing uses any more."""
        process = self._process
        if process.local.context is not self._model(model).context:
            text = f"model {model} was to be unloaded under another context than the one it was loaded in"
            process.findings.note("foreign-context", "acl.mdl.unload", text, codes.MODEL_CONTEXT)
        with process.lock:
            found = self._model(model)
            if found.queued and not found.context.device.lost:
                text = f"model {model} was to be unloaded while it had {counted(found.queued, 'run')} queued or running"
                raise Failure(codes.GE_UNLOAD_MODEL, text, "unload-in-use")
            process.models.pop(model, None)
        process.release_model(found)
        return codes.SUCCESS

    def _model(self, number: int) -> Model:
        found: Model = self._process.model(number)
        return found

    # -- running ------------------------------------------------------------------------------------------------

    @call("Ikk")
    def execute(self, model: int, inputs: int, outputs: int) -> int:
        """Run and wait."""
        process = self._process
        context = process.current()
        task = self._prepare(context, model, inputs, outputs, waits=True)
        stream = Stream(0, context)
        engine = process.engine_of(stream)
        self._watch("acl.mdl.execute", task, stream, inputs, outputs)
        engine.submit(stream, task, "acl.mdl.execute")
        fault = wait_for_stream(process, stream, -1, "acl.mdl.execute")
        if fault is not None:
            return process.fail(fault.code, fault.text)
        return codes.SUCCESS

    @call("Ikkk")
    def execute_async(self, model: int, inputs: int, outputs: int, stream: int) -> int:
        """Run when the stream gets here."""
        target = self._process.stream(stream)
        task = self._again(target, model, inputs, outputs) if self._plain else None
        if task is None:
            self.submit("acl.mdl.execute_async", target, model, inputs, outputs)
        else:
            self._one_stream("acl.mdl.execute_async", task, target)
            engine = target.context.device.engine or self._process.engine_of(target)
            engine.submit(target, task, "acl.mdl.execute_async")
        return codes.SUCCESS

    def _again(self, stream: Stream, number: int, inputs: int, outputs: int) -> Execute | None:
        """A run that is prepared as the last one with these datasets was, if nothing has changed since."""
        model: Model | None = self._process.models.get(number)
        if model is None:
            return None
        last = model.prepared.get((inputs, outputs))
        if last is None or last.version != self._datasets.version or last.gear is not model.gear:
            return None
        if model.context is not stream.context or model.network is None:
            return None
        for block in last.blocks:
            if not block.alive:
                return None
        return Execute(last.lane, model, last.addresses, last.blocks)

    def submit(self, call: str, stream: Stream, model: int, inputs: int, outputs: int, waits: bool = False) -> None:
        """Queue a run; `waits`: the caller waits for it, so that it may allocate outputs."""
        task = self._prepare(stream.context, model, inputs, outputs, waits)
        self._watch(call, task, stream, inputs, outputs)
        if self._profile is not None:
            self._process.spend(self._profile.launch, call)
        self._process.engine_of(stream).submit(stream, task, call)

    def _one_stream(self, call: str, task: Execute, stream: Stream) -> None:
        model = task.model
        if model.borrowed.work:
            self._own_work(call, model, stream)
        if model.queued > 1 and model.stream is not stream:
            model.queued -= 1
            text = f"model {model.id} has runs queued on another stream"
            self._process.findings.note("model-on-two-streams", call, text, codes.STREAM_MODEL)
            model.queued += 1
        model.stream = stream

    def _own_work(self, call: str, model: Model, stream: Stream) -> None:
        """Loads that share work memory take turns: by being on one stream, or by events between their streams."""
        engine = self._process.engine_of(stream)
        for other in list(self._process.models.values()):
            if other is model or not other.queued or other.stream is stream:
                continue
            if model.borrowed.shares_work(other.borrowed) and not runs_after(stream, other, engine):
                model.queued -= 1
                text = f"model {other.id} has the same work memory as model {model.id} and is queued on another stream"
                self._process.findings.note("work-memory-shared", call, text, codes.STREAM_MODEL)
                model.queued += 1

    def _watch(self, call: str, task: Execute, stream: Stream, inputs: int, outputs: int) -> None:
        process = self._process
        home = stream.context.device.index
        for block in task.blocks:
            if block.device != home:
                task.model.queued -= 1
                process.at_home(block, home, call)
                task.model.queued += 1
        self._one_stream(call, task, stream)
        if process.findings.strict:
            process.use(*task.blocks)
            handles = self._datasets.keep(inputs, outputs)
            task.done = partial(self._watched, task.blocks, handles)
        if process.findings.trace:
            task.site = here()
        if process.races is not None:
            self._touches(call, task, stream)

    def _touches(self, call: str, task: Execute, stream: Stream) -> None:
        """Tell the race detector what a run reads and writes."""
        races = self._process.races
        if races is None or call != "acl.mdl.execute":
            return
        # the host waits for it: it is as if the host did it
        touched, task.accesses = task.accesses, ()
        try:
            for block, start, end, write in touched:
                races.host(block, start, end - start, write, call, codes.PARAM_INVALID)
        except Failure:
            task.dropped(self._process.engine_of(stream).model)
            raise

    def _watched(self, blocks: tuple[Block, ...], handles: list[int]) -> None:
        self._process.unuse(*blocks)
        self._datasets.unkeep(handles)

    def _prepare(self, context: Context, number: int, inputs: int, outputs: int, waits: bool = False) -> Execute:
        model = self._model(number)
        network = model.network
        if model.context is not context:
            raise Failure(codes.MODEL_CONTEXT, f"model {number} was loaded in another context", "foreign-context")
        if network is None:
            raise Failure(codes.GE_MODEL_ID_INVALID, f"model {number} was unloaded")
        signature, gear = network.signature, model.gear
        if signature.free:
            return self._free.prepare(model, network, inputs, outputs, waits)
        wanted, results = signature.inputs, signature.outputs
        if gear is not None:
            wanted, results = (*gear.inputs, wanted[-1]), gear.outputs
        version = self._datasets.version
        addresses: list[int] = []
        blocks = [one.block for one in model.borrowed]
        self._collect(number, wanted, inputs, codes.MODEL_INPUT_NOT_MATCH, addresses, blocks)
        self._collect(number, results, outputs, codes.MODEL_OUTPUT_NOT_MATCH, addresses, blocks)
        lane = context.device.running().model.compute
        task = Execute(lane, model, tuple(addresses), tuple(blocks), self._profile)
        if self._plain and not _away(task.blocks, context.device.index) and not model.borrowed.work:
            model.keep((inputs, outputs), Prepared(version, gear, lane, task.addresses, task.blocks))
        if self._process.races is not None:
            sizes = [tensor.nbytes for tensor in (*wanted, *results)]
            task.accesses = accesses(model, blocks, addresses, sizes, len(wanted))
        return task

    def _collect(
        self,
        number: int,
        tensors: tuple[Tensor, ...],
        dataset: int,
        code: int,
        addresses: list[int],
        blocks: list[Block],
    ) -> None:
        side = "input" if code == codes.MODEL_INPUT_NOT_MATCH else "output"
        handles = self._datasets.dataset(dataset)
        if len(handles) != len(tensors):
            raise Failure(code, f"model {number} has {len(tensors)} {side}s, the dataset has {len(handles)} buffers")
        buffers, allocations = self._datasets.buffers, self._process.allocations
        for tensor, handle in zip(tensors, handles, strict=False):
            buffer = buffers.get(handle)
            if buffer is None:
                raise Failure(codes.INVALID_PARAM, f"dataset {dataset:#x} holds a destroyed data buffer")
            size = tensor.nbytes
            # nearly always a buffer is one whole block
            block = allocations.get(buffer.address)
            if block is None or not 0 < size <= buffer.size <= block.size or block.device < 0:
                address, block = self._locate(number, tensor, buffer, side, code)
                addresses.append(address)
                if block is None:
                    continue
            else:
                addresses.append(buffer.address + block.delta)
            blocks.append(block)

    def _locate(
        self, number: int, tensor: Tensor, buffer: DataBuffer, side: str, code: int
    ) -> tuple[int, Block | None]:
        size = tensor.nbytes
        if buffer.size < size:
            raise Failure(
                code, f"{side} {tensor.name!r} of model {number} takes {size} bytes, its data buffer has {buffer.size}"
            )
        address = buffer.address
        if size == 0:
            return _empty_address(), None
        if address == 0:
            raise Failure(code, f"{side} {tensor.name!r} of model {number} has a data buffer of address 0")
        block = self._process.block_of(address, size)
        if block is None or block.device < 0:
            raise Failure(
                code, f"{side} {tensor.name!r} of model {number} is at {address:#x}, which is not device memory"
            )
        return address + block.delta, block


def _away(blocks: tuple[Block, ...], device: int) -> bool:
    """Whether one of the blocks is another device's."""
    return any(block.device != device for block in blocks)


def _empty_address() -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(_EMPTY))
