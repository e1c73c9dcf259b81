"""Which device memory the datasets of a place point at: its own, unless a run takes inputs from elsewhere.

A data buffer has the size that the model declares and a 64-byte aligned address (pyACL reference §8, §11): a result of
another model is bound as it lies, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..driver import Driver
from ..memory.layout import Layout

if TYPE_CHECKING:
    from .tensors import DeviceTensor

__all__ = ["Binding"]


class Binding:
    """The data buffers of one place; device thread, while no run over them is queued.

    `foreign` tells that they may point elsewhere than at the place's own memory.
    """

    def __init__(
        self,
        driver: Driver,
        address: int,
        inputs: Layout,
        input_buffers: list[int],
        outputs: Layout,
        output_buffers: list[int],
    ) -> None:
        self._driver = driver
        self.foreign = False
        self._own = [address + offset for offset in inputs.offsets]
        self._bound = list(self._own)
        self._inputs = inputs
        self._input_buffers = input_buffers
        self._outputs = outputs
        self._output_buffers = output_buffers
        self._written: int | None = None  # where the outputs go, when that is known

    def bind(self, outputs: int, residents: Mapping[int, DeviceTensor]) -> None:
        """Read `residents` where they lie and the other inputs from the place's memory; write the outputs to `outputs`.

        Raises `AclError`; then it is to be called again before anything else is run.
        """
        self.foreign = True
        update = self._driver.update_data_buffer
        for index, own in enumerate(self._own):
            resident = residents.get(index)
            wanted = own if resident is None else resident.where
            if wanted != self._bound[index]:
                update(self._input_buffers[index], wanted, self._inputs.sizes[index])
                self._bound[index] = wanted
        if outputs != self._written:
            self._written = None
            layout = self._outputs
            for buffer, offset, size in zip(self._output_buffers, layout.offsets, layout.sizes, strict=True):
                update(buffer, outputs + offset, size)
            self._written = outputs
        self.foreign = bool(residents)
