"""A second implementation of pyACL's ``acl`` module, for a machine without an NPU.

Importing this package imports neither onnxruntime nor anything else of aioascend. All state lives in an `Emulator`.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from .acl_absent import MediaCalls, ProfilingCalls, refuse
from .acl_dataset import DatasetCalls
from .acl_mdl import ModelCalls
from .acl_mdl_desc import DescriptionCalls
from .acl_mdl_gears import GearCalls
from .acl_mdl_more import MoreModelCalls
from .acl_op import OpCalls
from .acl_rt_device import DeviceCalls
from .acl_rt_event import EventCalls
from .acl_rt_memory import MemoryCalls
from .acl_rt_more import MoreCalls
from .acl_rt_report import ReportCalls
from .acl_rt_stream import StreamCalls
from .acl_tensor import TensorCalls
from .acl_top import TopCalls
from .acl_util import UtilCalls
from .args import Failure, Spec, export
from .compile import compile_model
from .config import Config
from .faults import Faults
from .model import session_options
from .offline import from_bytes, from_path
from .process import Process
from .profile import Profile
from .shapes import CompileError

__all__ = ["CompileError", "Config", "Emulator", "Faults", "Profile", "session_options"]

_SUBMODULES = ("rt", "mdl", "util", "op", "media", "blas", "prof", "himpi", "fv")

_alive: weakref.WeakSet[Process] = weakref.WeakSet()


class Emulator:
    """One emulated machine and the ``acl`` module that drives it.

    `acl` is shaped like pyACL's extension module and is not put into ``sys.modules``.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config if config is not None else Config.from_env()
        self._process = Process(self.config)
        self.acl = _build(self._process)
        _alive.add(self._process)
        asked = os.environ.get("AIOASCEND_EMULATOR_FAULTS")
        if asked:
            self.faults.parse(asked)

    @property
    def modules(self) -> dict[str, ModuleType]:
        """`acl` and its submodules by the names that ``sys.modules`` has for pyACL."""
        return {"acl": self.acl, **{f"acl.{name}": getattr(self.acl, name) for name in _SUBMODULES}}

    @property
    def faults(self) -> Faults:
        """Faults to inject; ``AIOASCEND_EMULATOR_FAULTS`` may ask for some from the start."""
        return self._process.faults

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """The emulator's own threads that are alive now."""
        return self._process.threads

    def compile(
        self,
        model: str | bytes,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        examples: Mapping[str, Any] | None = None,
        output_shapes: Mapping[str, Sequence[int]] | None = None,
        gears: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Fix the dynamic axes of an .onnx (path or bytes) and return an offline model for ``acl.mdl.load_from_mem``.

        `shapes` fixes inputs, `examples` are values for the runs that find output shapes which inference cannot,
        `output_shapes` wins over both. `gears` (``{"batch": [1, 2, 4]}``, ``{"hw": [[h, w], ...]}`` or ``{"dims":
        [[...], ...]}``) makes a model with gears of what `shapes` leaves open as -1. `CompileError` says what is
        missing or wrong.
        """
        options = self._process.run_options
        mine: list[Any] = []

        def running(one: Any) -> None:
            mine.append(one)
            options.append(one)

        try:
            source = from_path(model) if isinstance(model, str) else from_bytes(model)
            return compile_model(source, self.config, shapes, examples, output_shapes, gears, running)
        except Failure as failure:
            raise CompileError(failure.text) from None
        finally:
            for one in mine:
                options.remove(one)

    def shutdown(self, timeout: float = 3.0) -> None:
        """End every thread at once, ONNX Runtime's runs included, and let every waiting host thread go. Idempotent."""
        self._process.shutdown(timeout)

    def __repr__(self) -> str:
        open_devices = sum(device is not None and device.engine is not None for device in self._process.devices)
        return f"<Emulator {self.config.soc_name}, {self.config.devices} devices, {open_devices} open>"


def _exported(process: Process, where: str, method: Any) -> Any:
    return export(where, method, process.fail, process.faults.rules_of(where))


def _build(process: Process) -> ModuleType:
    acl = ModuleType("acl")
    parts = {name: ModuleType(f"acl.{name}") for name in _SUBMODULES}
    for name, module in parts.items():
        setattr(acl, name, module)
    rt, mdl, util = parts["rt"], parts["mdl"], parts["util"]
    top = TopCalls(process)
    datasets = DatasetCalls(process, top)
    tensors = TensorCalls(process)
    memory = MemoryCalls(process)
    models = ModelCalls(process, datasets)
    descriptions = DescriptionCalls(process, models)
    groups: tuple[tuple[ModuleType, object], ...] = (
        (acl, top),
        (rt, DeviceCalls(process)),
        (rt, StreamCalls(process)),
        (rt, EventCalls(process)),
        (rt, memory),
        (rt, MoreCalls(process)),
        (rt, ReportCalls(process)),
        (mdl, models),
        (mdl, descriptions),
        (mdl, GearCalls(process, descriptions, datasets)),
        (mdl, datasets),
        (mdl, MoreModelCalls(process, models, datasets, tensors)),
        (acl, tensors),
        (parts["op"], OpCalls(process, top, tensors)),
        (parts["prof"], ProfilingCalls(process)),
        (parts["media"], MediaCalls(memory)),
        (util, UtilCalls(process)),
    )
    for module, group in groups:
        for name in dir(type(group)):
            method = getattr(group, name)
            if isinstance(getattr(method, "__acl__", None), Spec):
                setattr(module, name, _exported(process, f"{module.__name__}.{name}", method))
    for name in ("media", "blas", "himpi", "fv"):
        refuse(parts[name])
    if not process.config.ex_events:
        del rt.create_event_ex_with_flag
    return acl


@atexit.register
def _shutdown_all() -> None:
    for process in list(_alive):
        process.shutdown(3.0)


def _forked() -> None:
    for process in list(_alive):
        process.forked()


os.register_at_fork(after_in_child=_forked)
