"""A place of a lane: what one request needs on the device, made at open and used again by the next."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..errors import AclError
from ..memory.blocks import DeviceBlock
from ..memory.layout import Layout
from .binding import Binding
from .buffers import OutputBuffer
from .core import DeviceCore
from .request import Request
from .timing import PlaceEvents

if TYPE_CHECKING:
    from .results import DeviceResult
    from .supplies import Supplies

__all__ = ["Place"]


class Place:
    """Device memory, datasets and events for one request on the device; `generation` counts the requests it served."""

    def __init__(self, core: DeviceCore, inputs: Layout, outputs: Layout, stack: ExitStack, supplies: Supplies) -> None:
        driver, quietly = core.driver, core.quietly
        self.request: Request | None = None
        self.outlet: OutputBuffer | None = None
        self.error: AclError | None = None
        self.suspect = False  # a failure was seen that may be this run's or another's
        self.queued = False  # whether its run has been queued
        self.timing: PlaceEvents | None = None  # while a recording is on
        self.generation = 0
        self.last: Place = self  # of those that were queued together: its events tell of all of them
        self._supplies = supplies
        self.inputs = supplies.device(inputs.nbytes, stack)
        self.outputs = supplies.device(outputs.nbytes, stack)
        self.input_dataset, input_buffers = _dataset(core, self.inputs, inputs, stack)
        self.output_dataset, output_buffers = _dataset(core, self.outputs, outputs, stack)
        self.binding = Binding(driver, self.inputs.address, inputs, input_buffers, outputs, output_buffers)
        # Destroyed through the attribute, not the handle: where events serve once, every launch replaces them.
        self.copied_in = driver.create_event()
        stack.callback(lambda: quietly(driver.destroy_event, self.copied_in))
        self.computed = driver.create_event()
        stack.callback(lambda: quietly(driver.destroy_event, self.computed))

    @property
    def _kept(self) -> DeviceResult | None:
        ties = None if self.request is None else self.request.ties
        return None if ties is None else ties.kept

    def may_write(self, then: Callable[[], None]) -> bool:
        """Whether no run of others reads its outputs; else `then` follows when that is so."""
        if self._kept is None or not self._kept.active:
            return True
        self._kept.follow(then)
        return False

    @property
    def repeatable(self) -> bool:
        """Whether its run may be made again at once: not when runs of others that read its outputs may be queued."""
        return self._kept is None or not self._kept.readers

    def forget_run(self, *, aborted: bool = False) -> None:
        """The run is going to be made again, or to fail: nobody may build on it from now on."""
        if self._kept is not None:
            self._kept.run_lost(aborted=aborted)

    def clear(self) -> None:
        """Refer to nothing of the request any more: it has its outcome, or was handed over."""
        self.request = self.outlet = self.error = None
        self.suspect = self.queued = False

    def part_with_outputs(self, fresh: DeviceBlock) -> None:
        """The outputs go with a result; the next run writes into `fresh`."""
        self._supplies.exchange(self.outputs, fresh)
        self.outputs = fresh
        self.binding.foreign = True


def _dataset(core: DeviceCore, block: DeviceBlock, layout: Layout, stack: ExitStack) -> tuple[int, list[int]]:
    driver, quietly = core.driver, core.quietly
    dataset = driver.create_dataset()
    stack.callback(quietly, driver.destroy_dataset, dataset)
    buffers = []
    for offset, size in zip(layout.offsets, layout.sizes, strict=True):
        buffer = driver.create_data_buffer(block.address + offset, size)
        stack.callback(quietly, driver.destroy_data_buffer, buffer)
        driver.add_dataset_buffer(dataset, buffer)
        buffers.append(buffer)
    return dataset, buffers
