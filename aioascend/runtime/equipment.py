"""What a session has in one context of its device: loaded models, pinned buffers and lanes.

It goes with the context: after a rebuild the session gets another one, made from the same recipe.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from ..errors import ModelLoadError
from ..memory.layout import plan
from ..model import LoadedModel, ModelSource, ShapeOptions, Signature, load_models
from .buffers import InputBuffer
from .core import DeviceCore
from .lane import Lane

__all__ = ["Equipment", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """What equipment is made from; holds the model's bytes where no path was given, to load them again."""

    source: ModelSource
    options: ShapeOptions
    instances: int
    depth: int
    stall_timeout: float | None = None  # seconds

    @property
    def staging(self) -> int:
        """Pinned input buffers: one for every place, held until its outcome is known so that the run can be repeated,
        and one more a lane that is filled meanwhile.
        """
        return self.instances * (self.depth + 1)

    @property
    def outlets(self) -> int:
        """Pinned output buffers a lane: one more than can run, as results are copied out while a full set runs."""
        return self.depth + 1


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
            layout = plan(self.signature.input_nbytes)
            self.staging: list[InputBuffer] = []
            for _ in range(recipe.staging):
                buffer = InputBuffer(core.driver, layout, self.signature.inputs)
                stack.callback(core.quietly, buffer.block.free)
                self.staging.append(buffer)
            self.lanes = [Lane(core, model, recipe, stack) for model in models]
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Give everything back; control thread, when nothing of it is queued any more, or the context is dead."""
        core = self._core
        for lane in reversed(self.lanes):
            lane.finish_streams()
        if core.teardown.stuck:
            self._stack.pop_all()  # what a stream that hangs may still touch is not freed
        else:
            self._stack.close()


def _same(models: list[LoadedModel], expected: Signature | None, name: str) -> Signature:
    signature = models[0].signature
    if expected is not None and signature != expected:
        raise ModelLoadError(f"{name} has other inputs or outputs than when the session was opened: open a new session")
    return signature
