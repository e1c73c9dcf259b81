"""``acl.rt``, the rarer functions: peers, modes, timeouts, host registration, errors (reference §5, §7, §8, §10)."""

from __future__ import annotations

import mmap
from typing import Any

from . import codes
from .args import Failure, call
from .memory import Block
from .process import Process

_UNAVAILABLE = -1
_NOT_APPLICABLE = 0xFFFFFFFF


class MoreCalls:
    """Functions that few programs use. Modes are kept and have no effect."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._saturation = 0
        self._op_wait = 0
        self._op_execute_us = 0
        self._peers = process.peers
        self._registered: dict[int, Block] = {}

    # -- devices ------------------------------------------------------------------------------------------------

    @call("i")
    def set_ts_device(self, scheduler: int) -> int:
        """Task scheduler: 0 AI core, 1 vector core."""
        if scheduler not in (0, 1):
            raise Failure(codes.PARAM_INVALID, f"a scheduler of 0 or 1 was wanted, {scheduler} was given")
        self._process.current()
        return codes.SUCCESS

    @call("i")
    def set_device_sat_mode(self, mode: int) -> int:
        """Overflow mode: 0 saturate, 1 Inf and NaN."""
        if mode not in (0, 1):
            raise Failure(codes.PARAM_INVALID, f"an overflow mode of 0 or 1 was wanted, {mode} was given")
        self._process.current()
        self._saturation = mode
        return codes.SUCCESS

    @call(failed=(0,))
    def get_device_sat_mode(self) -> tuple[int, int]:
        """Overflow mode."""
        self._process.current()
        return self._saturation, codes.SUCCESS

    @call("i", failed=({},))
    def get_device_utilization_rate(self, device: int) -> tuple[dict[str, Any], int]:
        """Percentages; -1 for what is not measured here."""
        memory = self._process.device(device).memory
        return {
            "cube_utilization": _UNAVAILABLE,
            "vector_utilization": _UNAVAILABLE,
            "aicpu_utilization": _UNAVAILABLE,
            "memory_utilization": round(100 * memory.used / memory.size),
            "utilization_extend": None,
        }, codes.SUCCESS

    @call("ii", failed=(0,))
    def device_can_access_peer(self, device: int, peer: int) -> tuple[int, int]:
        """1 for any other device."""
        self._process.device(device)
        self._process.device(peer)
        return int(device != peer), codes.SUCCESS

    @call("iI")
    def device_enable_peer_access(self, peer: int, flags: int) -> int:
        """Let this thread's device reach a peer's memory."""
        self._peers.add((self._process.current().device.index, self._process.device(peer).index))
        return codes.SUCCESS

    @call("i")
    def device_disable_peer_access(self, peer: int) -> int:
        """The opposite."""
        self._peers.discard((self._process.current().device.index, self._process.device(peer).index))
        return codes.SUCCESS

    @call("ii", failed=(0,))
    def device_peer_access_status(self, device: int, peer: int) -> tuple[int, int]:
        """1 when enabled."""
        return int((device, peer) in self._peers), codes.SUCCESS

    @call("iI")
    def device_task_abort(self, device: int, timeout: int) -> int:
        """Drop what is queued on every stream of a device."""
        found = self._process.device(device)
        engine = found.running()
        with engine.lock:
            for stream in found.all_streams():
                engine.model.drop(stream, codes.DEVICE_TASK_ABORT)
            if engine.model.ready:
                engine.kick()
        return codes.SUCCESS

    @call("ii", failed=(0,))
    def get_device_info(self, device: int, attribute: int) -> tuple[int, int]:
        """A number that describes a device, which the emulator has not."""
        self._process.device(device)
        raise Failure(codes.FEATURE_NOT_SUPPORT, f"the emulator has no device attribute {attribute}")

    @call(failed=(0, 0))
    def device_get_stream_priority_range(self) -> tuple[int, int, int]:
        """Least and greatest priority; a smaller number is a higher one."""
        return 7, 0, codes.SUCCESS

    @call(failed=(0,))
    def ctx_get_current_default_stream(self) -> tuple[int, int]:
        """The default stream of this thread's context, which is the integer 0."""
        self._process.current()
        return 0, codes.SUCCESS

    # -- limits on operators ------------------------------------------------------------------------------------

    @call("I")
    def set_op_wait_timeout(self, seconds: int) -> int:
        """Limit on device-side event waits, which the emulator does not enforce; 0: none."""
        self._process.current()
        self._process.chip_has("set_op_wait_timeout")
        self._op_wait = seconds
        return codes.SUCCESS

    @call("I")
    def set_op_execute_timeout(self, seconds: int) -> int:
        """Limit on operators, which the emulator does not enforce."""
        self._process.current()
        self._op_execute_us = seconds * 1_000_000
        return codes.SUCCESS

    @call("k", failed=(0,))
    def set_op_execute_timeout_v2(self, microseconds: int) -> tuple[int, int]:
        """The same; gives the limit that is used."""
        self._process.current()
        self._op_execute_us = microseconds
        return microseconds, codes.SUCCESS

    @call(failed=(0,))
    def get_op_execute_timeout(self) -> tuple[int, int]:
        """The limit on operators in milliseconds."""
        return self._op_execute_us // 1000, codes.SUCCESS

    # -- host memory --------------------------------------------------------------------------------------------

    @call("kki", failed=(0,))
    def host_register(self, address: int, size: int, kind: int) -> tuple[int, int]:
        """Page-lock host memory; its device address is the same here."""
        self._process.chip_has("host_register")
        self._register(address, size)
        return address, codes.SUCCESS

    @call("kkI")
    def host_register_v2(self, address: int, size: int, flag: int) -> int:
        """The same; `host_get_device_pointer` gives the device address."""
        self._process.chip_has("host_register_v2")
        self._register(address, size)
        return codes.SUCCESS

    @call("kI", failed=(0,))
    def host_get_device_pointer(self, address: int, flag: int) -> tuple[int, int]:
        """Device address of registered host memory."""
        if self._process.pinned.find(address) is None:
            raise Failure(codes.HOST_MEMORY_NOT_REGISTERED, f"{address:#x} is not registered")
        return address, codes.SUCCESS

    @call("k")
    def host_unregister(self, address: int) -> int:
        """Undo a registration."""
        if self._registered.pop(address, None) is None or self._process.pinned.remove(address) is None:
            raise Failure(codes.HOST_MEMORY_NOT_REGISTERED, f"{address:#x} is not registered")
        return codes.SUCCESS

    def _register(self, address: int, size: int) -> None:
        if address == 0 or size == 0:
            raise Failure(codes.INVALID_PARAM, f"{size} bytes at {address:#x}")
        if address % mmap.PAGESIZE:
            raise Failure(codes.ADDR_UNALIGNED, f"{address:#x} is not aligned to a page")
        if self._process.block_of(address, 1) is not None:
            raise Failure(codes.HOST_MEMORY_ALREADY_REGISTERED, f"{address:#x} is registered already")
        block = Block(address, size, size, 0, -1)
        self._process.pinned.add(block)
        self._registered[address] = block

    @call("k", failed=({},))
    def pointer_get_attributes(self, address: int) -> tuple[dict[str, Any], int]:
        """Where an address lies: type 0 pinned or pageable host memory, 1 device memory."""
        block = self._process.block_of(address, 1)
        on_device = block is not None and block.device >= 0
        location = {"id": block.device if block is not None and on_device else 0, "type": int(on_device)}
        return {"location": location, "pageSize": mmap.PAGESIZE}, codes.SUCCESS

    # -- what went wrong ----------------------------------------------------------------------------------------

    @call("i", bare=0)
    def peek_at_last_error(self, level: int) -> int:
        """The last code that a call gave on this thread."""
        return self._process.local.last_error

    @call("i", bare=0)
    def get_last_error(self, level: int) -> int:
        """The same, and forget it."""
        local = self._process.local
        code = local.last_error
        local.last_error = codes.SUCCESS
        return code

    @call("O")
    def set_exception_info_callback(self, function: Any) -> int:
        """A function that is called with a handle when a task fails on a device; None for none."""
        if function is not None and not callable(function):
            raise TypeError("acl.rt.set_exception_info_callback: args could not be parsed: not callable")
        self._process.on_exception = function
        return codes.SUCCESS

    def _info(self, handle: int, what: str) -> int:
        info = self._process.exceptions.get(handle)
        return info[what] if info is not None else _NOT_APPLICABLE

    @call("k", bare=_NOT_APPLICABLE)
    def get_task_id_from_exception_info(self, info: int) -> int:
        """Number of the task on its stream."""
        return self._info(info, "task")

    @call("k", bare=_NOT_APPLICABLE)
    def get_stream_id_from_exception_info(self, info: int) -> int:
        """The stream's id."""
        return self._info(info, "stream")

    @call("k", bare=_NOT_APPLICABLE)
    def get_thread_id_from_exception_info(self, info: int) -> int:
        """The thread that submitted the task, which is not kept."""
        return _NOT_APPLICABLE

    @call("k", bare=_NOT_APPLICABLE)
    def get_device_id_from_exception_info(self, info: int) -> int:
        """The device."""
        return self._info(info, "device")

    @call("k", bare=_NOT_APPLICABLE)
    def get_error_code_from_exception_info(self, info: int) -> int:
        """The code."""
        return self._info(info, "code")
