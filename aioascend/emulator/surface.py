"""Putting the ``acl`` module together from the groups of functions."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from inspect import signature
from types import ModuleType
from typing import Any

from .acl_absent import KERNELS, MediaCalls, ProfilingCalls, refuse
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
from .args import Spec
from .codes import FEATURE_NOT_SUPPORT
from .exporting import export
from .free_shapes import FreeRuns
from .leaks import Leaks
from .native import Native
from .process import Process

SUBMODULES = ("rt", "mdl", "util", "op", "media", "blas", "prof", "himpi", "fv")

# allocating, freeing, waiting, submitting: what a callback must not do (reference §9)
_NOT_IN_CALLBACKS = {
    "rt": (
        "malloc", "malloc_align32", "malloc_cached", "malloc_host", "free", "free_host", "synchronize_stream",
        "synchronize_stream_with_timeout", "synchronize_device", "synchronize_device_with_timeout",
        "synchronize_event", "synchronize_event_with_timeout", "memcpy_async", "memset_async", "record_event",
        "reset_event", "stream_wait_event", "launch_callback", "stream_abort", "device_task_abort", "create_stream",
        "create_stream_with_config", "destroy_stream", "destroy_stream_force", "create_event",
        "create_event_with_flag", "create_event_ex_with_flag", "destroy_event", "create_context", "destroy_context",
        "set_device", "reset_device", "reset_device_force",
    ),
    "mdl": (
        "execute", "execute_async", "execute_v2", "load_from_file", "load_from_mem", "load_from_file_with_mem",
        "load_from_mem_with_mem", "load_with_config", "bundle_load_from_file", "bundle_load_from_mem", "unload",
        "bundle_unload",
    ),
    "op": ("execute", "execute_v2", "execute_with_handle", "cast"),
    "media": ("dvpp_malloc", "dvpp_free"),
}  # fmt: skip


# what submits a task; copies and runs do that part of the time themselves, when they know that there is one to submit
_LAUNCHING = {
    "rt": ("memset_async", "record_event", "reset_event", "stream_wait_event", "launch_callback"),
    "op": ("execute", "execute_v2", "execute_with_handle", "cast"),
}

# what works without acl.init: questions about the machine, and what never comes near a device
_WITHOUT_INIT = {
    "": (
        "init", "finalize", "finalize_reference", "get_soc_name", "get_recent_err_msg", "get_version",
        "get_cann_version", "get_version_str", "data_type_size", "float16_to_float", "float_to_float16", "app_log",
    ),
    "rt": ("get_device_count", "get_run_mode", "peek_at_last_error", "get_last_error"),
}  # fmt: skip
# functions that give a value and take locks
_LOCKING = (
    "malloc", "malloc_align32", "malloc_cached", "malloc_host", "dvpp_malloc", "create_stream",
    "create_stream_with_config", "create_event", "create_event_with_flag", "create_event_ex_with_flag",
    "create_context", "stream_query", "pointer_get_attributes", "host_register", "host_get_device_pointer",
    "load_from_file", "load_from_mem", "load_from_file_with_mem", "load_from_mem_with_mem", "load_with_config",
    "bundle_load_from_file", "bundle_load_from_mem", "query_size", "query_size_from_mem", "finalize_reference",
)  # fmt: skip
_NEVER_NEED_INIT = ("util", "prof")


def _guard(process: Process, where: str) -> Callable[[], None]:
    """What is called first where `where` is called in a callback."""
    text = f"{where} was called in a callback"
    return lambda: process.findings.note("call-in-callback", where, text, FEATURE_NOT_SUPPORT)


def _timed(process: Process, where: str, method: Any, seconds: float) -> Any:
    """`method`, and the time that it takes on the host by the profile."""

    def timed(*arguments: Any) -> Any:
        process.spend(seconds, where)
        return method(*arguments)

    # what `export` reads
    timed.__acl__ = method.__acl__  # type: ignore[attr-defined]
    timed.__doc__ = method.__doc__
    timed.__signature__ = signature(method)  # type: ignore[attr-defined]
    return timed


def _exported(process: Process, module: ModuleType, where: str, method: Any) -> Any:
    part, name = where.split(".")[1:] if where.count(".") == 2 else ("", where.split(".")[1])
    profile = process.config.profile
    if profile is not None:
        seconds = profile.call(where) + (profile.launch if name in _LAUNCHING.get(part, ()) else 0.0)
        if seconds:
            method = _timed(process, where, method, seconds)
    guard = _guard(process, where) if name in _NOT_IN_CALLBACKS.get(part, ()) else None
    free = part in _NEVER_NEED_INIT or name in _WITHOUT_INIT.get(part, ())
    spec: Spec = method.__acl__
    gives = spec.gives_a_value and name not in _LOCKING
    gate: list[Callable[[str], None]] = [] if free else process.gate
    rules = process.faults.rules_of(where)
    return export(module, where, method, process.failed, rules, gate, process.nesting, gives, guard)


def build(process: Process) -> tuple[ModuleType, Leaks]:
    """The ``acl`` module of `process`, and what finds its leaks."""
    acl = ModuleType("acl")
    parts = {name: ModuleType(f"acl.{name}") for name in SUBMODULES}
    for name, module in parts.items():
        setattr(acl, name, module)
    rt, mdl, util = parts["rt"], parts["mdl"], parts["util"]
    top = TopCalls(process)
    tensors = TensorCalls(process)
    datasets = DatasetCalls(process, top, tensors)
    memory = MemoryCalls(process)
    models = ModelCalls(process, datasets, FreeRuns(process, datasets, tensors))
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
    names = []
    for module, group in groups:
        for name in dir(type(group)):
            method = getattr(group, name)
            if isinstance(getattr(method, "__acl__", None), Spec):
                names.append(f"{module.__name__}.{name}")
                setattr(module, name, _exported(process, module, names[-1], method))
    if process.config.profile is not None:
        for pattern in process.config.profile.calls:
            if not fnmatch.filter(names, pattern):
                raise ValueError(f"the profile's calls: no function of the emulator is called {pattern}")
    for name in ("media", "blas", "himpi", "fv"):
        refuse(parts[name])
    refuse(rt, KERNELS)
    if not process.config.ex_events:
        del rt.create_event_ex_with_flag
    acl.__native__ = Native(acl)  # type: ignore[attr-defined]  # what pyACL has as a library that is mapped
    leaks = Leaks(process, top, datasets, descriptions, tensors)
    top.leaks = leaks.find
    return acl, leaks
