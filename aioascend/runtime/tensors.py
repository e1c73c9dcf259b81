"""Results that stay on the device, as their owner sees them."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import ForkedProcess, SessionClosed, StaleLease
from ..memory.blocks import Array
from ..model import NamedOutputs, Outputs, Resident, TensorSpec
from .background import wait_for
from .results import DeviceResult
from .uncopyable import Uncopyable

__all__ = ["DeviceOutputs", "DeviceTensor"]


class _Claim:
    """The claim of all tensors of one result on its memory: ends once, when each was released or the last is gone."""

    def __init__(self, result: DeviceResult, tensors: int) -> None:
        self.result = result
        self._left = set(range(tensors))
        self._end = weakref.finalize(self, _let_go, result)
        self._end.atexit = False

    def release(self, index: int) -> None:
        self._left.discard(index)
        if not self._left:
            self._end()  # does something the first time only


def _let_go(result: DeviceResult) -> None:
    try:
        result.core.post(lambda _: result.unclaim(), None)
    except (SessionClosed, ForkedProcess):
        pass  # the memory went with its device, or is the parent's


class DeviceTensor(Resident, Uncopyable):
    """One output that has stayed on the device: give it to a session there as an input, or bring it to the host.

    A session on the same device takes it, where an array of its dtype and shape would do, without a copy. The memory,
    one block for all outputs of a run, is the device's again when each of them was released (`release`, the end of a
    ``with`` block) or collected, and the runs they were given to are over. It goes with the context: after a rebuild,
    or when the last session of the device is closed, its use raises `StaleLease`. The session that made it may be
    closed.
    """

    __slots__ = ("__weakref__", "_claim", "_index", "_spec", "result")

    def __init__(self, claim: _Claim, index: int, spec: TensorSpec) -> None:
        self._claim: _Claim | None = claim
        self._index = index
        self._spec = spec
        self.result = claim.result

    @property
    def name(self) -> str:
        """The name of the output."""
        return self._spec.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of its elements."""
        return self._spec.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._spec.shape

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self._spec.nbytes

    @property
    def device(self) -> str:
        """The name of the device that it is on."""
        return self.result.core.name

    @property
    def where(self) -> int:
        """Its address; device thread, for who holds the result."""
        result = self.result
        assert result.block is not None
        return result.block.address + result.layout.offsets[self._index]

    @property
    def room(self) -> int:
        """The bytes that the driver has reserved for it."""
        return self.result.layout.sizes[self._index]

    def check(self) -> None:
        """Raise `StaleLease` if it was released or its memory is gone, or what its run has failed with."""
        if self._claim is None:
            raise StaleLease(f"the tensor {self.name!r} was released: run the model again")
        problem = self.result.problem()
        if problem is not None:
            raise problem

    async def to_host(self) -> Array:
        """A copy on the host, a new array; raises `StaleLease`, and what its run has failed with."""
        self.check()
        (array,) = await wait_for(self.result.read([(self._index, self._spec)]))
        return array

    def release(self) -> None:
        """Give the memory back, together with that of the other outputs of its run; once, from any thread.

        Runs that it was given to before still read it.
        """
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release(self._index)

    def __enter__(self) -> DeviceTensor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "" if self._claim is not None else " (released)"
        return f"<aioascend.DeviceTensor {self._spec} on {self.device}{state}>"


class DeviceOutputs(NamedOutputs[DeviceTensor], Uncopyable):
    """The outputs of one inference that have stayed on the device, by index and by name.

    Given to ``infer`` or ``submit`` of another session it stands for its tensors in their order.
    """

    __slots__ = ("result",)

    def __init__(
        self, result: DeviceResult, specs: tuple[TensorSpec, ...], index: dict[str, int], synthetic: bool
    ) -> None:
        claim = _Claim(result, len(specs))
        tensors = [DeviceTensor(claim, position, spec) for position, spec in enumerate(specs)]
        super().__init__(tensors, specs, index, synthetic)
        self.result = result

    async def to_host(self) -> Outputs:
        """Copies of all of them on the host; raises `StaleLease`, and what the run has failed with."""
        for tensor in self:
            tensor.check()
        arrays = await wait_for(self.result.read(list(enumerate(self._specs))))
        return Outputs(arrays, self._specs, self._index, self._synthetic)

    def release(self) -> None:
        """Release every tensor."""
        for tensor in self:
            tensor.release()

    def __enter__(self) -> DeviceOutputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
