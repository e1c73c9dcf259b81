"""``acl.mdl``: datasets (reference §12)."""

from __future__ import annotations

import threading

from . import codes
from .acl_tensor import TensorCalls
from .acl_top import TopCalls
from .args import Failure, call
from .process import Process


class DatasetCalls:
    """Dataset functions. A dataset is an ordered list of data-buffer handles and owns none of them."""

    def __init__(self, process: Process, top: TopCalls, tensors: TensorCalls) -> None:
        self.tensors = tensors.descriptors
        self._process = process
        self._top = top
        self.datasets: dict[int, list[int]] = {}
        self.buffers = top.buffers
        self._lock = threading.Lock()
        # tensor descriptors by dataset and index
        self.shapes: dict[tuple[int, int], int] = {}

    @property
    def version(self) -> int:
        """A number that stays while no dataset and no data buffer changes."""
        return self._top.version

    def dataset(self, handle: int) -> list[int]:
        """A dataset by handle."""
        found = self.datasets.get(handle)
        if found is None:
            raise Failure(codes.INVALID_PARAM, f"{handle:#x} is not a dataset, or was destroyed")
        return found

    def keep(self, *datasets: int) -> list[int]:
        """A queued run has these datasets; the handles to give to `unkeep`."""
        handles = [*datasets, *(buffer for dataset in datasets for buffer in self.datasets.get(dataset, ()))]
        with self._lock:
            self._top.in_flight.update(handles)
        return handles

    def unkeep(self, handles: list[int]) -> None:
        """The run has ended or was dropped."""
        with self._lock:
            flying = self._top.in_flight
            for handle in handles:
                flying[handle] -= 1
                if not flying[handle]:
                    del flying[handle]

    @call(bare=0)
    def create_dataset(self) -> int:
        """An empty dataset."""
        handle = self._process.new_handle()
        self.datasets[handle] = []
        self._process.findings.made("dataset", handle)
        return handle

    @call("k")
    def destroy_dataset(self, dataset: int) -> int:
        """Forget a dataset and its tensor descriptors; its data buffers stay."""
        self._top.at_rest(dataset, "acl.mdl.destroy_dataset", "dataset")
        if self.datasets.pop(dataset, None) is None:
            raise Failure(codes.INVALID_PARAM, f"{dataset:#x} is not a dataset, or was destroyed")
        for key in [key for key in self.shapes if key[0] == dataset]:
            self.tensors.pop(self.shapes.pop(key), None)
        self._top.version += 1
        return codes.SUCCESS

    @call("kk", failed=(0,))
    def add_dataset_buffer(self, dataset: int, buffer: int) -> tuple[int, int]:
        """Append a data buffer; gives the dataset's own handle first."""
        found = self.dataset(dataset)
        self._top.buffer(buffer)
        found.append(buffer)
        self._top.version += 1
        return dataset, codes.SUCCESS

    @call("k", bare=0)
    def get_dataset_num_buffers(self, dataset: int) -> int:
        """Number of data buffers."""
        return len(self.dataset(dataset))

    @call("kk", bare=0)
    def get_dataset_buffer(self, dataset: int, index: int) -> int:
        """The data buffer at `index`, 0 when there is none."""
        found = self.dataset(dataset)
        return found[index] if index < len(found) else 0
