"""What a session has in one context of its device: loaded models, pinned buffers and lanes.

It goes with the context: after a rebuild the session gets another one, made from the same recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from ..errors import ModelLoadError
from ..memory.layout import plan
from ..model import LoadedModel, ModelSource, ShapeOptions, Signature, load_models
from .buffers import InputBuffer
from .core import DeviceCore
from .lane import Extra, Lane
from .supplies import Supplies

__all__ = ["Equipment", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """What equipment is made from; holds the model's bytes where no path was given, to load them again."""

    source: ModelSource
    options: ShapeOptions
    instances: int
    depth: int
    stall_timeout: float | None = None  # seconds
    device_results: int = 64  # results on the device that may be alive or promised

    @property
    def staging(self) -> int:
        """Pinned input buffers: one for every place, held until its outcome is known so that the run can be repeated,
        and one more a lane that is filled meanwhile.
        """
        return self.instances * (self.depth + 1)

    @property
    def leases(self) -> int:
        """Pinned input buffers that are lent to callers: two at least, as one is written while the other runs."""
        return max(2, self.instances * self.depth)

    @property
    def outlets(self) -> int:
        """Pinned output buffers a lane: one more than can run, as results are copied out while a full set runs."""
        return self.depth + 1

    @property
    def kept_outlets(self) -> int:
        """Pinned output buffers that callers may hold with results: two for every place, as one is looked at while the
        next arrives.
        """
        return 2 * self.instances * self.depth


@dataclass
class Growth:
    """One more place for every lane, made after the open, with the pinned buffers that belong to it."""

    staging: list[InputBuffer]
    extras: list[Extra]
    free: Callable[[], None]


class Equipment:
    """Made and given back on the control thread, otherwise used on the device's."""

    def __init__(self, core: DeviceCore, recipe: Recipe, expected: Signature | None = None) -> None:
        """Load the models and make the buffers; nothing is left behind when it raises.

        `expected` is the signature that the model had when it was loaded first.
        """
        self._core = core
        with ExitStack() as stack:
            recipe.source.check_unchanged()
            models = load_models(core.driver, recipe.source, recipe.options, recipe.instances)
            for model in models:
                stack.callback(core.quietly, model.unload)
            self.signature = _same(models, expected, recipe.source.name)
            self._supplies = Supplies(core, f"the session of {recipe.source.name}")
            self._layout = plan(self.signature.input_nbytes)
            self.staging = self._make_staging(recipe.staging, stack)
            self.lanes = [Lane(core, model, recipe, stack, self._supplies) for model in models]
            self._growths: list[Growth] = []
            self._stack = stack.pop_all()

    def _make_staging(self, count: int, stack: ExitStack) -> list[InputBuffer]:
        layout, specs = self._layout, self.signature.inputs
        return [InputBuffer(self._supplies.pinned(layout.nbytes, stack), layout, specs) for _ in range(count)]

    def make_growth(self) -> Growth:
        """Make one more place for every lane; control thread. Nothing is left behind when it raises."""
        with ExitStack() as stack:
            staging = self._make_staging(len(self.lanes), stack)
            extras = [lane.make_extra(stack) for lane in self.lanes]
            # Freed before the streams of the lanes go, which `close` has waited for by then.
            growth = Growth(staging, extras, stack.pop_all().close)
        self._stack.callback(growth.free)
        return growth

    def add(self, growth: Growth) -> None:
        """Use what `make_growth` has made; device thread."""
        self._growths.append(growth)
        self.staging += growth.staging
        for lane, extra in zip(self.lanes, growth.extras, strict=True):
            lane.add(extra)

    def take_last(self) -> Growth | None:
        """Stop using the latest growth, which is to be freed then, if there is one; device thread, while idle."""
        if not self._growths:
            return None
        growth = self._growths.pop()
        self.staging = [buffer for buffer in self.staging if buffer not in growth.staging]
        for lane, extra in zip(self.lanes, growth.extras, strict=True):
            lane.take(extra)
        return growth

    def close(self) -> None:
        """Give everything back; control thread, when nothing of it is queued any more, or the context is dead."""
        core = self._core
        for lane in reversed(self.lanes):
            lane.finish_streams()
        if core.teardown.stuck:
            self._stack.pop_all()
            self._supplies.abandon()
        else:
            self._stack.close()


def _same(models: list[LoadedModel], expected: Signature | None, name: str) -> Signature:
    signature = models[0].signature
    if expected is not None and signature != expected:
        raise ModelLoadError(f"{name} has other inputs or outputs than when the session was opened: open a new session")
    return signature
