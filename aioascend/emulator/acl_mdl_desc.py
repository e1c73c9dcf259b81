"""``acl.mdl``: descriptions of models (reference §11)."""

from __future__ import annotations

from typing import Any

from . import codes
from .acl_mdl import ModelCalls
from .args import Failure, call
from .gears import Signature
from .offline import from_memory, from_path
from .process import Process
from .tensors import Tensor

_LONGEST_NAME = 127


class Description:
    """What `get_desc` fills in."""

    __slots__ = ("model", "signature")

    def __init__(self) -> None:
        self.model = 0
        self.signature: Signature | None = None


class DescriptionCalls:
    """Model-description functions."""

    def __init__(self, process: Process, models: ModelCalls) -> None:
        self._process = process
        self._models = models
        self.descriptions: dict[int, Description] = {}

    @call(bare=0)
    def create_desc(self) -> int:
        """An empty description."""
        handle = self._process.new_handle()
        self.descriptions[handle] = Description()
        self._process.findings.made("model description", handle)
        return handle

    @call("k")
    def destroy_desc(self, description: int) -> int:
        """Forget a description."""
        if self.descriptions.pop(description, None) is None:
            raise Failure(codes.INVALID_PARAM, f"{description:#x} is not a model description, or was destroyed")
        return codes.SUCCESS

    @call("kI")
    def get_desc(self, description: int, model: int) -> int:
        """Describe a loaded model."""
        found = self._empty(description)
        network = self._process.model(model).network
        if network is None:
            raise Failure(codes.GE_MODEL_ID_INVALID, f"model {model} was unloaded")
        found.model, found.signature = model, network.signature
        return codes.SUCCESS

    @call("ks")
    def get_desc_from_file(self, description: int, path: str) -> int:
        """Describe a model file."""
        found = self._empty(description)
        found.signature = self._models.network(from_path(path)).signature
        return codes.SUCCESS

    @call("kkk")
    def get_desc_from_mem(self, description: int, address: int, size: int) -> int:
        """Describe a model in memory."""
        found = self._empty(description)
        found.signature = self._models.network(from_memory(address, size)).signature
        return codes.SUCCESS

    def _empty(self, handle: int) -> Description:
        found = self.descriptions.get(handle)
        if found is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a model description, or was destroyed")
        return found

    def signature(self, handle: int) -> Signature:
        """What a description describes."""
        signature = self._empty(handle).signature
        if signature is None:
            raise Failure(codes.INVALID_PARAM, f"the description {handle:#x} was not filled with get_desc")
        return signature

    def _input(self, handle: int, index: int) -> Tensor:
        inputs = self.signature(handle).inputs
        if index >= len(inputs):
            raise Failure(codes.INVALID_PARAM, f"input {index} of {len(inputs)}")
        return inputs[index]

    def _output(self, handle: int, index: int) -> Tensor:
        outputs = self.signature(handle).outputs
        if index >= len(outputs):
            raise Failure(codes.INVALID_PARAM, f"output {index} of {len(outputs)}")
        return outputs[index]

    # -- counts, sizes, names, types ----------------------------------------------------------------------------

    @call("k", bare=0)
    def get_num_inputs(self, description: int) -> int:
        """Number of inputs."""
        return len(self.signature(description).inputs)

    @call("k", bare=0)
    def get_num_outputs(self, description: int) -> int:
        """Number of outputs."""
        return len(self.signature(description).outputs)

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
        return self._index(self.signature(description).inputs, name)

    @call("ks", failed=(0,))
    def get_output_index_by_name(self, description: int, name: str) -> tuple[int, int]:
        """Index of an output."""
        return self._index(self.signature(description).outputs, name)

    def _index(self, tensors: tuple[Tensor, ...], name: str) -> tuple[int, int]:
        for index, tensor in enumerate(tensors):
            if tensor.name == name:
                return index, codes.SUCCESS
        raise Failure(codes.INVALID_PARAM, f"the model has no tensor {name!r} there")

    @call("kk", bare=-1)
    def get_input_format(self, description: int, index: int) -> int:
        """Layout of an input: ND, as an .onnx says nothing more; what the file says in a dry run."""
        return self._input(description, index).format

    @call("kk", bare=-1)
    def get_output_format(self, description: int, index: int) -> int:
        """Layout of an output."""
        return self._output(description, index).format

    @call("kk", bare=-1)
    def get_input_data_type(self, description: int, index: int) -> int:
        """ACL's element type of an input."""
        return self._input(description, index).type.acl

    @call("kk", bare=-1)
    def get_output_data_type(self, description: int, index: int) -> int:
        """ACL's element type of an output."""
        return self._output(description, index).type.acl

    # -- dimensions ---------------------------------------------------------------------------------------------

    def _dims(self, description: int, side: str, index: int, tensor: Tensor, shape: tuple[int, ...]) -> dict[str, Any]:
        name = tensor.name
        if len(name.encode()) > _LONGEST_NAME:
            name = _synthetic(self._empty(description).model, side, index)
        return {"name": name, "dimCount": len(shape), "dims": list(shape)}

    @call("kk", failed=({},))
    def get_input_dims(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Name and dimensions of an input, -1 at open axes."""
        tensor = self._input(description, index)
        shape = self.signature(description).shown(index)
        return self._dims(description, "input", index, tensor, shape), codes.SUCCESS

    @call("kk", failed=({},))
    def get_input_dims_v2(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """The same; differs for static AIPP only."""
        tensor = self._input(description, index)
        if tensor.given is None:
            return self.get_input_dims(description, index)
        return self._dims(description, "input", index, tensor, tensor.given), codes.SUCCESS

    @call("kk", failed=({},))
    def get_output_dims(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Name and dimensions of an output, those of the largest gear."""
        tensor = self._output(description, index)
        return self._dims(description, "output", index, tensor, tensor.shape), codes.SUCCESS

    @call("kk", failed=({},))
    def get_cur_output_dims(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Dimensions of an output for the gear set last; for a description of a loaded model only."""
        tensor = self._output(description, index)
        number = self._empty(description).model
        if not number:
            raise Failure(codes.INVALID_PARAM, "the description was made from a file, not from a loaded model")
        gear = self._process.model(number).gear
        shape = tensor.shape if gear is None else gear.outputs[index].shape
        return self._dims(description, "output", index, tensor, shape), codes.SUCCESS

    @call("kk", failed=({},))
    def get_input_dims_range(self, description: int, index: int) -> tuple[dict[str, Any], int]:
        """Least and greatest size of every axis of an input; -1: no limit."""
        self._input(description, index)
        ranges = [[1, -1] if size < 0 else [size, size] for size in self.signature(description).shown(index)]
        return {"rangeCount": len(ranges), "range": ranges}, codes.SUCCESS

    @call("ks", bare=None)
    def get_tensor_real_name(self, description: int, name: str) -> str | None:
        """The model's own name for one that was too long for a dims dict."""
        signature, model = self.signature(description), self._empty(description).model
        for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
            for index, tensor in enumerate(tensors):
                if name in (tensor.name, _synthetic(model, side, index)):
                    return tensor.name
        return None


def _synthetic(model: int, side: str, index: int) -> str:
    return f"acl_modelId_{model}_{side}_{index}"
