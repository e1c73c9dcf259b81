"""``acl.prof`` and ``acl.media``: profiling that does nothing, picture memory, and what is not there.

The picture functions of ``acl.media``, all of ``acl.blas``, ``acl.himpi`` and ``acl.fv``, and those of ``acl.rt`` that
load and launch compiled kernels raise `NotImplementedError` with their name: going on without them would only move the
failure elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import codes
from .acl_rt_memory import MemoryCalls
from .args import Failure, call
from .process import Process


class ProfilingCalls:
    """Profiling: accepted, nothing measured."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._configs: set[int] = set()

    @call("s")
    def init(self, path: str) -> int:
        """Where results would go."""
        return codes.SUCCESS

    @call("OiOO", bare=0)
    def create_config(self, devices: Any, metrics: int, events: Any, types: Any) -> int:
        """A profiling config."""
        handle = self._process.new_handle()
        self._configs.add(handle)
        return handle

    def _config(self, handle: int) -> int:
        if handle not in self._configs:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a profiling config")
        return codes.SUCCESS

    @call("k")
    def start(self, config: int) -> int:
        """Begin to measure."""
        return self._config(config)

    @call("k")
    def stop(self, config: int) -> int:
        """End measuring."""
        return self._config(config)

    @call("k")
    def destroy_config(self, config: int) -> int:
        """Forget a config."""
        code = self._config(config)
        self._configs.discard(config)
        return code

    @call()
    def finalize(self) -> int:
        """The end of profiling."""
        return codes.SUCCESS


class MediaCalls:
    """Memory for pictures, which is device memory."""

    def __init__(self, memory: MemoryCalls) -> None:
        self._memory = memory

    @call("k", failed=(0,))
    def dvpp_malloc(self, size: int) -> tuple[int, int]:
        """Device memory for pictures."""
        return self._memory.malloc(size, 0)

    @call("k")
    def dvpp_free(self, address: int) -> int:
        """Free it."""
        return self._memory.free(address)


KERNELS = (
    "binary_load_from_file", "binary_unload", "binary_get_function", "kernel_args_init", "kernel_args_append",
    "kernel_args_finalize", "launch_kernel_with_config",
)  # fmt: skip


def refuse(module: ModuleType, only: tuple[str, ...] = ()) -> None:
    """Let every function that `module` has not got, or `only` these, raise `NotImplementedError` when it is called."""
    prefix = module.__name__

    def missing(name: str) -> Callable[..., Any]:
        if name.startswith("__") or (only and name not in only):
            raise AttributeError(f"module {prefix!r} has no attribute {name!r}")

        def absent(*_: Any) -> Any:
            raise NotImplementedError(f"the emulator has no {prefix}.{name}")

        absent.__name__ = absent.__qualname__ = name
        return absent

    module.__getattr__ = missing  # type: ignore[method-assign]
