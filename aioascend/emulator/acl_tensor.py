"""``acl.*``: tensor descriptors (reference §12)."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from . import codes
from .args import Failure, call
from .process import Process
from .tensors import BY_ACL

_UNDEFINED = -1


class TensorDesc:
    """Type, dimensions, layout and name of a tensor; `const` is its value where it is known on the host."""

    __slots__ = ("const", "dims", "dtype", "format", "name", "ranges")

    def __init__(self, dtype: int, dims: list[int], layout: int) -> None:
        self.dtype = dtype
        self.dims = dims
        self.format = layout
        self.name = ""
        self.ranges: list[list[int]] = []
        self.const: bytes | None = None

    def copy(self) -> TensorDesc:
        """An independent descriptor with the same content."""
        other = TensorDesc(self.dtype, list(self.dims), self.format)
        other.name, other.ranges, other.const = self.name, [list(one) for one in self.ranges], self.const
        return other

    @property
    def count(self) -> int:
        """Number of elements, 0 when an axis is open."""
        return 0 if any(size < 0 for size in self.dims) else prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        kind = BY_ACL.get(self.dtype)
        return 0 if kind is None else (self.count * kind.bits + 7) // 8


def dims_list(value: Any) -> list[int]:
    """A list or tuple of sizes; `TypeError` otherwise."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"args could not be parsed: a list of sizes was wanted, not {type(value).__name__}")
    return [int(size) for size in value]


class TensorCalls:
    """Tensor-descriptor functions."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.descriptors: dict[int, TensorDesc] = {}
        self.owned: set[int] = set()

    def descriptor(self, handle: int) -> TensorDesc:
        """A descriptor by handle."""
        found = self.descriptors.get(handle)
        if found is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a tensor descriptor, or was destroyed")
        return found

    def enter(self, descriptor: TensorDesc) -> int:
        """A handle for a descriptor."""
        handle = self._process.new_handle()
        self.descriptors[handle] = descriptor
        self._process.findings.made("tensor description", handle)
        return handle

    def own(self, descriptor: TensorDesc) -> int:
        """A handle for a descriptor that belongs to a dataset, and goes with it."""
        handle = self._process.new_handle()
        self.descriptors[handle] = descriptor
        self.owned.add(handle)
        return handle

    @call("iOi", bare=0)
    def create_tensor_desc(self, dtype: int, dims: Any, layout: int) -> int:
        """A descriptor."""
        return self.enter(TensorDesc(dtype, dims_list(dims), layout))

    @call("k", bare=None)
    def destroy_tensor_desc(self, descriptor: int) -> None:
        """Forget a descriptor."""
        self.descriptors.pop(descriptor, None)

    @call("k", bare=_UNDEFINED)
    def get_tensor_desc_type(self, descriptor: int) -> int:
        """ACL's element type."""
        return self.descriptor(descriptor).dtype

    @call("k", bare=_UNDEFINED)
    def get_tensor_desc_format(self, descriptor: int) -> int:
        """Layout."""
        return self.descriptor(descriptor).format

    @call("k", bare=0)
    def get_tensor_desc_size(self, descriptor: int) -> int:
        """Bytes."""
        return self.descriptor(descriptor).nbytes

    @call("k", bare=0)
    def get_tensor_desc_element_count(self, descriptor: int) -> int:
        """Elements."""
        return self.descriptor(descriptor).count

    @call("k", bare=0)
    def get_tensor_desc_num_dims(self, descriptor: int) -> int:
        """Number of axes."""
        return len(self.descriptor(descriptor).dims)

    def _dim(self, handle: int, index: int) -> int:
        dims = self.descriptor(handle).dims
        if index >= len(dims):
            raise Failure(codes.INVALID_PARAM, f"axis {index} of {len(dims)}")
        return dims[index]

    @call("kk", bare=_UNDEFINED)
    def get_tensor_desc_dim(self, descriptor: int, index: int) -> int:
        """Size of an axis."""
        return self._dim(descriptor, index)

    @call("kk", failed=(0,))
    def get_tensor_desc_dim_v2(self, descriptor: int, index: int) -> tuple[int, int]:
        """Size of an axis."""
        return self._dim(descriptor, index), codes.SUCCESS

    @call("kkk", failed=(None,))
    def get_tensor_desc_dim_range(self, descriptor: int, index: int, count: int) -> tuple[list[int], int]:
        """Least and greatest size of an axis."""
        found = self.descriptor(descriptor)
        size = self._dim(descriptor, index)
        return (found.ranges[index] if index < len(found.ranges) else [size, size]), codes.SUCCESS

    @call("k", bare=None)
    def get_tensor_desc_name(self, descriptor: int) -> str:
        """Name."""
        return self.descriptor(descriptor).name

    @call("ks", bare=None)
    def set_tensor_desc_name(self, descriptor: int, name: str) -> None:
        """Set the name."""
        self.descriptor(descriptor).name = name

    @call("kO")
    def set_tensor_shape_range(self, descriptor: int, ranges: Any) -> int:
        """Set least and greatest sizes, one pair an axis."""
        self.descriptor(descriptor).ranges = [dims_list(one) for one in ranges]
        return codes.SUCCESS

    @call("ki")
    def set_tensor_format(self, descriptor: int, layout: int) -> int:
        """Set the storage layout."""
        self.descriptor(descriptor).format = layout
        return codes.SUCCESS

    @call("kO")
    def set_tensor_shape(self, descriptor: int, dims: Any) -> int:
        """Set the storage shape."""
        self.descriptor(descriptor).dims = dims_list(dims)
        return codes.SUCCESS

    @call("ki", failed=(0,))
    def trans_tensor_desc_format(self, descriptor: int, layout: int) -> tuple[int, int]:
        """A copy of a descriptor in another layout. Dimensions stay: layouts are ND here."""
        copied = self.descriptor(descriptor).copy()
        copied.format = layout
        return self.enter(copied), codes.SUCCESS

    @call("kkk")
    def set_tensor_const(self, descriptor: int, address: int, size: int) -> int:
        """Give the tensor's value, copied from host memory."""
        found = self.descriptor(descriptor)
        if address == 0 or self._process.device_of(address) is not None:
            raise Failure(codes.INVALID_PARAM, f"{address:#x} is not host memory")
        self._process.block_of(address, size)
        found.const = ctypes.string_at(address, size)
        return codes.SUCCESS
