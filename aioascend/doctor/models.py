"""Models: loaded on one route and run on the other, and whether Python stands still while one is loaded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint32

from .bench import Bench, code_text
from .checks import Group, Seen
from .timing import held_or_released

__all__ = ["MODELS"]

MODELS = Group("models")

_SECONDS = 20.0
_LOADING = 30.0


def _loaded(bench: Bench) -> int:
    acl = bench.acl
    model, ret = acl.mdl.load_from_file(bench.model)
    bench.good(ret, "acl.mdl.load_from_file")
    bench.later(lambda: acl.mdl.unload(model))
    return int(model)


def _loaded_in_c(bench: Bench) -> int:
    acl, c = bench.acl, bench.c
    cell = c_uint32()
    ret = c.aclmdlLoadFromFile(os.fsencode(bench.model), byref(cell))
    bench.good(ret, "aclmdlLoadFromFile")
    model = cell.value
    bench.later(lambda: acl.mdl.unload(model))
    return model


@MODELS.check("mdl.load_from_file holds the GIL", "§3", "held", seconds=_LOADING)
def _load(bench: Bench) -> Seen:
    acl, path = bench.acl, bench.model

    def load() -> None:
        model, ret = acl.mdl.load_from_file(path)
        bench.good(ret, "acl.mdl.load_from_file")
        bench.later(lambda: acl.mdl.unload(model))

    load()  # the first one brings in libraries too
    return held_or_released(load)


@MODELS.check("aclmdlLoadFromFile leaves the GIL free", "§21", "released", seconds=_LOADING)
def _load_in_c(bench: Bench) -> Seen:
    path = os.fsencode(bench.model)
    acl, c = bench.acl, bench.c

    def load() -> None:
        cell = c_uint32()
        ret = c.aclmdlLoadFromFile(path, byref(cell))
        bench.good(ret, "aclmdlLoadFromFile")
        bench.later(lambda: acl.mdl.unload(cell.value))

    return held_or_released(load)


@MODELS.check("both routes know what memory the model takes", "§11, §21", "the same")
def _sizes(bench: Bench) -> Seen:
    path = bench.model
    acl, c = bench.acl, bench.c
    work, weight, ret = acl.mdl.query_size(path)
    bench.good(ret, "acl.mdl.query_size")
    works = c_size_t()
    weights = c_size_t()
    ret = c.aclmdlQuerySize(os.fsencode(path), byref(works), byref(weights))
    bench.good(ret, "aclmdlQuerySize")
    same = (work, weight) == (works.value, weights.value)
    return Seen("the same" if same else "not the same", f"{work} and {weight} bytes")


def _run(bench: Bench, model: int, execute: Callable[[int, int, int, int], int]) -> str:
    """Run a model on zeros, on its own datasets, and say what the stream says of it."""
    acl = bench.acl
    stream = bench.stream()
    desc = acl.mdl.create_desc()
    bench.later(lambda: acl.mdl.destroy_desc(desc))
    ret = acl.mdl.get_desc(desc, model)
    bench.good(ret, "acl.mdl.get_desc")
    count = acl.mdl.get_num_inputs(desc)
    inputs = _dataset(bench, [acl.mdl.get_input_size_by_index(desc, index) for index in range(count)])
    count = acl.mdl.get_num_outputs(desc)
    outputs = _dataset(bench, [acl.mdl.get_output_size_by_index(desc, index) for index in range(count)])
    ret = execute(model, inputs, outputs, stream)
    bench.good(ret, "execute_async")
    ret = acl.rt.synchronize_stream(stream)
    return code_text(ret)


def _dataset(bench: Bench, sizes: list[int]) -> int:
    acl = bench.acl
    dataset = acl.mdl.create_dataset()
    bench.later(lambda: acl.mdl.destroy_dataset(dataset))
    for size in sizes:
        address = bench.malloc(max(size, 32))
        ret = acl.rt.memset(address, size, 0, size)
        bench.good(ret, "acl.rt.memset")
        buffer = acl.create_data_buffer(address, size)
        _add(bench, dataset, buffer)
    return int(dataset)


def _add(bench: Bench, dataset: int, buffer: int) -> None:
    acl = bench.acl
    _dataset, ret = acl.mdl.add_dataset_buffer(dataset, buffer)
    bench.good(ret, "acl.mdl.add_dataset_buffer")
    bench.later(lambda: acl.destroy_data_buffer(buffer))


@MODELS.check("a model loaded in C runs through pyACL", "§21", "0", seconds=_SECONDS)
def _c_to_pyacl(bench: Bench) -> str:
    acl = bench.acl
    model = _loaded_in_c(bench)

    def execute(model: int, inputs: int, outputs: int, stream: int) -> int:
        ret = acl.mdl.execute_async(model, inputs, outputs, stream)
        return int(ret)

    return _run(bench, model, execute)


@MODELS.check("a model loaded through pyACL runs in C", "§21", "0", seconds=_SECONDS)
def _pyacl_to_c(bench: Bench) -> str:
    c = bench.c
    model = _loaded(bench)

    def execute(model: int, inputs: int, outputs: int, stream: int) -> int:
        ret = c.aclmdlExecuteAsync(model, inputs, outputs, stream)
        return int(ret)

    return _run(bench, model, execute)


@MODELS.check("a model is unloaded on another thread in the same context", "§11", "0", seconds=_SECONDS)
def _unload(bench: Bench) -> str:
    acl = bench.acl
    model, ret = acl.mdl.load_from_file(bench.model)
    bench.good(ret, "acl.mdl.load_from_file")
    seen: list[int] = []

    def unload() -> None:
        acl.rt.set_context(bench.context)
        ret = acl.mdl.unload(model)
        seen.append(ret)

    thread = threading.Thread(target=unload)
    thread.start()
    thread.join()
    return code_text(seen[0])
