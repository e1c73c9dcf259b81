"""``acl.rt``: device and pinned memory, copies (reference §8)."""

from __future__ import annotations

from functools import partial
from time import perf_counter

from . import codes, gil
from .args import Failure, call
from .device_model import DONE, ComputeUnit, DeviceModel, Step, Work
from .engine import Engine
from .findings import here
from .memory import HELD_UP_TO, Block, allocate_pinned, fill_released, move, move_held
from .process import Process
from .streams import Fault, State, Stream
from .waiting import look_ahead_at_stream, wait_for_stream

_USED = "use-after-free"
_UNDEFINED = 0xA5
_COPY = "acl.rt.memcpy_async"


class Copy(Work):
    """A queued copy: the source is read when the stream gets here."""

    kind = "copy"
    call = "acl.rt.memcpy_async"

    __slots__ = ("count", "destination", "destination_block", "source", "source_block")

    seconds = 0.0

    def __init__(
        self, destination: int, destination_block: Block, source: int, source_block: Block, count: int, inline: bool
    ) -> None:
        super().__init__(inline)
        self.destination = destination
        self.destination_block = destination_block
        self.source = source
        self.source_block = source_block
        self.count = count

    def duration(self, last: ComputeUnit | None) -> float:
        """By the time profile."""
        return self.seconds

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Copy at once where that takes no time, nobody looks and nothing can go wrong."""
        if self.inline and self.use is None and self.done is None and not model.timed and not model.faults:
            source, destination = self.source_block, self.destination_block
            if source.alive and destination.alive:
                move(self.destination + destination.delta, self.source + source.delta, self.count)
                return DONE
        return super().begin(model, stream, now)

    def run(self) -> Fault | None:
        """Copy, if both ends are still allocated."""
        source, destination = self.source_block, self.destination_block
        if not source.alive or not destination.alive:
            freed = destination if source.alive else source
            return Fault(codes.DRV_INTERNAL_ERROR, f"{freed!r} was freed before the copy of {self.count} bytes", _USED)
        if self.use is not None and self.use.staged is not None:
            self.use.staged.ran()
        move(self.destination + destination.delta, self.source + source.delta, self.count)
        return None


class Fill(Work):
    """A queued memset."""

    kind = "memset"
    call = "acl.rt.memset_async"

    __slots__ = ("address", "block", "count", "value")

    def __init__(self, address: int, block: Block, value: int, count: int, inline: bool) -> None:
        super().__init__(inline)
        self.address = address
        self.block = block
        self.value = value
        self.count = count

    def run(self) -> Fault | None:
        """Fill, if the memory is still allocated."""
        if not self.block.alive:
            return Fault(codes.DRV_INTERNAL_ERROR, f"{self.block!r} was freed before the memset", _USED)
        fill_released(self.address + self.block.delta, self.value, self.count)
        return None


class Refused(Work):
    """Work that the device refuses when it gets there."""

    kind = "copy"

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(True)
        self.text = text

    def run(self) -> Fault | None:
        """Fail."""
        return Fault(codes.DRV_INTERNAL_ERROR, self.text)


class MemoryCalls:
    """Memory functions."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._inline = process.config.inline_copy
        self._allocations = process.allocations
        self._profile = process.config.profile
        self._findings = process.findings
        self._strict = process.findings.strict
        self._races = process.races
        # nobody watches, and nothing takes a profile's time
        self._plain = not (process.config.profile or self._races or self._findings.trace or self._strict)

    @call("ki", failed=(0,))
    def malloc(self, size: int, policy: int) -> tuple[int, int]:
        """Device memory, aligned to 64 bytes, contents undefined; 207001 when there is none."""
        return self._malloc(size, 32)

    @call("ki", failed=(0,))
    def malloc_align32(self, size: int, policy: int) -> tuple[int, int]:
        """The same without the 32 bytes of padding."""
        return self._malloc(size, 0)

    @call("ki", failed=(0,))
    def malloc_cached(self, size: int, policy: int) -> tuple[int, int]:
        """The same; caches are coherent here."""
        return self._malloc(size, 32)

    def _malloc(self, size: int, extra: int) -> tuple[int, int]:
        context = self._process.current()
        if context.device.lost:
            raise context.device.gone()
        if size == 0:
            raise Failure(codes.INVALID_PARAM, "malloc of 0 bytes")
        if self._profile is not None:
            self._process.spend(self._profile.allocation(size), "acl.rt.malloc")
        address = context.device.memory.allocate(size, extra).start
        self._findings.made("device memory", address)
        return address, codes.SUCCESS

    @call("kk")
    def mem_flush(self, address: int, size: int) -> int:
        """Nothing to do: caches are coherent here."""
        return codes.SUCCESS

    @call("kk")
    def mem_invalidate(self, address: int, size: int) -> int:
        """Nothing to do: caches are coherent here."""
        return codes.SUCCESS

    @call("k")
    def free(self, address: int) -> int:
        """Free device memory at once; queued work is not waited for."""
        if address == 0:
            raise Failure(codes.INVALID_PARAM, "free of address 0")
        device = self._process.device_of(address)
        if device is None:
            raise Failure(codes.PARAM_INVALID, f"{address:#x} is not device memory")
        block = device.memory.blocks.get(address)
        if block is not None and (block.users or block.loans):
            self._in_use(block, "acl.rt.free")
        # A lost device touches nothing more, whatever was queued in the moment before.
        if self._races is not None and block is not None and not (block.internal or device.lost):
            self._races.host(block, address, block.size, True, "acl.rt.free", codes.PARAM_INVALID)
        if block is None or block.internal or device.memory.release(address) is None:
            freed = address in device.memory.freed
            text = f"{address:#x} was freed already" if freed else f"no allocation starts at {address:#x}"
            raise Failure(codes.PARAM_INVALID, text, "double-free" if freed else "wild-address")
        return codes.SUCCESS

    @call("k", failed=(0,))
    def malloc_host(self, size: int) -> tuple[int, int]:
        """Page-locked host memory."""
        process = self._process
        process.require_init()
        if size == 0:
            raise Failure(codes.INVALID_PARAM, "malloc_host of 0 bytes")
        if self._profile is not None:
            process.spend(self._profile.allocation(size), "acl.rt.malloc_host")
        block = allocate_pinned(size)
        process.pinned.add(block)
        self._findings.made("pinned memory", block.start)
        return block.start, codes.SUCCESS

    @call("k")
    def free_host(self, address: int) -> int:
        """Free memory of `malloc_host`."""
        if address == 0:
            raise Failure(codes.INVALID_PARAM, "free_host of address 0")
        block = self._process.pinned.get(address)
        if block is not None and (block.users or block.loans):
            self._in_use(block, "acl.rt.free_host")
        if self._races is not None and not self._process.on_lost_device():
            self._races.host(block, address, block.size if block else 0, True, "acl.rt.free_host", codes.PARAM_INVALID)
        block = self._process.pinned.remove(address)
        if block is None:
            raise Failure(
                codes.PARAM_INVALID, f"{address:#x} did not come from malloc_host, or was freed already", "double-free"
            )
        self._process.freed_pinned.keep(block)
        return codes.SUCCESS

    def _in_use(self, block: Block, call: str) -> None:
        if self._process.on_lost_device():
            return
        number, what = (block.users, "queued task") if block.users else (block.loans, "loaded model")
        needed = f"1 {what} needs" if number == 1 else f"{number} {what}s need"
        by = self._races.needed_by(block) if self._races is not None and block.users else ""
        text = f"{block!r} was freed while {needed} it{by}"
        self._findings.note("free-in-use", call, text, codes.PARAM_INVALID)

    @call("kkik")
    def memset(self, address: int, maximum: int, value: int, count: int) -> int:
        """Fill memory with one byte value, now."""
        block = self._filled(address, maximum, count, "acl.rt.memset")
        if self._races is not None:
            self._races.host(block, address, count, True, "acl.rt.memset", codes.PARAM_INVALID)
        if count:
            fill_released(address + (block.delta if block is not None else 0), value & 0xFF, count)
        return codes.SUCCESS

    @call("kkikk")
    def memset_async(self, address: int, maximum: int, value: int, count: int, stream: int) -> int:
        """Fill memory with one byte value when the stream gets here."""
        process = self._process
        target = process.stream(stream)
        block = self._filled(address, maximum, count, "acl.rt.memset_async")
        if not count:
            return codes.SUCCESS
        if block is None:
            wait_for_stream(process, target, -1, "acl.rt.memset_async")
            fill_released(address, value & 0xFF, count)
            return codes.SUCCESS
        task = Fill(address, block, value & 0xFF, count, count <= self._inline)
        engine = process.engine_of(target)
        process.watch(task, block)
        if self._races is not None:
            task.accesses = ((block, address, address + count, True),)
        engine.submit(target, task, "acl.rt.memset_async")
        return codes.SUCCESS

    def _filled(self, address: int, maximum: int, count: int, call: str) -> Block | None:
        if address == 0:
            raise Failure(codes.INVALID_PARAM, "memset of address 0")
        if count > maximum:
            raise Failure(codes.PARAM_INVALID, f"memset of {count} bytes where {maximum} are allowed", "overflow")
        device = self._process.current().device
        if device.lost:
            raise device.gone()
        block = self._process.block_of(address, count)
        if block is not None:
            self._process.at_home(block, device.index, call)
        return block

    @call("kkkki")
    def memcpy(self, destination: int, maximum: int, source: int, count: int, kind: int) -> int:
        """Copy now. The direction follows from the addresses."""
        process = self._process
        device = process.current().device
        if device.lost:
            raise device.gone()
        self._check(destination, maximum, source, count, kind)
        if count:
            to, origin = process.block_of(destination, count), process.block_of(source, count)
            self._copy_now("acl.rt.memcpy", destination, to, source, origin, count)
        return codes.SUCCESS

    def _copy_now(
        self, call: str, destination: int, to: Block | None, source: int, origin: Block | None, count: int
    ) -> None:
        if origin is None:
            count = self._known(source, count, "read beyond the end of")
        if to is None:
            count = self._known(destination, count, "write beyond the end of")
        if self._races is not None:
            self._races.host(origin, source, count, False, call, codes.PARAM_INVALID)
            self._races.host(to, destination, count, True, call, codes.PARAM_INVALID)
        profile = self._profile
        start = perf_counter() if profile is not None else 0.0
        (move_held if self._process.holds_gil and gil.holds(call) else move)(
            destination + (to.delta if to is not None else 0),
            source + (origin.delta if origin is not None else 0),
            count,
        )
        if profile is not None:
            self._process.spend(profile.copy(count, self._bandwidth(to, origin)) - (perf_counter() - start), call)

    def _known(self, address: int, count: int, what: str) -> int:
        """The bytes that may be copied where `address` came from ``acl.util`` and its size is known.

        Hardware copies whatever lies behind, which goes well by luck; here it would be a segmentation fault now and
        then.
        """
        size = self._process.host_objects.size_at(address)
        if size is None or count <= size:
            return count
        text = f"a copy of {count} bytes would {what} a Python object of {size}"
        self._findings.note("overflow", "a copy", text, codes.PARAM_INVALID)
        return size

    def _bandwidth(self, to: Block | None, origin: Block | None) -> float:
        assert self._profile is not None
        if to is None or origin is None:
            return self._profile.pageable
        return self._profile.on_device if to.device >= 0 and origin.device >= 0 else self._profile.pinned

    @call("kkkkik")
    def memcpy_async(self, destination: int, maximum: int, source: int, count: int, kind: int, stream: int) -> int:
        """Copy when the stream gets here.

        With pageable host memory the call waits for the stream and copies at once; host to host is refused on a PCIe
        host (reference §8, 2026 behaviour).
        """
        process = self._process
        target = process.stream(stream)
        if destination == 0 or source == 0 or count > maximum or kind not in codes.MEMCPY_KINDS:
            self._check(destination, maximum, source, count, kind)
        if not count:
            return codes.SUCCESS
        # nearly always a place is where a block starts
        to, origin = self._allocations.get(destination), self._allocations.get(source)
        if to is None or count > to.size:
            to = process.block_of(destination, count)
        if origin is None or count > origin.size:
            origin = process.block_of(source, count)
        if (to is None or to.device < 0) and (origin is None or origin.device < 0) and process.config.run_mode:
            if process.config.cann >= "8":
                raise Failure(codes.FEATURE_NOT_SUPPORT, "memcpy_async from host to host memory")
            process.engine_of(target).submit(target, Refused("memcpy_async from host to host memory"), _COPY)
            return codes.SUCCESS
        if (to is None or origin is None) and process.config.cann < "8.5":
            return self._old_pageable(target, destination if to is None else source, to, destination, count)
        if to is None or origin is None:
            look_ahead_at_stream(process, target, _COPY)
            self._findings.note(
                "pageable-async-copy",
                _COPY,
                "host memory that did not come from malloc_host makes the copy synchronous, or undefined on CANN 8.0",
                codes.INVALID_MEMORY_TYPE,
            )
            fault = wait_for_stream(process, target, -1, _COPY)
            if fault is not None:
                with process.engine_of(target).lock:
                    target.fail(fault)
            self._copy_now(_COPY, destination, to, source, origin, count)
            return codes.SUCCESS
        engine = target.context.device.engine or process.engine_of(target)
        if self._plain:
            if (
                target.state is not State.IDLE
                or count > HELD_UP_TO
                or not self._copied(engine, target, destination + to.delta, source + origin.delta, count)
            ):
                engine.submit(target, Copy(destination, to, source, origin, count, count <= self._inline), _COPY)
            return codes.SUCCESS
        task = Copy(destination, to, source, origin, count, count <= self._inline)
        if self._strict:
            process.use(to, origin)
            task.done = partial(process.unuse, to, origin)
        if self._findings.trace:
            task.site = here()
        if process.races is not None:
            task.accesses = (
                (origin, source, source + count, False),
                (to, destination, destination + count, True),
            )
        if self._profile is not None:
            task.seconds = self._profile.copy(count, self._bandwidth(to, origin))
            task.lane = engine.model.copies["d2d" if to.device == origin.device else "h2d" if to.device >= 0 else "d2h"]
            process.spend(self._profile.launch, _COPY)
        engine.submit(target, task, _COPY)
        return codes.SUCCESS

    def _copied(self, engine: Engine, target: Stream, destination: int, source: int, count: int) -> bool:
        """Do a small copy now if its stream has nothing before it: to hand it to another thread takes longer."""
        context = target.context
        with engine.lock:
            if target.state is not State.IDLE or engine.stopped or context.stopped is not None or engine.model.faults:
                return False
            move_held(destination, source, count)
            engine.model.skip(target)
        return True

    def _old_pageable(self, target: Stream, host: int, to: Block | None, destination: int, count: int) -> int:
        """CANN before 8.5: host addresses must be aligned, and what a pageable copy does is undefined."""
        if host % 64:
            raise Failure(codes.ADDR_UNALIGNED, f"the host address {host:#x} is not aligned to 64 bytes")
        text = "host memory that did not come from malloc_host makes the copy undefined"
        self._findings.note("pageable-async-copy", _COPY, text, codes.INVALID_MEMORY_TYPE)
        # undefined is what it is: the device gets a pattern, the host nothing
        if to is not None:
            task = Fill(destination, to, _UNDEFINED, count, count <= self._inline)
            engine = self._process.engine_of(target)
            self._process.watch(task, to)
            if self._races is not None:
                task.accesses = ((to, destination, destination + count, True),)
            engine.submit(target, task, _COPY)
        return codes.SUCCESS

    def _check(self, destination: int, maximum: int, source: int, count: int, kind: int) -> None:
        if destination == 0 or source == 0:
            raise Failure(codes.INVALID_PARAM, f"copy of {count} bytes from {source:#x} to {destination:#x}")
        if count > maximum:
            raise Failure(codes.PARAM_INVALID, f"copy of {count} bytes to where only {maximum} fit", "overflow")
        if kind not in codes.MEMCPY_KINDS:
            raise Failure(codes.PARAM_INVALID, f"{kind} is no kind of copy")
