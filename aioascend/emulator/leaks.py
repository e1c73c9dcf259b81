"""What a program made and did not destroy."""

from __future__ import annotations

from collections.abc import Iterator

from .acl_dataset import DatasetCalls
from .acl_mdl_desc import DescriptionCalls
from .acl_top import TopCalls
from .findings import Leak
from .process import Process


class Leaks:
    """Looks through every table of an emulator."""

    def __init__(self, process: Process, top: TopCalls, datasets: DatasetCalls, descriptions: DescriptionCalls) -> None:
        self._process = process
        self._top = top
        self._datasets = datasets
        self._descriptions = descriptions

    def find(self) -> tuple[Leak, ...]:
        """Everything that is left, as things stand."""
        return tuple(self._find())

    def _find(self) -> Iterator[Leak]:
        process = self._process
        site = process.findings.site
        for device in process.devices:
            if device is None:
                continue
            if device.set_count:
                yield Leak("device", f"{device.index} (set {device.set_count} times more than reset)", "set_device")
            for block in device.memory.blocks:
                if not block.internal:
                    text = f"{block.requested} bytes of device {device.index} at {block.start:#x}"
                    yield Leak("device memory", text, site("device memory", block.start))
        for block in process.pinned:
            yield Leak(
                "pinned memory", f"{block.requested} bytes at {block.start:#x}", site("pinned memory", block.start)
            )
        tables = (
            ("context", [handle for handle, context in process.contexts.items() if not context.default]),
            ("stream", list(process.streams)),
            ("event", list(process.events)),
            ("model", list(process.models)),
            ("data buffer", list(self._top.buffers)),
            ("dataset", list(self._datasets.datasets)),
            ("model description", list(self._descriptions.descriptions)),
        )
        for kind, handles in tables:
            for handle in handles:
                yield Leak(kind, f"{handle:#x}" if handle > 0xFFFF else str(handle), site(kind, handle))
