"""``acl.mdl``: descriptions of models (reference §11)."""

from __future__ import annotations

from typing import Any

from . import codes
from .acl_mdl import ModelCalls
from .args import Failure, call
from .offline import from_memory, from_path
from .process import Process
from .tensors import Tensor

_LONGEST_NAME = 127
_MOST_GEARS = 4096


class Description:
    """What `get_desc` fills in."""

    __slots__ = ("inputs", "model", "outputs")

    def __init__(self) -> None:
        self.model = 0
        self.inputs: tuple[Tensor, ...] | None = None
        self.outputs: tuple[Tensor, ...] = ()


class DescriptionCalls:
    """Model-description functions."""

    def __init__(self, process: Process, models: ModelCalls) -> None:
        self._process = process
        self._models = models
        self._descriptions: dict[int, Description] = {}

    @call(bare=0)
    def create_desc(self) -> int:
        """An empty description."""
        handle = self._process.new_handle()
        self._descriptions[handle] = Description()
        return handle

    @call("k")
    def destroy_desc(self, description: int) -> int:
        """Forget a description."""
        if self._descriptions.pop(description, None) is None:
            raise Failure(codes.INVALID_PARAM, f"{description:#x} is not a model description, or was destroyed")
        return codes.SUCCESS

    @call("kI")
    def get_desc(self, description: int, model: int) -> int:
        """Describe a loaded model."""
        found = self._empty(description)
        network = self._process.model(model).network
        if network is None:
            raise Failure(codes.GE_MODEL_ID_INVALID, f"model {model} was unloaded")
        found.model, found.inputs, found.outputs = model, network.inputs, network.outputs
        return codes.SUCCESS

    @call("ks")
    def get_desc_from_file(self, description: int, path: str) -> int:
        """Describe a model file."""
        found = self._empty(description)
        found.inputs, found.outputs = self._models.signature(from_path(path))
        return codes.SUCCESS

    @call("kkk")
    def get_desc_from_mem(self, description: int, address: int, size: int) -> int:
        """Describe a model in memory."""
        found = self._empty(description)
        found.inputs, found.outputs = self._models.signature(from_memory(address, size))
        return codes.SUCCESS

    def _empty(self, handle: int) -> Description:
        found = self._descriptions.get(handle)
        if found is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a model description, or was destroyed")
        return found

    def _filled(self, handle: int) -> Description:
        found = self._empty(handle)
        if found.inputs is None:
            raise Failure(codes.INVALID_PARAM, f"the description {handle:#x} was not filled with get_desc")
        return found

    def _input(self, handle: int, index: int) -> Tensor:
        inputs = self._filled(handle).inputs or ()
        if index >= len(inputs):
            raise Failure(codes.INVALID_PARAM, f"input {index} of {len(inputs)}")
        return inputs[index]

    def _output(self, handle: int, index: int) -> Tensor:
        outputs = self._filled(handle).outputs
        if index >= len(outputs):
            raise Failure(codes.INVALID_PARAM, f"output {index} of {len(outputs)}")
        return outputs[index]

    # -- counts, sizes, names, types ----------------------------------------------------------------------------

    @call("k", bare=0)
    def get_num_inputs(self, description: int) -> int:
        """Number of inputs."""
        return len(self._filled(description).inputs or ())

    @call("k", bare=0)
    def get_num_outputs(self, description: int) -> int:
        """Number of outputs."""
        return len(self._filled(description).outputs)

    @call("kk", bare=0)
    def get_input_size_by_index(self, description: int, index: int) -> int:
        """Bytes of an input."""
        return self._input(description, index).nbytes

    @call("kk", bare=0)
    def get_output_size_by_index(self, description: int, index: int) -> int:
        """Bytes of an output."""
        return self._output(description, index).nbytes

    @call("kk", bare=None)
    def get_input_name_by_index(self, description: int, index: int) -> str:
        """Name of an input."""
        return self._input(description, index).name

    @call("kk", bare=None)
    def get_output_name_by_index(self, description: int, index: int) -> str:
        """Name of an output."""
        return self._output(description, index).name

    @call("ks", failed=(0,))
    def get_input_index_by_name(self, description: int, name: str) -> tuple[int, int]:
        """Index of an input; a code other than 0 when there is none of that name."""
        return self._index(self._filled(description).inputs or (), name)

    @call("ks", failed=(0,))
    def get_output_index_by_name(self, description: int, name: str) -> tuple[int, int]:
        """Index of an output."""
        return self._index(self._filled(description).outputs, name)

    def _index(self, tensors: tuple[Tensor, ...], name: str) -> tuple[int, int]:
        for index, tensor in enumerate(tensors):
            if tensor.name == name:
                return index, codes.SUCCESS
        raise Failure(codes.INVALID_PARAM, f"the model has no tensor {name!r} there")

    @call("kk", bare=-1)
    def get_input_format(self, description: int, index: int) -> int:
        """Layout of an input: ND, as an .onnx says nothing more."""
        self._input(description, index)
        return codes.FORMAT_ND

    @call("kk", bare=-1)
    def get_output_format(self, description: int, index: int) -> int:
        """Layout of an output."""
        self._output(description, index)
        return codes.FORMAT_ND

    @call("kk", bare=-1)
    def get_input_data_type(self, description: int, index: int) -> int:
        """ACL's element type of an input."""
        return self._input(description, index).type.acl

    @call("kk", bare=-1)
    def get_output_data_type(self, description: int, index: int) -> int:
        """ACL's element type of an output."""
        return self._output(description, index).type.acl

    # -- dimensions ---------------------------------------------------------------------------------------------

    def _dims(self, description: int, side: str, index: int, tensor: Tensor) -> dict[str, Any]:
        name = tensor.name
        if len(name.encode()) > _LONGEST_NAME:
            name = _synthetic(self._filled(description).model, side, index)
        return {"name": name, "dimCount": len(tensor.shape), "dims": list(tensor.shape)}

    @call("kk", failed=({},))
    def get_input_dims(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Name and dimensions of an input."""
        return self._dims(description, "input", index, self._input(description, index)), codes.SUCCESS

    @call("kk", failed=({},))
    def get_input_dims_v2(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """The same; differs for static AIPP only."""
        return self._dims(description, "input", index, self._input(description, index)), codes.SUCCESS

    @call("kk", failed=({},))
    def get_output_dims(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Name and dimensions of an output."""
        return self._dims(description, "output", index, self._output(description, index)), codes.SUCCESS

    @call("kk", failed=({},))
    def get_cur_output_dims(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Dimensions of an output for the gear set last; for a description of a loaded model only."""
        if not self._filled(description).model:
            raise Failure(codes.INVALID_PARAM, "the description was made from a file, not from a loaded model")
        return self._dims(description, "output", index, self._output(description, index)), codes.SUCCESS

    @call("ks", bare=None)
    def get_tensor_real_name(self, description: int, name: str) -> str | None:
        """The model's own name for one that was too long for a dims dict."""
        found = self._filled(description)
        for side, tensors in (("input", found.inputs or ()), ("output", found.outputs)):
            for index, tensor in enumerate(tensors):
                if name in (tensor.name, _synthetic(found.model, side, index)):
                    return tensor.name
        return None

    # -- gears: a model made from an .onnx with fixed axes has none ----------------------------------------------

    @call("k", failed=({},))
    def get_dynamic_batch(self, description: int) -> tuple[dict[str, Any], int]:
        """Batch gears."""
        self._filled(description)
        return {"batchCount": 0, "batch": []}, codes.SUCCESS

    @call("kk", failed=({},))
    def get_dynamic_hw(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Height and width gears."""
        self._filled(description)
        return {"hwCount": 0, "hw": []}, codes.SUCCESS

    @call("kk", failed=(0,))
    def get_input_dynamic_gear_count(self, description: int, index: int) -> tuple[int, int]:
        """Number of dims gears."""
        self._filled(description)
        return 0, codes.SUCCESS

    @call("kkk", failed=(None,))
    def get_input_dynamic_dims(self, description: int, index: int, count: int) -> tuple[list[dict[str, Any]], int]:
        """Dims gears."""
        if count > _MOST_GEARS:
            raise Failure(codes.INVALID_PARAM, f"{count} gears were asked for, {_MOST_GEARS} is the most")
        self._filled(description)
        return [], codes.SUCCESS

    @call("Ikkk")
    def set_dynamic_batch_size(self, model: int, dataset: int, index: int, batch: int) -> int:
        """Choose a batch gear, which a static model has not."""
        if batch == 0:
            raise Failure(codes.INVALID_PARAM, "a batch of 0")
        raise self._not_dynamic(model)

    @call("Ikkkk")
    def set_dynamic_hw_size(self, model: int, dataset: int, index: int, height: int, width: int) -> int:
        """Choose a height and width gear, which a static model has not."""
        raise self._not_dynamic(model)

    @call("IkkO")
    def set_input_dynamic_dims(self, model: int, dataset: int, index: int, dims: Any) -> int:
        """Choose a dims gear, which a static model has not."""
        raise self._not_dynamic(model)

    def _not_dynamic(self, model: int) -> Failure:
        self._process.model(model)
        return Failure(codes.MODEL_NOT_DYNAMIC, f"model {model} has no gears")


def _synthetic(model: int, side: str, index: int) -> str:
    return f"acl_modelId_{model}_{side}_{index}"
