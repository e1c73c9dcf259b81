"""What a program made and did not destroy."""

from __future__ import annotations

from collections.abc import Iterator

from .acl_dataset import DatasetCalls
from .acl_mdl_desc import DescriptionCalls
from .acl_tensor import TensorCalls
from .acl_top import TopCalls
from .findings import Leak
from .process import Process


class Leaks:
    """Looks through every table of an emulator."""

    def __init__(
        self,
        process: Process,
        top: TopCalls,
        datasets: DatasetCalls,
        descriptions: DescriptionCalls,
        tensors: TensorCalls,
    ) -> None:
        self._process = process
        self._top = top
        self._datasets = datasets
        self._descriptions = descriptions
        self._tensors = tensors

    def find(self) -> tuple[Leak, ...]:
        """Everything that is left as things stand, and what was swept away with its device or context before."""
        return self._process.findings.in_order(self._find())

    def _find(self) -> Iterator[Leak]:
        process = self._process
        site = process.findings.site
        if process.initialised:
            yield Leak("init", 0, 0, -1, site("init", 0))
        yield from process.swept
        for device in process.devices:
            if device is None:
                continue
            if device.set_count:
                yield Leak("device", device.index, 0, device.index, site("device", device.index))
            yield from process.device_blocks(device)
        for block in process.pinned:
            yield Leak("pinned memory", block.start, block.requested, -1, site("pinned memory", block.start))
        for thread in list(process.reports):
            yield Leak("subscription", thread, 0, -1, site("subscription", thread))
        for handle, context in list(process.contexts.items()):
            if not context.default:
                yield Leak("context", handle, 0, context.device.index, site("context", handle))
            yield from process.content(context)
        tables = (
            ("data buffer", list(self._top.buffers)),
            ("dataset", list(self._datasets.datasets)),
            ("model description", list(self._descriptions.descriptions)),
            ("tensor description", [one for one in self._tensors.descriptors if one not in self._tensors.owned]),
        )
        for kind, handles in tables:
            for handle in handles:
                yield Leak(kind, handle, 0, -1, site(kind, handle))
