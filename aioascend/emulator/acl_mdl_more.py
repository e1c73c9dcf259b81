"""``acl.mdl``: loading with a config, running with limits, bundles, dumps (reference §11)."""

from __future__ import annotations

from typing import Any

from . import codes
from .acl_dataset import DatasetCalls
from .acl_mdl import ModelCalls
from .acl_tensor import TensorCalls
from .args import Failure, call, ulong
from .process import Process
from .waiting import look_ahead_at_stream, wait_for_stream

_LOAD_TYPE, _PATH, _ADDRESS, _SIZE, _WEIGHT, _WEIGHT_SIZE, _WORK, _WORK_SIZE = range(1, 9)
_ATTRIBUTES = range(32)
_DYNAMIC, _SETTINGS = 2, 3
_FILE, _FILE_WITH_MEM, _MEM, _MEM_WITH_MEM = range(1, 5)


class MoreModelCalls:
    """Functions about models that few programs use."""

    def __init__(self, process: Process, models: ModelCalls, datasets: DatasetCalls, tensors: TensorCalls) -> None:
        self._process = process
        self._models = models
        self._datasets = datasets
        self._tensors = tensors
        self._configs: dict[int, dict[int, Any]] = {}
        self._limits: dict[int, dict[int, int]] = {}
        self._bundles: dict[int, int] = {}
        self._aipp: set[int] = set()

    # -- loading with a config ----------------------------------------------------------------------------------

    @call(bare=0)
    def create_config_handle(self) -> int:
        """An empty load config."""
        handle = self._process.new_handle()
        self._configs[handle] = {}
        return handle

    @call("kiO")
    def set_config_opt(self, handle: int, attribute: int, value: Any) -> int:
        """Set one attribute: text for the path, numbers for the rest."""
        config = self._config(handle)
        if attribute not in _ATTRIBUTES:
            raise Failure(codes.INVALID_PARAM, f"no such attribute of a load config: {attribute}")
        if attribute == _PATH and not isinstance(value, str):
            raise TypeError("acl.mdl.set_config_opt: args could not be parsed: the path must be str")
        if attribute != _PATH and not isinstance(value, int):
            raise TypeError("acl.mdl.set_config_opt: args could not be parsed: the value must be int")
        config[attribute] = value
        return codes.SUCCESS

    @call("k", failed=(0,))
    def load_with_config(self, handle: int) -> tuple[int, int]:
        """Load as the config says."""
        config = self._config(handle)
        kind = config.get(_LOAD_TYPE, 0)
        memory = [ulong(config.get(one, 0)) for one in (_WORK, _WORK_SIZE, _WEIGHT, _WEIGHT_SIZE)]
        if kind in (_FILE, _FILE_WITH_MEM) and _PATH in config:
            return self._models.load_from_file_with_mem(config[_PATH], *(memory if kind == _FILE_WITH_MEM else [0] * 4))
        if kind in (_MEM, _MEM_WITH_MEM) and _ADDRESS in config and _SIZE in config:
            place = ulong(config[_ADDRESS]), ulong(config[_SIZE])
            return self._models.load_from_mem_with_mem(*place, *(memory if kind == _MEM_WITH_MEM else [0] * 4))
        raise Failure(codes.INVALID_PARAM, f"a load config of type {kind} with the attributes {sorted(config)}")

    @call("k")
    def destroy_config_handle(self, handle: int) -> int:
        """Forget a load config."""
        self._config(handle)
        del self._configs[handle]
        return codes.SUCCESS

    def _config(self, handle: int) -> dict[int, Any]:
        found = self._configs.get(handle)
        if found is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a load config")
        return found

    # -- running with limits ------------------------------------------------------------------------------------

    @call(bare=0)
    def create_exec_config_handle(self) -> int:
        """An empty run config."""
        handle = self._process.new_handle()
        self._limits[handle] = {}
        return handle

    @call("kiO")
    def set_exec_config_opt(self, handle: int, attribute: int, value: Any) -> int:
        """0: limit of the run in milliseconds, 1: limit of event waits."""
        if handle not in self._limits or attribute not in (0, 1):
            raise Failure(codes.INVALID_PARAM, f"attribute {attribute} of {handle:#x}")
        self._limits[handle][attribute] = int(value)
        return codes.SUCCESS

    @call("k")
    def destroy_exec_config_handle(self, handle: int) -> int:
        """Forget a run config."""
        if self._limits.pop(handle, None) is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a run config")
        return codes.SUCCESS

    @call("Ikkkk")
    def execute_v2(self, model: int, inputs: int, outputs: int, stream: int, config: int) -> int:
        """Run on a stream and wait, for as long as the run config says."""
        if config not in self._limits:
            raise Failure(codes.INVALID_PARAM, f"{config:#x} is not a run config")
        process = self._process
        target = process.stream(stream)
        limit = self._limits[config].get(0, -1)
        if limit < 0:
            look_ahead_at_stream(process, target, "acl.mdl.execute_v2")
        self._models.submit("acl.mdl.execute_v2", target, model, inputs, outputs, waits=True)
        try:
            fault = wait_for_stream(process, target, limit, "acl.mdl.execute_v2")
        except Failure as failure:
            if failure.code != codes.STREAM_SYNC_TIMEOUT:
                raise
            raise Failure(codes.GE_MODEL_EXECUTE_TIMEOUT, failure.text) from None
        return process.fail(fault.code, fault.text) if fault is not None else codes.SUCCESS

    # -- bundles: here a bundle is a file with one model --------------------------------------------------------

    @call("s", failed=(0,))
    def bundle_load_from_file(self, path: str) -> tuple[int, int]:
        """Load a bundle."""
        model, _ = self._models.load_from_file(path)
        return self._bundle(model)

    @call("kk", failed=(0,))
    def bundle_load_from_mem(self, address: int, size: int) -> tuple[int, int]:
        """Load a bundle from host memory."""
        model, _ = self._models.load_from_mem(address, size)
        return self._bundle(model)

    def _bundle(self, model: int) -> tuple[int, int]:
        self._bundles[model] = model
        return model, codes.SUCCESS

    def _of_bundle(self, bundle: int) -> int:
        if bundle not in self._bundles:
            raise Failure(codes.INVALID_BUNDLE_MODEL_ID, f"no bundle with id {bundle} is loaded")
        return self._bundles[bundle]

    @call("I", failed=(0,))
    def bundle_get_model_num(self, bundle: int) -> tuple[int, int]:
        """Number of models."""
        self._of_bundle(bundle)
        return 1, codes.SUCCESS

    @call("Ik", failed=(0,))
    def bundle_get_model_id(self, bundle: int, index: int) -> tuple[int, int]:
        """One of its models."""
        model = self._of_bundle(bundle)
        if index:
            raise Failure(codes.INVALID_PARAM, f"model {index} of a bundle of 1")
        return model, codes.SUCCESS

    @call("I")
    def bundle_unload(self, bundle: int) -> int:
        """Unload its models."""
        code = self._models.unload(self._of_bundle(bundle))
        del self._bundles[bundle]
        return code

    # -- shapes in datasets -------------------------------------------------------------------------------------

    @call("kkk", failed=(0,))
    def set_dataset_tensor_desc(self, dataset: int, descriptor: int, index: int) -> tuple[int, int]:
        """Give a tensor's shape; the descriptor is copied. The dataset's own handle comes first."""
        if index >= len(self._datasets.dataset(dataset)):
            raise Failure(codes.INVALID_PARAM, f"the dataset has no buffer {index}")
        copied = self._tensors.own(self._tensors.descriptor(descriptor).copy())
        self._datasets.shapes[dataset, index] = copied
        return dataset, codes.SUCCESS

    @call("kk", bare=0)
    def get_dataset_tensor_desc(self, dataset: int, index: int) -> int:
        """The descriptor given before, 0 when there is none."""
        self._datasets.dataset(dataset)
        return self._datasets.shapes.get((dataset, index), 0)

    # -- what the emulator cannot do, and says so ---------------------------------------------------------------

    @call("skkkk", failed=(0,))
    def load_from_file_with_q(
        self, path: str, inputs: int, n_inputs: int, outputs: int, n_outputs: int
    ) -> tuple[int, int]:
        """Models fed by queues, which the emulator has not."""
        raise Failure(codes.API_NOT_SUPPORT, "the emulator has no queues")

    @call("kkkkkk", failed=(0,))
    def load_from_mem_with_q(
        self, address: int, size: int, inputs: int, n_inputs: int, outputs: int, n_outputs: int
    ) -> tuple[int, int]:
        """Models fed by queues, which the emulator has not."""
        raise Failure(codes.API_NOT_SUPPORT, "the emulator has no queues")

    @call("iIIk", failed=("", 0, 0, 0, 0))
    def create_and_get_op_desc(
        self, device: int, stream: int, task: int, longest: int
    ) -> tuple[str, int, int, int, int, int]:
        """The operator behind a task; models are not taken apart here."""
        raise Failure(codes.OP_NOT_FOUND, f"task {task} of stream {stream} is not kept")

    @call("k", bare=0)
    def create_aipp(self, batch: int) -> int:
        """Settings of dynamic picture preparation, which no model of the emulator has."""
        handle = self._process.new_handle()
        self._aipp.add(handle)
        return handle

    @call("k")
    def destroy_aipp(self, aipp: int) -> int:
        """Forget such settings."""
        if aipp not in self._aipp:
            raise Failure(codes.INVALID_PARAM, f"{aipp:#x} is not a set of AIPP settings")
        self._aipp.discard(aipp)
        return codes.SUCCESS

    @call("Ikkk")
    def set_input_aipp(self, model: int, dataset: int, index: int, aipp: int) -> int:
        """Prepare an input so; no model of the emulator can."""
        raise self._no_pictures(model)

    @call("k", failed=(0,))
    def get_aipp_data_size(self, batch: int) -> tuple[int, int]:
        """Bytes of such settings for a batch."""
        return 64 + 96 * batch, codes.SUCCESS

    # -- what exists and does nothing here ----------------------------------------------------------------------

    @call("kss", bare=None)
    def get_op_attr(self, description: int, operator: str, attribute: str) -> str:
        """An operator's attribute, which the emulator does not keep."""
        return ""

    @call()
    def init_dump(self) -> int:
        """Dumps are accepted and not made."""
        return codes.SUCCESS

    @call("s")
    def set_dump(self, path: str) -> int:
        """Dumps are accepted and not made."""
        return codes.SUCCESS

    @call()
    def finalize_dump(self) -> int:
        """Dumps are accepted and not made."""
        return codes.SUCCESS

    @call("Ik", failed=(0, 0))
    def get_aipp_type(self, model: int, index: int) -> tuple[int, int, int]:
        """How pictures are prepared for an input: not at all, or in a dry run what the file says."""
        inputs = self._process.model(model).network.signature.inputs
        if index >= len(inputs):
            raise Failure(codes.INVALID_PARAM, f"input {index} of {len(inputs)}")
        kind = inputs[index].aipp
        settings = [place for place, tensor in enumerate(inputs) if tensor.aipp == _SETTINGS]
        return kind, settings[0] if kind == _DYNAMIC and settings else 0xFFFFFFFF, codes.SUCCESS

    @call("Ik", failed=(None,))
    def get_first_aipp_info(self, model: int, index: int) -> tuple[None, int]:
        """Settings of static preparation, which no model has here."""
        raise self._no_pictures(model)

    def _no_pictures(self, model: int) -> Failure:
        if any(tensor.aipp for tensor in self._process.model(model).network.signature.inputs):
            return Failure(codes.API_NOT_SUPPORT, "a dry run does not know the settings of AIPP")
        return Failure(codes.GE_AIPP_NOT_EXIST, f"model {model} prepares no pictures")
