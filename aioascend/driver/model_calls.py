"""The checked calls on models, their descriptions and datasets."""

from __future__ import annotations

import os
from ctypes import byref, c_uint32
from typing import Any, TypedDict

import numpy as np

from ..errors import InvalidInput
from . import codes
from .checked import CheckedCalls

__all__ = ["Dims", "ModelCalls"]


class Dims(TypedDict):
    """The dims dict of pyACL: `dims` holds `dimCount` sizes."""

    name: str
    dimCount: int
    dims: list[int]


class ModelCalls(CheckedCalls):
    """The functions of `acl.mdl`, and the data buffers that datasets are made of."""

    # -- models -----------------------------------------------------------------------------------------------------

    def load_from_file(self, path: str) -> int:
        """Load a model file; the system manages its memory. Slow."""
        acl, c = self.acl, self.c
        if c.aclmdlLoadFromFile is None:
            model, ret = acl.mdl.load_from_file(path)
        else:
            if "\0" in path:
                raise InvalidInput(f"wanted the path of a model, given {path!r}, which has a null character in it")
            cell = c_uint32()
            ret = c.aclmdlLoadFromFile(os.fsencode(path), byref(cell))
            model = cell.value
        if ret:
            raise self.error(ret, "acl.mdl.load_from_file", f"({path!r})")
        return int(model)

    def load_from_bytes(self, data: bytes | bytearray | memoryview) -> int:
        """Load a model held in host memory, which is not copied. Slow."""
        acl, c = self.acl, self.c
        view = np.frombuffer(data, np.uint8)  # a plain address serves every kind of buffer (pyACL reference §13)
        if c.aclmdlLoadFromMem is None:
            model, ret = acl.mdl.load_from_mem(view.ctypes.data, view.nbytes)
        else:
            cell = c_uint32()
            ret = c.aclmdlLoadFromMem(view.ctypes.data, view.nbytes, byref(cell))
            model = cell.value
        if ret:
            raise self.error(ret, "acl.mdl.load_from_mem", f"({view.nbytes} bytes)")
        return int(model)

    def unload(self, model: int) -> None:
        """Unload a model that nothing uses any more, in the context it was loaded in."""
        acl, c = self.acl, self.c
        ret = acl.mdl.unload(model) if c.aclmdlUnload is None else c.aclmdlUnload(model)
        if ret:
            raise self.error(ret, "acl.mdl.unload")

    def end_runs(self, model: int) -> None:
        """Have the runs of a model that is being closed fail at once: the emulator can, pyACL has no call for it."""
        emulator = self.backend.emulator
        if emulator is not None:
            emulator.end_runs(model)

    def execute_async(self, model: int, inputs: int, outputs: int, stream: int) -> None:
        """Queue one run of the model on two datasets; one model id belongs on one stream only (§11)."""
        acl, c = self.acl, self.c
        if c.aclmdlExecuteAsync is None:
            ret = acl.mdl.execute_async(model, inputs, outputs, stream)
        else:
            ret = c.aclmdlExecuteAsync(model, inputs, outputs, stream)
        if ret:
            raise self.error(ret, "acl.mdl.execute_async")

    # -- model descriptions -----------------------------------------------------------------------------------------

    def create_desc(self, model: int) -> int:
        """The description of a loaded model."""
        acl = self.acl
        desc = acl.mdl.create_desc()
        if not desc:
            raise self.error(codes.BAD_ALLOC, "acl.mdl.create_desc")
        ret = acl.mdl.get_desc(desc, model)
        if ret:
            error = self.error(ret, "acl.mdl.get_desc")
            acl.mdl.destroy_desc(desc)
            raise error
        return int(desc)

    def destroy_desc(self, desc: int) -> None:
        """Destroy a model description."""
        acl = self.acl
        ret = acl.mdl.destroy_desc(desc)
        if ret:
            raise self.error(ret, "acl.mdl.destroy_desc")

    def num_inputs(self, desc: int) -> int:
        """The number of inputs, including those that gears and AIPP add."""
        acl = self.acl
        return int(self._told(acl.mdl.get_num_inputs(desc), 0, "acl.mdl.get_num_inputs"))

    def num_outputs(self, desc: int) -> int:
        """The number of outputs."""
        acl = self.acl
        return int(self._told(acl.mdl.get_num_outputs(desc), 0, "acl.mdl.get_num_outputs"))

    def _told(self, value: Any, failed: Any, call: str) -> Any:
        """The value of a call that has no status, unless it is the one of a failure and the driver says why."""
        if value == failed:
            error = self.error(codes.FAILURE, call, f" (which gave {value})")
            if error.detail or value is None:
                raise error
        return value

    def input_dims(self, desc: int, index: int) -> Dims:
        """Name and sizes of input `index`; dynamic axes are -1."""
        acl = self.acl
        dims, ret = acl.mdl.get_input_dims(desc, index)
        if ret:
            raise self.error(ret, "acl.mdl.get_input_dims")
        return dims  # type: ignore[no-any-return]

    def output_dims(self, desc: int, index: int) -> Dims:
        """Name and sizes of output `index`."""
        acl = self.acl
        dims, ret = acl.mdl.get_output_dims(desc, index)
        if ret:
            raise self.error(ret, "acl.mdl.get_output_dims")
        return dims  # type: ignore[no-any-return]

    def input_name(self, desc: int, index: int) -> str:
        """The name of input `index`."""
        acl = self.acl
        name = acl.mdl.get_input_name_by_index(desc, index)
        return str(self._told(name, None, "acl.mdl.get_input_name_by_index"))

    def output_name(self, desc: int, index: int) -> str:
        """The name of output `index`; an `.om` spells it `node:index:tensor`."""
        acl = self.acl
        name = acl.mdl.get_output_name_by_index(desc, index)
        return str(self._told(name, None, "acl.mdl.get_output_name_by_index"))

    def input_dtype(self, desc: int, index: int) -> int:
        """The ACL data type of input `index` (constants.DataType)."""
        acl = self.acl
        return int(self._told(acl.mdl.get_input_data_type(desc, index), -1, "acl.mdl.get_input_data_type"))

    def output_dtype(self, desc: int, index: int) -> int:
        """The ACL data type of output `index`."""
        acl = self.acl
        return int(self._told(acl.mdl.get_output_data_type(desc, index), -1, "acl.mdl.get_output_data_type"))

    def input_nbytes(self, desc: int, index: int) -> int:
        """Bytes of input `index`; 0 where a shape is open."""
        acl = self.acl
        size = acl.mdl.get_input_size_by_index(desc, index)
        return int(self._told(size, 0, "acl.mdl.get_input_size_by_index"))

    def output_nbytes(self, desc: int, index: int) -> int:
        """Bytes of output `index`; 0 where a shape is open."""
        acl = self.acl
        size = acl.mdl.get_output_size_by_index(desc, index)
        return int(self._told(size, 0, "acl.mdl.get_output_size_by_index"))

    # -- datasets ---------------------------------------------------------------------------------------------------

    def create_dataset(self) -> int:
        """An empty dataset."""
        acl = self.acl
        dataset = acl.mdl.create_dataset()
        if not dataset:
            raise self.error(codes.BAD_ALLOC, "acl.mdl.create_dataset")
        return int(dataset)

    def destroy_dataset(self, dataset: int) -> None:
        """Destroy a dataset; its data buffers and their memory stay."""
        acl = self.acl
        ret = acl.mdl.destroy_dataset(dataset)
        if ret:
            raise self.error(ret, "acl.mdl.destroy_dataset")

    def add_dataset_buffer(self, dataset: int, buffer: int) -> None:
        """Append a data buffer: the order of the calls is the tensors' order."""
        acl = self.acl
        _dataset, ret = acl.mdl.add_dataset_buffer(dataset, buffer)
        if ret:
            raise self.error(ret, "acl.mdl.add_dataset_buffer")

    def create_data_buffer(self, pointer: int, nbytes: int) -> int:
        """A data buffer over device memory, which it does not own."""
        acl = self.acl
        buffer = acl.create_data_buffer(pointer, nbytes)
        if not buffer:
            raise self.error(codes.BAD_ALLOC, "acl.create_data_buffer")
        return int(buffer)

    def update_data_buffer(self, buffer: int, pointer: int, nbytes: int) -> None:
        """Point a data buffer at other device memory; no run that uses it may be queued."""
        acl = self.acl
        ret = acl.update_data_buffer(buffer, pointer, nbytes)
        if ret:
            raise self.error(ret, "acl.update_data_buffer")

    def destroy_data_buffer(self, buffer: int) -> None:
        """Destroy a data buffer; the memory stays."""
        acl = self.acl
        ret = acl.destroy_data_buffer(buffer)
        if ret:
            raise self.error(ret, "acl.destroy_data_buffer")
