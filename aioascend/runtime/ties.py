"""What a request has on the device, or wants to leave there, beside its own way through the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..memory.blocks import Array
    from .results import DeviceResult
    from .tensors import DeviceOutputs, DeviceTensor

__all__ = ["OutputKind", "Ties"]

OutputKind = Literal["owned", "leased", "device"]
"""What becomes of outputs: copied into new arrays, left in the pinned memory they arrived in, or left on the device."""


class Ties:
    """The `residents` are those inputs that lie on the device, by index; `stayed` are outputs of kind ``"device"``."""

    __slots__ = ("_running", "_seen", "kept", "kind", "promised", "reading", "residents", "sources", "stayed")

    def __init__(self, kind: OutputKind, residents: dict[int, DeviceTensor], stayed: DeviceOutputs | None) -> None:
        self.kind = kind
        self.residents = residents
        # The results that they are of, each once: held by the request, once it is `reading`.
        self.sources: tuple[DeviceResult, ...] = tuple(dict.fromkeys(tensor.result for tensor in residents.values()))
        self.reading = False
        self.stayed = stayed
        self.kept = None if stayed is None else stayed.result
        self.promised = False  # memory for its outputs
        self._running = False  # a run that reads the sources was queued, and its end was not seen
        self._seen: list[int] = []  # which run of each source it has read

    def not_resident(self, views: list[Array]) -> list[Array]:
        """Those of the views of all inputs that are of inputs on the host."""
        return [view for index, view in enumerate(views) if index not in self.residents]

    def run_queued(self) -> None:
        """A run that reads the sources is being queued; device thread, and so are the others."""
        self._seen = [source.runs for source in self.sources]
        if not self._running:
            self._running = True
            for source in self.sources:
                source.active += 1

    def run_over(self) -> None:
        """The run does not read them any more; a second call does nothing."""
        if self._running:
            self._running = False
            for source in self.sources:
                source.unread()

    @property
    def outdated(self) -> bool:
        """Whether a source was made again after it was read."""
        return any(seen != source.runs for seen, source in zip(self._seen, self.sources, strict=True))
