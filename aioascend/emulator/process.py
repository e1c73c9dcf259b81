"""Everything that one emulated process shares: devices, contexts, handles, and what each thread has current."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from . import codes, gil
from .args import Failure
from .config import Config
from .contexts import Context, ThreadState
from .device_model import Work
from .engine import Engine
from .faults import Faults
from .findings import UNKNOWN, Findings, Leak, counted, here
from .host_objects import HostObjects
from .memory import Block, Blocks, DeviceMemory, FreedPinned
from .nesting import Nesting
from .races import Races
from .streams import Event, Fault, ReportQueue, Stream
from .tasks import undelivered
from .wait_graph import HostWait
from .waiting import wait_for_room

# handles of every kind come from one counter, so that a handle of the wrong kind is never valid by accident
_FIRST_HANDLE = 0x2AA0_0000_0000
_HANDLE_STEP = 0x40


class Device:
    """One device: its memory for the emulator's life, its engine while it is in use."""

    def __init__(self, index: int, config: Config, everywhere: dict[int, Block]) -> None:
        self.index = index
        self.name = f"aioascend-emulator-{index}"
        self.config = config
        self.set_count = 0
        self.contexts: dict[int, Context] = {}
        self.default_context: Context | None = None
        self.engine: Engine | None = None
        self.reports: dict[int, ReportQueue] = {}
        self.events = 0
        # the code that a lost device answers with, 0 for one that is well
        self.lost = 0
        self.recoverable = True
        self.dead_engine: Engine | None = None
        self.host_memory = config.run_mode == codes.RUN_MODE_DEVICE
        self.memory = DeviceMemory(index, config.memory, not self.host_memory, everywhere)

    def running(self) -> Engine:
        """The engine, which a device in use has."""
        if self.engine is None:
            raise self.gone()
        return self.engine

    def gone(self) -> Failure:
        """Why there is no engine."""
        if self.lost:
            return Failure(self.lost, f"device {self.index} is lost")
        return Failure(codes.CONTEXT_NULL, f"device {self.index} is not set, or was reset")

    def all_streams(self) -> list[Stream]:
        """Every stream of every context, default streams included."""
        return [stream for context in list(self.contexts.values()) for stream in context.every_stream()]


class Process:
    """The state behind one ``acl`` module.

    `lock` guards opening and closing of devices and contexts; handle tables are plain dicts, whose single operations
    are atomic.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.pid = os.getpid()
        self.lock = threading.RLock()
        # taken under an engine's lock, so it must be the innermost
        self._use_lock = threading.Lock()
        self.local = local = ThreadState()
        self.nesting = Nesting(lambda: local.context, lambda context: setattr(local, "context", context))
        self.nesting.found = self._found_orphans
        self.initialised = 0
        self.closed = False
        # what looks at every call that needs acl.init; nothing does between init and finalize
        self.gate: list[Callable[[str], None]] = [self._before_init]
        self.devices: list[Device | None] = [None] * config.devices
        self.contexts: dict[int, Context] = {}
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.models: dict[int, Any] = {}
        self.allocations: dict[int, Block] = {}
        self.pinned = Blocks(self.allocations)
        self.freed_pinned = FreedPinned()
        # (device, peer) where the device was let at the peer's memory
        self.peers: set[tuple[int, int]] = set()
        self.host_objects = HostObjects()
        self.reports: dict[int, ReportQueue] = {}
        self.report_devices: dict[int, Device] = {}
        # threads that wait for the device without a limit, by pthread id
        self.waiting: dict[int, HostWait] = {}
        self.holds_gil = config.profile is not None and config.profile.hold_gil
        self.run_options: list[Any] = []
        # what was left in a context or on a device when it was closed, and what was left at finalize
        self.swept: list[Leak] = []
        self.left: tuple[Leak, ...] | None = None
        self.findings = Findings(config.strict, config.trace)
        self.races = Races(self.findings, self) if config.finds_races else None
        self.faults = Faults(self.lose_device, self.return_device, config.devices)
        self.on_exception: Callable[[int], Any] | None = None
        self.exceptions: dict[int, dict[str, int]] = {}
        self._handles = itertools.count(_FIRST_HANDLE, _HANDLE_STEP)
        self.new_handle = self._handles.__next__

    # -- errors -------------------------------------------------------------------------------------------------

    def fail(self, code: int, text: str) -> int:
        """Note `text` for the calling thread's ``get_recent_err_msg`` and return `code`."""
        local = self.local
        local.last_error = code
        local.message = f"E{code}: {text}"
        return code

    def failed(self, error: Failure, call: str) -> None:
        """A call fails: note why for this thread, and the rule that was broken, if it was one."""
        self.fail(error.code, error.text)
        if error.rule:
            self.findings.note(error.rule, call, error.text)

    def spend(self, seconds: float, call: str) -> None:
        """Let `call`, of the calling thread, take that long by the profile."""
        profile = self.config.profile
        if profile is not None:
            profile.spend(seconds, gil.holds(call))

    # -- what handles mean --------------------------------------------------------------------------------------

    def current(self, asking: bool = False) -> Context:
        """The calling thread's context. A program that is only `asking` for it breaks no rule when there is none."""
        context = self.local.context
        if context is None:
            text = "this thread has no context: call set_context or set_device first"
            # without init that is what is wrong
            raise Failure(codes.CONTEXT_NULL, text, "" if asking or not self.initialised else "no-context")
        if not context.alive:
            text = f"the context {context.handle:#x} of this thread was destroyed"
            raise Failure(codes.CONTEXT_NULL, text, "" if asking or not self.initialised else "stale-handle")
        return context

    def stream(self, handle: int) -> Stream:
        """A stream of the current context; 0 is the context's default stream."""
        context = self.local.context
        if context is None or not context.alive:
            context = self.current()
        stream = context.streams.get(handle)
        if stream is None:
            if handle == 0:
                return context.default_stream
            if handle in self.streams:
                raise Failure(
                    codes.STREAM_CONTEXT,
                    f"stream {handle:#x} does not belong to this thread's context",
                    "foreign-stream",
                )
            raise Failure(codes.INVALID_HANDLE, f"{handle:#x} is not a stream, or was destroyed", "stale-handle")
        return stream

    def event(self, handle: int) -> Event:
        """An event by handle."""
        event = self.events.get(handle)
        if event is None:
            if handle == 0:
                raise Failure(codes.INVALID_PARAM, "the event is 0")
            raise Failure(codes.INVALID_HANDLE, f"{handle:#x} is not an event, or was destroyed", "stale-handle")
        return event

    def engine_of(self, stream: Stream) -> Engine:
        """The engine that drives `stream`."""
        engine = stream.context.device.engine
        if engine is None:
            raise stream.context.device.gone()
        return engine  # type: ignore[no-any-return]

    def model(self, number: int) -> Any:
        """A loaded model by id."""
        model = self.models.get(number)
        if model is None:
            raise Failure(codes.GE_MODEL_ID_INVALID, f"no model with id {number} is loaded")
        return model

    # -- memory -------------------------------------------------------------------------------------------------

    def device_of(self, address: int) -> Device | None:
        """The device in whose range `address` lies."""
        for device in self.devices:
            if device is not None and device.memory.base <= address < device.memory.end:
                return device
        return None

    def block_of(self, address: int, size: int) -> Block | None:
        """The device or pinned block that holds these bytes, None for pageable host memory.

        An address in a device's range outside any allocation, or bytes beyond the end of a block, are refused.
        """
        block = self.allocations.get(address)
        if block is not None and size <= block.size:
            return block
        for device in self.devices:
            if device is not None and device.memory.base <= address < device.memory.end:
                block = device.memory.blocks.find(address)
                if block is None:
                    freed = address in device.memory.freed
                    text = f"{address:#x} {'was freed' if freed else 'lies in no allocation'} on device {device.index}"
                    raise Failure(codes.PARAM_INVALID, text, "use-after-free" if freed else "wild-address")
                break
        else:
            block = self.pinned.find(address)
            if block is None:
                block = self.freed_pinned.find(address)
                if block is None:
                    return None
                text = f"{address:#x} was freed: it lies in {block!r}"
                raise Failure(codes.PARAM_INVALID, text, "use-after-free")
        if address + size > block.start + block.size:
            raise Failure(
                codes.PARAM_INVALID,
                f"{size} bytes from {address:#x} go beyond the end of {block!r} at {block.start + block.size:#x}",
                "overflow",
            )
        return block

    def on_lost_device(self) -> bool:
        """Whether this thread's device is lost: what was under way there touches nothing any more."""
        context = self.local.context
        return context is not None and bool(context.device.lost)

    def use(self, *blocks: Block) -> None:
        """Queued work needs these blocks (strict mode counts them)."""
        with self._use_lock:
            for block in blocks:
                block.users += 1

    def unuse(self, *blocks: Block) -> None:
        """The work is done or dropped."""
        with self._use_lock:
            for block in blocks:
                block.users -= 1

    def watch(self, task: Work, *blocks: Block) -> None:
        """Before a task is submitted: count what it needs and remember the program's line, where that is wanted."""
        if self.findings.strict:
            once = set(blocks)
            self.use(*once)
            task.done = partial(self.unuse, *once)
        if self.findings.trace:
            task.site = here()

    def at_home(self, block: Block, device: int, call: str) -> None:
        """Note the use of another device's memory on `device`, unless it was let at it."""
        if 0 <= block.device != device and (device, block.device) not in self.peers:
            text = f"{block!r} was used on device {device}"
            self.findings.note("foreign-device", call, text, codes.PARAM_INVALID)

    def chip_has(self, function: str, what: str = "") -> None:
        """Note the use of what the emulated chip has not."""
        if not self.config.has(function):
            text = f"{self.config.soc_name} has no {what or function}"
            self.findings.note("unsupported-on-chip", f"acl.rt.{function}", text, codes.FEATURE_NOT_SUPPORT)

    # -- devices and contexts -----------------------------------------------------------------------------------

    def _before_init(self, call: str) -> None:
        text = "acl.init() comes before everything else"
        self.findings.note("before-init", call, text, codes.UNINITIALIZE, once=True)

    def _after_finalize(self, call: str) -> None:
        self.findings.note(
            "after-finalize", call, "acl.finalize() had been called before", codes.UNINITIALIZE, once=True
        )

    def _in_forked_child(self, call: str) -> None:
        """Always refused: the locks of what the child would use may be held by threads that it does not have."""
        text = f"process {os.getpid()} was forked from one that had initialised ACL, and cannot use it"
        self.findings.note("used-in-forked-child", call, text, once=True)
        raise Failure(codes.DEV_SETUP_ERROR, text)

    def _found_orphans(self) -> None:
        if self._adopt not in self.gate:
            self.gate.append(self._adopt)

    def _adopt(self, call: str) -> None:
        context = self.local.context
        if context is not None and context.alive and self.nesting.inside.calls is None:
            self.gate.remove(self._adopt)
            self.nesting.adopt()

    def begin(self) -> None:
        """``acl.init``."""
        if self._in_forked_child in self.gate:
            self._in_forked_child("acl.init")
        with self.lock:
            self.initialised += 1
            self.left = None
            self.gate.clear()
            if self.nesting.orphans:
                self._found_orphans()
            if self.initialised > 1:
                raise Failure(codes.REPEAT_INITIALIZE, "acl.init() was called already")
        self.findings.made("init", 0)

    def end(self, leaks: Callable[[], tuple[Leak, ...]], once: bool = False) -> int:
        """``acl.finalize``, or with `once` one call of several; the calls that are left."""
        with self.lock:
            if not self.initialised:
                raise Failure(codes.REPEAT_FINALIZE, "ACL is finalised already, or was never initialised")
            self.initialised = self.initialised - 1 if once else 0
            if self.initialised:
                return self.initialised
            self.gate[:] = [self._after_finalize]
        self.left = leaks()
        self.host_objects.clear()
        return 0

    def require_init(self) -> None:
        """Some calls cannot do without ``acl.init``, be it ever so lenient."""
        if self.closed:
            raise Failure(codes.SOCKET_CLOSE, "the emulator was shut down")
        if not self.initialised:
            raise Failure(codes.UNINITIALIZE, "acl.init() was not called, or acl.finalize() was")

    def device(self, index: int) -> Device:
        """A device by number, made on first use."""
        if not 0 <= index < len(self.devices):
            raise Failure(codes.INVALID_DEVICEID, f"there is no device {index}: devices 0 to {len(self.devices) - 1}")
        device = self.devices[index]
        if device is None:
            with self.lock:
                device = self.devices[index]
                if device is None:
                    try:
                        device = Device(index, self.config, self.allocations)
                    except MemoryError as error:
                        raise Failure(codes.MEMORY_ALLOCATION, f"device {index}: {error}") from None
                    self.devices[index] = device
        return device

    def open_context(self, device: Device, default: bool) -> Context:
        """A new context; the first one starts the device's engine."""
        with self.lock:
            if self.closed:
                raise Failure(codes.SOCKET_CLOSE, "the emulator was shut down")
            if device.lost:
                raise device.gone()
            if device.engine is None:
                device.engine = Engine(
                    device.name,
                    self.config.concurrent_executes,
                    owner=self,
                    timed=self.config.profile is not None,
                    started=self.nesting.on_a_thread_of_ours,
                )
                if self.config.fatal_faults:
                    device.engine.model.fatal = codes.FATAL
                self._arm(device, device.engine)
            context = Context(self.new_handle(), device, default)
            device.contexts[context.handle] = context
            self.contexts[context.handle] = context
            if default:
                device.default_context = context
            return context

    def close_context(self, context: Context, call: str) -> None:
        """Drop a context whose work is done, for `call`; the last one ends the device's engine."""
        with self.lock:
            if not context.alive:
                return
            context.alive = False
            device = context.device
            self.contexts.pop(context.handle, None)
            device.contexts.pop(context.handle, None)
            if context.default:
                device.default_context = None
            engine = device.engine
            lost = 0
            for stream in context.every_stream():
                self.streams.pop(stream.handle, None)
                if engine is not None:
                    with engine.lock:
                        lost += undelivered(stream)
                        engine.model.unsubscribe(stream)
                        engine.model.drop(stream, codes.STREAM_ABORT)
                        engine.kick()
                elif stream.report is not None:
                    stream.report.streams.discard(stream)
            if lost:
                text = f"{context!r} was closed before {counted(lost, 'callback')} launched in it could run"
                self.findings.note("callback-dropped", call, text)
            left = self.content(context)
            self.swept += left
            if left:
                kinds = [leak.kind for leak in left]
                what = ", ".join(counted(kinds.count(kind), kind) for kind in sorted(set(kinds)))
                name = f"the default context of device {device.index}" if context.default else repr(context)
                self.findings.note("teardown-order", call, f"{name} was closed with {what} left in it")
            if self.races is not None:
                self.races.settled(context.every_stream())
            context.streams.clear()
            self.forget_reports()
            for handle, event in list(self.events.items()):
                if event.context is context:
                    self.events.pop(handle, None)
            for number, model in list(self.models.items()):
                if model.context is context:
                    self.models.pop(number, None)
                    self.release_model(model)
            if not device.contexts and device.set_count == 0:
                self._close_device(device)

    def content(self, context: Context) -> list[Leak]:
        """The streams, events and models of a context."""
        device, site = context.device.index, self.findings.site
        found = [Leak("stream", handle, 0, device, site("stream", handle)) for handle in list(context.streams)]
        for kind, table in (("event", self.events), ("model", self.models)):
            handles = [handle for handle, entry in list(table.items()) if entry.context is context]
            found += [Leak(kind, handle, 0, device, site(kind, handle)) for handle in handles]
        return found

    def device_blocks(self, device: Device) -> list[Leak]:
        """The program's memory on a device."""
        site = self.findings.site
        return [
            Leak("device memory", block.start, block.requested, device.index, site("device memory", block.start))
            for block in device.memory.blocks
            if not block.internal
        ]

    def release_model(self, model: Any) -> None:
        """Free what a model holds. It is out of the table already."""
        model.network = None
        model.borrowed.give_back()
        for block in model.blocks:
            model.context.device.memory.release(block.start)
        model.blocks = []

    def forget_reports(self) -> None:
        """Take out the threads that serve no stream any more. `lock` is held."""
        for thread, report in list(self.reports.items()):
            if not report.streams:
                self.reports.pop(thread, None)
                self.report_devices.pop(thread, None)

    def forked(self) -> None:
        """In a forked child: the parent's threads are not here, its locks may be held for ever.

        Where the parent had not initialised anything the child is as good as a fresh process.
        """
        self.findings.forked()
        if self.races is not None:
            self.races.forked()
        self.host_objects.forked()
        if not self.initialised and not self.contexts:
            self.pid = os.getpid()
            self.lock = threading.RLock()
            self._use_lock = threading.Lock()
            return
        self.closed = True
        self.initialised = 0
        self.gate[:] = [self._in_forked_child]
        self.left = ()  # it is the parent that has made everything and will release it
        self.lock = threading.RLock()
        for context in self.contexts.values():
            context.alive = False
        self.contexts.clear()

    def _arm(self, device: Device, engine: Engine) -> None:
        index, faults = device.index, self.faults
        engine.model.faults = faults.of_tasks
        engine.sabotage = lambda work: faults.on_task(work.kind, index)
        engine.model.lateness = faults.on_callback
        engine.model.watch = self.races
        engine.on_fault = lambda work, fault: self._report_exception(device, work, fault)
        depth = engine.depth = self.config.stream_depth
        engine.on_full = lambda stream, call: wait_for_room(self, stream, depth, call)
        engine.streams = device.all_streams

    def _report_exception(self, device: Device, work: Work, fault: Fault) -> None:
        """Tell the program's exception callback about a failed task, on the thread that ran it."""
        if fault.rule:
            kind = "task" if work.kind == "any" else work.kind
            self.findings.note(fault.rule, f"a queued {kind}", fault.text, where=str(work.site or UNKNOWN))
        function, stream = self.on_exception, work.stream
        if function is None or stream is None:
            return
        handle = self.new_handle()
        self.exceptions[handle] = {
            "task": stream.completed + 1,
            "stream": (stream.handle >> 6) & 0x7FFFFFFF,
            "device": device.index,
            "code": fault.code,
        }
        try:
            self.nesting.outside(function, handle)
        except Exception as error:
            self.findings.callback_raised("acl.rt.set_exception_info_callback", error)
        finally:
            # the handle is valid during the call only
            del self.exceptions[handle]

    def lose_device(self, index: int, code: int, recoverable: bool) -> None:
        """The device stops answering: threads that wait for it get `code`, as does every call from now on."""
        self.nesting.run(lambda: self._lose_device(index, code, recoverable))

    def _lose_device(self, index: int, code: int, recoverable: bool) -> None:
        device = self.device(index)
        with self.lock:  # all the while: nobody gives back or resets what is being lost
            device.recoverable = recoverable
            engine = device.engine
            if engine is None:
                device.lost = code
                return
            streams = device.all_streams()
            if self.races is not None:  # before anybody can know of the loss, and frees what was in use
                self.races.settled(streams)
            device.lost = code  # before a wait ends with that
            engine.stop(code)
            device.engine = None
            device.dead_engine = engine
            # first the threads, then the queues: dropping a record lets its waiters go with success
            engine.wake_hosts(code)
            with engine.lock:
                for stream in streams:
                    engine.model.drop(stream, code)
            if self.races is not None:
                self.races.settled(streams)
            for model in self.models.values():
                if model.context.device is device and model.network is not None:
                    model.network.terminate()

    def return_device(self, index: int) -> None:
        """A device that was lost for good can be reset from now on; if nothing of it is open, it is well."""
        device = self.device(index)
        with self.lock:
            device.recoverable = True
            if not device.contexts:
                device.lost = 0

    def _close_device(self, device: Device) -> None:
        engine = device.engine or device.dead_engine
        device.engine = device.dead_engine = None
        if device.recoverable:
            device.lost = 0
        device.events = 0
        self.swept += self.device_blocks(device)
        for thread in [thread for thread, owner in self.report_devices.items() if owner is device]:
            self.report_devices.pop(thread, None)
            report = self.reports.pop(thread, None)
            if report is not None:
                report.wake(codes.THREAD_SUBSCRIBE)
        if engine is not None:
            engine.stop()
            engine.wake_hosts(codes.SOCKET_CLOSE)
            if engine.join(timeout=30.0):
                device.memory.close()

    def shutdown(self, timeout: float) -> None:
        """End every thread at once and let every waiting host thread go. Idempotent."""
        if not self.closed:
            self.nesting.run(lambda: self._shutdown(timeout))

    def _shutdown(self, timeout: float) -> None:
        self.closed = True
        engines = []
        for device in self.devices:
            engine = (device.engine or device.dead_engine) if device is not None else None
            if engine is None:
                continue
            engines.append(engine)
            if engine.pid == os.getpid():
                engine.stop()
        for options in list(self.run_options):
            options.terminate = True
        for model in list(self.models.values()):
            network = model.network
            if network is not None:
                network.terminate()
        for engine in engines:
            if engine.pid == os.getpid():
                engine.wake_hosts(codes.SOCKET_CLOSE)
                engine.join(timeout)

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """The emulator's threads that are alive."""
        engines = [e for device in self.devices if device for e in (device.engine, device.dead_engine) if e]
        return tuple(thread for engine in engines for thread in engine.threads)
