"""``acl.*``: init and finalize, versions, error text, data buffers, small helpers (reference §4, §12)."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Callable

from . import codes
from .args import Failure, call
from .findings import Leak
from .process import Process
from .tensors import BY_ACL

_VERSION = (1, 0, 0)


class DataBuffer:
    """An address and a size; owns nothing."""

    __slots__ = ("address", "size")

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size


class TopCalls:
    """The functions of ``acl`` itself."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.buffers: dict[int, DataBuffer] = {}
        # another number whenever a dataset or data buffer has become another
        self.version = 0
        # datasets and data buffers of queued runs, counted in strict mode
        self.in_flight: Counter[int] = Counter()
        # set by whoever knows all the tables
        self.leaks: Callable[[], tuple[Leak, ...]] = tuple

    @call("|s")
    def init(self, config_path: str = "") -> int:
        """Start; a second call gives 100002."""
        process = self._process
        if process.closed and process.pid == os.getpid():
            raise Failure(codes.SOCKET_CLOSE, "the emulator was shut down")
        if config_path:
            try:
                with open(config_path, encoding="utf-8") as file:
                    json.load(file)
            except OSError as error:
                raise Failure(codes.INVALID_FILE, f"cannot read {config_path!r}: {error.strerror}") from None
            except ValueError as error:
                raise Failure(codes.PARSE_FILE, f"{config_path!r} is not JSON: {error}") from None
        process.begin()
        return codes.SUCCESS

    @call()
    def finalize(self) -> int:
        """End, whatever the number of init calls; a second call gives 100037."""
        self._process.end(self.leaks)
        return codes.SUCCESS

    @call(failed=(0,))
    def finalize_reference(self) -> tuple[int, int]:
        """End when as many calls were made as of init; gives the calls that are left."""
        return self._process.end(self.leaks, once=True), codes.SUCCESS

    @call()
    def get_soc_name(self) -> str:
        """The chip's name."""
        return self._process.config.soc_name

    @call()
    def get_recent_err_msg(self) -> str | None:
        """This thread's last error text, or None; cleared on read."""
        local = self._process.local
        message = local.message
        if message is not None:
            local.message = None
        return message

    @call(failed=(0, 0, 0))
    def get_version(self) -> tuple[int, int, int, int]:
        """Version of the C API."""
        return (*_VERSION, codes.SUCCESS)

    @call("i", failed=({},))
    def get_cann_version(self, package: int) -> tuple[dict[str, str], int]:
        """Version of an installed package: there is none here, only the release that is emulated."""
        return {"version": self._process.config.cann}, codes.SUCCESS

    @call("s", failed=("",))
    def get_version_str(self, package: str) -> tuple[str, int]:
        """Version of an installed package as text."""
        return self._process.config.cann, codes.SUCCESS

    @call("ii", failed=(0,))
    def get_device_capability(self, device: int, info: int) -> tuple[int, int]:
        """What a device can do beside the ordinary: nothing."""
        self._process.device(device)
        return 0, codes.SUCCESS

    @call("ks", bare=None)
    def app_log(self, level: int, text: str) -> None:
        """Write to the device log, which the emulator does not keep."""

    @call("i", bare=0)
    def data_type_size(self, dtype: int) -> int:
        """Bytes of one element; 0 when unknown or smaller than a byte."""
        kind = BY_ACL.get(dtype)
        return kind.bits // 8 if kind is not None else 0

    @call("I", bare=0.0)
    def float16_to_float(self, value: int) -> float:
        """The value of sixteen bits read as float16."""
        number: float = struct.unpack("<e", struct.pack("<H", value & 0xFFFF))[0]
        return number

    @call("f", bare=0)
    def float_to_float16(self, value: float) -> int:
        """The sixteen bits of the nearest float16."""
        try:
            bits: int = struct.unpack("<H", struct.pack("<e", value))[0]
        except OverflowError:
            return 0x7C00 if value > 0 else 0xFC00
        return bits

    # -- data buffers -------------------------------------------------------------------------------------------

    def buffer(self, handle: int) -> DataBuffer:
        """A data buffer by handle."""
        found = self.buffers.get(handle)
        if found is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a data buffer, or was destroyed")
        return found

    def at_rest(self, handle: int, call: str, what: str) -> None:
        """Refuse to change what a queued run was given (reference §11)."""
        if self.in_flight and self.in_flight[handle] and not self._process.on_lost_device():
            text = f"{what} {handle:#x} was changed while a queued run has it"
            self._process.findings.note("dataset-in-use", call, text, codes.INVALID_PARAM)

    @call("kk", bare=0)
    def create_data_buffer(self, address: int, size: int) -> int:
        """A data buffer over memory that stays the caller's."""
        handle = self._process.new_handle()
        self.buffers[handle] = DataBuffer(address, size)
        self._process.findings.made("data buffer", handle)
        return handle

    @call("k")
    def destroy_data_buffer(self, buffer: int) -> int:
        """Forget a data buffer; its memory stays."""
        self.at_rest(buffer, "acl.destroy_data_buffer", "data buffer")
        if self.buffers.pop(buffer, None) is None:
            raise Failure(codes.INVALID_PARAM, f"{buffer:#x} is not a data buffer, or was destroyed")
        self.version += 1
        return codes.SUCCESS

    @call("kkk")
    def update_data_buffer(self, buffer: int, address: int, size: int) -> int:
        """Point a data buffer at other memory."""
        found = self.buffer(buffer)
        self.at_rest(buffer, "acl.update_data_buffer", "data buffer")
        found.address = address
        found.size = size
        self.version += 1
        return codes.SUCCESS

    @call("k", bare=0)
    def get_data_buffer_addr(self, buffer: int) -> int:
        """The address."""
        return self.buffer(buffer).address

    @call("k", bare=0)
    def get_data_buffer_size(self, buffer: int) -> int:
        """The size, cut to 32 bits."""
        return self.buffer(buffer).size & 0xFFFFFFFF

    @call("k", bare=0)
    def get_data_buffer_size_v2(self, buffer: int) -> int:
        """The size."""
        return self.buffer(buffer).size
