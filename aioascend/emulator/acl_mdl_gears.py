"""``acl.mdl``: asking for gears and choosing one (reference §11)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from . import codes
from .acl_dataset import DatasetCalls
from .acl_mdl_desc import DescriptionCalls
from .args import Failure, call
from .gears import DATA_INPUT, Gears
from .model import Model
from .process import Process

_MOST_GEARS = 4096


class GearCalls:
    """Functions about gears."""

    def __init__(self, process: Process, descriptions: DescriptionCalls, datasets: DatasetCalls) -> None:
        self._process = process
        self._descriptions = descriptions
        self._datasets = datasets

    def _gears(self, description: int, kind: str) -> Gears | None:
        gears = self._descriptions.signature(description).gears
        return gears if gears is not None and gears.kind == kind else None

    @call("k", failed=({},))
    def get_dynamic_batch(self, description: int) -> tuple[dict[str, Any], int]:
        """Batch gears."""
        gears = self._gears(description, "batch")
        batch = [gear.values[0] for gear in gears.choices] if gears is not None else []
        return {"batchCount": len(batch), "batch": batch}, codes.SUCCESS

    @call("kk", failed=({},))
    def get_dynamic_hw(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Height and width gears."""
        gears = self._gears(description, "hw")
        sizes = [list(gear.values) for gear in gears.choices] if gears is not None else []
        return {"hwCount": len(sizes), "hw": sizes}, codes.SUCCESS

    @call("kk", failed=(0,))
    def get_input_dynamic_gear_count(self, description: int, index: int) -> tuple[int, int]:
        """Number of dims gears."""
        gears = self._gears(description, "dims")
        return (len(gears.choices) if gears is not None else 0), codes.SUCCESS

    @call("kkk", failed=(None,))
    def get_input_dynamic_dims(self, description: int, index: int, count: int) -> tuple[list[dict[str, Any]], int]:
        """Dims gears: for each the dimensions of all inputs, one after the other."""
        if count > _MOST_GEARS:
            raise Failure(codes.INVALID_PARAM, f"{count} gears were asked for, {_MOST_GEARS} is the most")
        gears = self._gears(description, "dims")
        if gears is None:
            return [], codes.SUCCESS
        told = []
        for gear in gears.choices[:count]:
            dims = [size for tensor in gear.inputs for size in tensor.shape]
            told.append({"name": "", "dimCount": len(dims), "dims": dims})
        return told, codes.SUCCESS

    # -- choosing -----------------------------------------------------------------------------------------------

    @call("Ikkk")
    def set_dynamic_batch_size(self, model: int, dataset: int, index: int, batch: int) -> int:
        """Choose a batch gear: written to the dataset's buffer now, and noted for the model."""
        if batch == 0:
            raise Failure(codes.INVALID_PARAM, "a batch of 0")
        return self._choose(model, dataset, index, "batch", (batch,))

    @call("Ikkkk")
    def set_dynamic_hw_size(self, model: int, dataset: int, index: int, height: int, width: int) -> int:
        """Choose a height and width gear."""
        if height == 0 or width == 0:
            raise Failure(codes.INVALID_PARAM, f"a picture of {height} x {width}")
        return self._choose(model, dataset, index, "hw", (height, width))

    @call("IkkO")
    def set_input_dynamic_dims(self, model: int, dataset: int, index: int, dims: Any) -> int:
        """Choose a dims gear by the dimensions of all inputs, one after the other."""
        try:
            wanted = [int(size) for size in dims["dims"][: int(dims["dimCount"])]]
        except (TypeError, KeyError, ValueError):
            raise TypeError(
                f"acl.mdl.set_input_dynamic_dims: args could not be parsed: {dims!r} is no dims dict"
            ) from None
        gears = self._model(model)[1]
        for gear in gears.choices if gears is not None else ():
            if [size for tensor in gear.inputs for size in tensor.shape] == wanted:
                return self._choose(model, dataset, index, "dims", gear.values)
        return self._choose(model, dataset, index, "dims", tuple(wanted))

    def _model(self, number: int) -> tuple[Model, Gears | None]:
        model: Model = self._process.model(number)
        network = model.network
        if network is None:
            raise Failure(codes.GE_MODEL_ID_INVALID, f"model {number} was unloaded")
        return model, network.signature.gears

    def _choose(self, number: int, dataset: int, index: int, kind: str, values: Sequence[int]) -> int:
        model, gears = self._model(number)
        if gears is None:
            raise Failure(codes.MODEL_NOT_DYNAMIC, f"model {number} has no gears")
        gear = gears.find(values) if gears.kind == kind else None
        if gear is None:
            have = [list(one.values) for one in gears.choices]
            raise Failure(
                codes.GE_DYNAMIC_BATCH_SIZE_INVALID,
                f"model {number} has the {gears.kind} gears {have}, not the {kind} gear {list(values)}",
            )
        handles = self._datasets.dataset(dataset)
        if index != len(gears.shown) or index >= len(handles):
            raise Failure(codes.INVALID_PARAM, f"{DATA_INPUT} is input {len(gears.shown)}, {index} was given")
        buffer = self._datasets.buffers.get(handles[index])
        if buffer is None or buffer.address == 0:
            raise Failure(codes.GE_DYNAMIC_INPUT_ADDR_INVALID, f"the data buffer of {DATA_INPUT} has no memory")
        size = 4 * len(values)
        if buffer.size < size:
            raise Failure(
                codes.GE_DYNAMIC_INPUT_LENGTH_INVALID, f"{DATA_INPUT} takes {size} bytes, its buffer has {buffer.size}"
            )
        block = self._process.block_of(buffer.address, size)
        if block is None or block.device < 0:
            raise Failure(codes.GE_DYNAMIC_INPUT_ADDR_INVALID, f"{DATA_INPUT} is not in device memory")
        races = self._process.races
        if races is not None:
            races.host(block, buffer.address, size, True, f"acl.mdl.set_dynamic_{kind}", codes.PARAM_INVALID)
        data = (ctypes.c_int32 * len(values)).from_address(buffer.address + block.delta)
        data[:] = list(values)
        model.gear = gear
        return codes.SUCCESS
