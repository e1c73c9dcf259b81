"""`Session`: a model opened on a device, and the doors through which it is used."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from types import TracebackType
from typing import Any, Literal

import numpy as np

from . import driver
from .arguments import base_name, device_names, seconds_above_zero, whole_number
from .depth import GIVEN, MOST_DEPTH, NOT_MEASURED, AutoDepth, depth_of, find_depth
from .doors import Doors, refuse_in_loop
from .errors import InvalidInput, SessionClosed
from .model import ShapeOptions, TensorSpec, open_source
from .runtime import process
from .runtime.background import done_within, forget_frames, in_background, run_in_background, wait_for
from .runtime.core import DeviceCore
from .runtime.equipment import Recipe
from .runtime.pipeline import Pipeline
from .runtime.request import Request
from .runtime.timing import TimingSource
from .runtime.uncopyable import Uncopyable
from .scheduling.health import HealthState
from .telemetry.statistics import SessionStatistics
from .waiting import prepare_anyio

__all__ = ["Session"]

logger = logging.getLogger("aioascend.session")

Model = str | os.PathLike[str] | bytes | bytearray | memoryview
# Of three streams each, where a device has 512 to 2,048 (pyACL reference §6): what is too many for it fails to open.
_MOST_INSTANCES = 256
# 1,024 requests of 1 MiB: below that size the number of requests is what bounds the queue, above it the memory.
_WAITING_BYTES = 1 << 30
# How long runs under way may go on when a session closes without waiting for them, where they can be ended.
_GRACE_S = 0.5
# How long a close waits for a device that does not answer, or for runs whose results nobody wants.
_CLOSE_S = 4.0
_LOOK_S = 0.5
State = Literal["new", "opening", "open", "closing", "closed"]


class Session(Doors, Uncopyable):
    """A model on a device, whose results can be awaited from any event loop.

    ``model`` is a path or the bytes of an offline model (`.om`) on an NPU, or of an `.onnx` graph on the emulator.

    ``devices`` names where: ``"npu:0"``, ``"emulator:0"``, or ``"auto"`` for an NPU where there is one, else the
    emulator with a logged warning; the environment variable ``AIOASCEND_DEVICES`` sets what ``"auto"`` means.

    ``shapes={"x": (1, 3, 224, 224)}`` fixes the open axes of an `.onnx`, as ATC's ``--input_shape`` does for an `.om`.
    Output shapes come from shape inference, else from runs on example values (``examples={"sr": 16000}`` gives some
    of them), else from ``output_shapes``.

    ``depth`` is the number of requests on the device at once for each of the ``instances`` of the model that are
    loaded. ``"auto"`` measures at open, on zeros or ``examples``: one place first, then one more at a time while
    throughput grows by more than 5 %, for 2 s at most; an `AutoDepth` sets these bounds. `depth_reason` says why the
    search ended. ``warmup`` runs the model that often, on the same inputs, at open.

    ``max_waiting`` bounds the queue before the device, and so how long a request may have to wait in it;
    ``max_waiting_bytes`` bounds the bytes of input in it, and so the memory that waiting callers keep alive, because
    the arrays are theirs and are copied when their turn comes. ``infer`` and ``run`` raise `Overloaded` past either;
    ``submit`` and ``map`` wait, and count for neither.

    ``dry_run=True`` opens an `.om` on the emulator, which cannot run it: inputs, outputs and sizes are the file's,
    nothing is computed, and the outputs are made up and say so (``outputs.synthetic``).

    ``stall_timeout`` is how long one run may take, in seconds from when it could have begun, before its streams are
    aborted or, where the product cannot, its device counts as lost; None leaves that to the limits of the device. The
    default is longer than any run we know of and shorter than those limits, which do not cover copies anyway. Sessions
    on one device share its cores, so that a run may rightly wait behind another session's: as long as one of those may
    still be going on, the longest ``stall_timeout`` among them counts, and where that is None, none does. Give sessions
    that share a device limits of the same size. A run that only waits for another session's result lengthens nobody's.

    ``device_results`` bounds the results of ``outputs="device"`` that are alive, or on their way, at once.

    The session carries on by itself after faults: a dead context is rebuilt and the model loaded again (bytes of it are
    kept for that), a lost device is probed until it answers. `ready` and `statistics().devices` tell how it stands.

    A session may be made outside any loop, and used from several loops and threads. It is opened and closed by
    ``async with``, plain ``with``, or ``await session.open()`` and ``await session.aclose()``.
    """

    def __init__(
        self,
        model: Model,
        *,
        devices: str | Sequence[str] = "auto",
        shapes: Mapping[str, Sequence[int]] | None = None,
        examples: Mapping[str, Any] | None = None,
        output_shapes: Mapping[str, Sequence[int]] | None = None,
        instances: int = 1,
        depth: int | Literal["auto"] | AutoDepth = 3,
        max_waiting: int = 1024,
        max_waiting_bytes: int = _WAITING_BYTES,
        warmup: int = 0,
        dry_run: bool = False,
        stall_timeout: float | None = 300.0,
        device_results: int = 64,
    ) -> None:
        self._model: Model | None = model  # until it is opened; then its recipe has it
        self._devices = device_names(devices)
        self._options = ShapeOptions(shapes, examples, output_shapes, dry_run)
        self._instances = whole_number("instances", instances, 1, _MOST_INSTANCES)
        self._auto, self._depth = depth_of(depth, MOST_DEPTH)
        self._depth_reason = GIVEN if self._auto is None else NOT_MEASURED
        self._max_waiting = whole_number("max_waiting", max_waiting, 0)
        self._max_waiting_bytes = whole_number("max_waiting_bytes", max_waiting_bytes, 0)
        self._warmup = whole_number("warmup", warmup, 0)
        self._stall_timeout = seconds_above_zero("stall_timeout", stall_timeout)
        self._device_results = whole_number("device_results", device_results, 1)
        self._name = f"<{len(model)} bytes>" if isinstance(model, (bytes, bytearray, memoryview)) else base_name(model)
        self._lock = threading.Lock()
        self._state: State = "new"
        self._opened: Future[None] | None = None
        self._forks = 0  # of this process, when the open began
        self._openers = 0  # those who wait for the open
        self._closed: Future[None] | None = None
        self._core: DeviceCore | None = None
        self._pipeline: Pipeline | None = None

    # -- what it is -------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input in the model's order; raises `SessionClosed` before the open."""
        return self._any_pipeline().signature.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output in the model's order; raises `SessionClosed` before the open."""
        return self._any_pipeline().signature.outputs

    @property
    def ready(self) -> bool:
        """Whether the session is open and its device at work.

        False while the device's context is rebuilt (requests are taken, and wait), and while the device is lost or the
        model could not be loaded again (requests fail at once).
        """
        pipeline, core = self._pipeline, self._core
        if self._state != "open" or pipeline is None or core is None or self._inherited:
            return False
        return pipeline.refused is None and core.recovery.health.state is HealthState.HEALTHY

    @property
    def device(self) -> str:
        """The name of the device it is open on, or what was asked for before that."""
        return self._core.name if self._core is not None else self._devices

    @property
    def depth(self) -> int:
        """Requests on the device at once for each instance; 1 with ``depth="auto"`` before the open."""
        return self._depth

    @property
    def depth_reason(self) -> str:
        """Why the depth is what it is: what the search of ``depth="auto"`` has found, or that it was given."""
        return self._depth_reason

    def statistics(self) -> SessionStatistics:
        """A snapshot of what the session is doing and has done; from any thread, never blocks."""
        pipeline = self._pipeline
        queue = pipeline.admission if pipeline is not None else None
        counters = pipeline.counters if pipeline is not None else None
        return SessionStatistics(
            state=self._state,
            device=self.device,
            depth=self._depth,
            instances=self._instances,
            waiting=queue.waiting if queue else 0,
            waiting_bytes=queue.waiting_bytes if queue else 0,
            staging=queue.staging if queue else 0,
            running=queue.running if queue else 0,
            draining=queue.draining if queue else 0,
            leased=pipeline.leases.leased if pipeline else 0,
            leased_results=pipeline.pinned_spares.lent if pipeline else 0,
            device_results=pipeline.device_spares.alive if pipeline else 0,
            completed=counters.completed if counters else 0,
            failed=counters.failed if counters else 0,
            cancelled=counters.cancelled if counters else 0,
            expired=counters.expired if counters else 0,
            refused=counters.refused if counters else 0,
            repeated=pipeline.repeated if pipeline else 0,
            devices=self._core.recovery.statistics() if self._core is not None else (),
            depth_reason=self._depth_reason,
            memory=self._core.pools.statistics() if self._core is not None else None,
        )

    def recording_source(self) -> TimingSource:
        """What `aioascend.telemetry.record` takes its times from; raises `SessionClosed` unless it is open."""
        pipeline = self._usable()
        assert self._core is not None
        return TimingSource(f"{self._name} on {self.device}", self._core, pipeline.timing)

    def __repr__(self) -> str:
        now = self.statistics()
        text = f"<aioascend.Session {self._name} on {now.device}: {now.state}"
        if now.state in ("open", "closing"):
            places = now.depth * now.instances
            text += f", {now.running}/{places} running, {now.waiting + now.staging} waiting, {now.completed} completed"
            text += "".join(f", {device.name} {device.state}" for device in now.devices if device.state != "healthy")
            for what in ("failed", "cancelled", "expired", "refused"):
                if count := getattr(now, what):
                    text += f", {count} {what}"
        return text + ">"

    # -- opening and closing ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the device, load the model and make every buffer; returns when the session is usable.

        The loop is free meanwhile. Cancelling it leaves nothing behind, unless another task waits for it too. Opening
        an open session does nothing; a closed one stays closed. Raises `ModelLoadError`, `BackendUnavailable`,
        `InvalidInput`, `OutOfMemory`, `AclError`.
        """
        try:
            await wait_for(self._begin_open())
        finally:
            self._end_open()
        self._check_opened()

    def open_sync(self) -> None:
        """`open` for scripts and notebooks: blocks the calling thread."""
        refuse_in_loop("open_sync", "open")
        try:
            self._begin_open().result()
        finally:
            self._end_open()
        self._check_opened()

    async def aclose(self, *, drain: bool = True) -> None:
        """Take no more requests, finish those that were taken, and give everything back; safe to call again.

        With ``drain=False`` requests that are still queued get `SessionClosed`, and so do those whose runs are not over
        half a second later, on the emulator, which can end them; what runs on an NPU is waited for. In any case runs
        whose callers have given up are not waited for where they can be ended.
        If the wait is cancelled, the closing goes on by itself. It does so too, with a warning in the log, when
        ``drain=False`` or a device that does not answer has made it wait for 4 s: memory is the device's until then.
        """
        closed = self._begin_close(drain=drain)
        while not await done_within(closed, self._patience(drain)):
            if self._gives_up(drain):
                return

    def close_sync(self, *, drain: bool = True) -> None:
        """`aclose` for scripts and notebooks: blocks the calling thread."""
        refuse_in_loop("close_sync", "aclose")
        closed = self._begin_close(drain=drain)
        while not wait([closed], timeout=self._patience(drain)).done:
            if self._gives_up(drain):
                return
        closed.result()

    def _patience(self, drain: bool) -> float:
        return _LOOK_S if drain and not self._lost else _CLOSE_S

    def _gives_up(self, drain: bool) -> bool:
        """Whether a close that takes so long is no longer waited for."""
        if drain and not self._lost:
            return False
        logger.warning("%r is being closed in the background: its device has not ended what it was given", self)
        return True

    @property
    def _lost(self) -> bool:
        return self._core is not None and not self._core.recovery.health.serves

    async def __aenter__(self) -> Session:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose(drain=kind is None)

    def __enter__(self) -> Session:
        self.open_sync()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_sync(drain=kind is None)

    def __del__(self) -> None:
        if getattr(self, "_state", "new") not in ("opening", "open"):
            return
        if not self._inherited and not process.exiting():
            text = f"{self!r} was never closed"
            self._begin_close(drain=False)  # first: warnings may be errors
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def _begin_open(self) -> Future[None]:
        self._check_fork()
        process.before_open()
        with self._lock:
            if self._state in ("closing", "closed"):
                raise SessionClosed(f"{self!r} cannot be opened again; make a new one")
            self._openers += 1
            if self._opened is None:
                self._state = "opening"
                self._forks = process.forks()
                self._opened = Future()
                run_in_background("aioascend-open", self._open, self._opened)
            return self._opened

    def _end_open(self) -> None:
        """One of those who waited for the open goes on; the last one closes the session unless it was opened."""
        if self._inherited:
            return
        with self._lock:
            self._openers = max(0, self._openers - 1)
            opened = self._opened
            if self._openers or opened is None:
                return
            failed = not opened.done() or opened.exception() is not None
        if failed:
            self._begin_close(drain=False)

    def _check_opened(self) -> None:
        if self._state != "open":
            raise SessionClosed(f"{self!r} was closed while it was being opened")

    def _begin_close(self, *, drain: bool) -> Future[None]:
        if self._inherited or process.exiting():
            # Nothing that could be closed exists in a forked child, where the lock may be held by a thread of the
            # parent; and at interpreter exit every device has been let go, its threads have ended.
            self._state = "closed"
            done: Future[None] = Future()
            done.set_result(None)
            return done
        with self._lock:
            if self._closed is None:
                opened = self._opened
                self._closed = Future()
                if opened is None:
                    self._state = "closed"
                    self._closed.set_result(None)
                else:
                    self._state = "closing"
                    run_in_background("aioascend-close", lambda: self._close(opened, drain), self._closed)
            return self._closed

    def _open(self) -> None:
        # In a thread of its own; the ACL calls happen on the device's control thread.
        model, self._model = self._model, None
        assert model is not None
        prepare_anyio()
        names = driver.resolve(self._devices)
        if len(names) != 1:
            raise InvalidInput(
                f"devices={self._devices!r} means {', '.join(map(str, names)) or 'no device'}; "
                "this version opens a session on one device: name one"
            )
        core, started = process.acquire(names[0])
        self._core = core
        try:
            started.result()
            core.recovery.check()
            make = partial(Pipeline, core, max_waiting=self._max_waiting, max_waiting_bytes=self._max_waiting_bytes)
            terms = (self._options, self._instances, self._depth, self._stall_timeout, self._device_results)
            build = core.control(_build, make, model, *terms)
            del model
            pipeline = build.result()
            try:
                self._warm_up(core, pipeline)
            except BaseException:
                self._stop(core, pipeline, drain=False)
                raise
            self._pipeline = pipeline
        except BaseException as error:
            process.leave(core)
            forget_frames(error)
            raise
        with self._lock:
            if self._state == "opening":
                self._state = "open"

    def _close(self, opened: Future[None], drain: bool) -> None:
        # In a thread of its own.
        try:
            if opened.exception() is not None:
                return  # nothing was left behind
            core, pipeline = self._core, self._pipeline
            assert core is not None
            assert pipeline is not None
            self._stop(core, pipeline, drain=drain)
            leave = partial(process.leave, core)
            all_back = partial(pipeline.when_all_back, partial(in_background, "aioascend-close", leave))
            if core.call(all_back).result():
                leave()
        finally:
            self._state = "closed"

    def _warm_up(self, core: DeviceCore, pipeline: Pipeline) -> None:
        examples = self._options.examples
        specs = pipeline.signature.inputs
        zeros = {spec.name: examples.get(spec.name, np.zeros(spec.shape, spec.dtype)) for spec in specs}

        def make() -> Request:
            return self._request(pipeline, [zeros], patient=True)

        for _ in range(self._warmup):
            request = make()
            pipeline.submit(request)
            request.done.wait_blocking()
            request.result()
        if self._auto is not None:
            choice = find_depth(core, pipeline, self._auto, make, lambda: self._state == "opening")
            self._depth, self._depth_reason = choice.depth, choice.reason
            logger.info("%s on %s: depth %d: %s", self._name, core.name, choice.depth, choice.reason)

    def _stop(self, core: DeviceCore, pipeline: Pipeline, *, drain: bool) -> None:
        idle = threading.Event()
        reason = f"{self._name}: the session is closed"

        def stop(_: None) -> None:
            pipeline.stop_accepting(reason, drain=drain, when_idle=idle.set)

        core.post(stop, None)
        if not drain and not idle.wait(_GRACE_S):
            core.post(lambda _: pipeline.end_runs(), None)
        idle.wait()
        core.control(pipeline.close).result()

    # -- small things -----------------------------------------------------------------------------------------------

    def _usable(self) -> Pipeline:
        pipeline = self._pipeline
        if pipeline is None or self._state != "open" or self._forks != process.forks():
            self._check_fork()
            if pipeline is None or self._state not in ("open", "closing"):
                raise self._not_open()
        return pipeline

    @property
    def _inherited(self) -> bool:
        """Whether this process was forked from the one that opened the session, or was opening it."""
        return self._opened is not None and self._forks != process.forks()

    @property
    def _ahead(self) -> int:
        return self._depth * self._instances + 2

    def _check_fork(self) -> None:
        if self._opened is not None:
            process.check_forks(self._forks, f"{self._name} on {self.device}")

    def _any_pipeline(self) -> Pipeline:
        if self._pipeline is None:
            raise self._not_open()
        return self._pipeline

    def _not_open(self) -> SessionClosed:
        if self._state in ("new", "opening"):
            return SessionClosed(
                f"{self!r} is not open yet: use `async with session:`, `with session:`, or await session.open() first"
            )
        return SessionClosed(f"{self!r}: make a new one")


def _build(
    make: Callable[[Recipe], Pipeline],
    model: Model,
    options: ShapeOptions,
    instances: int,
    depth: int,
    stall_timeout: float | None,
    device_results: int,
) -> Pipeline:
    """Load the model and make the session's pipeline; control thread."""
    return make(Recipe(open_source(model), options, instances, depth, stall_timeout, device_results))
