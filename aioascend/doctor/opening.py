"""Opening and closing a device, by each route: codes, counts, order, and whether Python stands still meanwhile."""

from __future__ import annotations

from ctypes import byref, c_void_p

from .bench import Bench, code_text
from .checks import Group, Seen, Unavailable
from .timing import Timed

__all__ = ["THROUGH_C", "THROUGH_PYACL"]

THROUGH_PYACL = Group("opening through pyACL", opens=False)
THROUGH_C = Group("opening through C", opens=False)

_SLOW = 20.0


@THROUGH_PYACL.check("acl.init holds the GIL", "§3", "held", seconds=_SLOW)
def _init(bench: Bench) -> Seen:
    acl = bench.acl
    with Timed() as timed:
        ret = acl.init()
    bench.good(ret, "acl.init")
    return timed.verdict()


@THROUGH_PYACL.check("a second acl.init is refused with a code of its own", "§4", "100002")
def _second_init(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.init()
    return code_text(ret)


@THROUGH_PYACL.check("the chip has a name before a device is set", "§4")
def _soc_name(bench: Bench) -> str:
    acl = bench.acl
    return str(acl.get_soc_name())


@THROUGH_PYACL.check("version of the C API", "§4")
def _version(bench: Bench) -> str:
    acl = bench.acl
    major, minor, patch, ret = acl.get_version()
    bench.good(ret, "acl.get_version")
    return f"{major}.{minor}.{patch}"


@THROUGH_PYACL.check("run mode: 1 with the device behind PCIe, 0 on its own board", "§5", "0", "1")
def _run_mode(bench: Bench) -> str:
    acl = bench.acl
    mode, ret = acl.rt.get_run_mode()
    bench.good(ret, "acl.rt.get_run_mode")
    return str(mode)


@THROUGH_PYACL.check("a thread without a device has no context", "§5", "107002")
def _no_context(bench: Bench) -> str:
    acl = bench.acl
    _context, ret = acl.rt.get_context()
    return code_text(ret)


@THROUGH_PYACL.check("a device index that does not exist is refused", "§5", "107001")
def _no_device(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.set_device(9999)
    return code_text(ret)


@THROUGH_PYACL.check("rt.set_device holds the GIL", "§3", "held", seconds=_SLOW)
def _set_device(bench: Bench) -> Seen:
    acl = bench.acl
    with Timed() as timed:
        ret = acl.rt.set_device(bench.index)
    bench.good(ret, "acl.rt.set_device")
    return timed.verdict()


@THROUGH_PYACL.check("set twice and reset once, a device is still open", "§5", "open", seconds=_SLOW)
def _counted(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.set_device(bench.index)
    bench.good(ret, "a second acl.rt.set_device")
    ret = acl.rt.reset_device(bench.index)
    bench.good(ret, "acl.rt.reset_device")
    pointer, ret = acl.rt.malloc(64, 0)
    if ret:
        return f"closed: acl.rt.malloc returned {ret}"
    acl.rt.free(pointer)
    return "open"


@THROUGH_PYACL.check("rt.create_context holds the GIL", "§3", "held")
def _create_context(bench: Bench) -> Seen:
    acl = bench.acl
    with Timed() as timed:
        bench.context, ret = acl.rt.create_context(bench.index)
    bench.good(ret, "acl.rt.create_context")
    return timed.verdict()


@THROUGH_PYACL.check("the teardown order gives 0 at every step", "§17", "0 everywhere", seconds=_SLOW)
def _teardown(bench: Bench) -> str:
    acl = bench.acl
    stream, ret = acl.rt.create_stream()
    bench.good(ret, "acl.rt.create_stream")
    event, ret = acl.rt.create_event()
    bench.good(ret, "acl.rt.create_event")
    report = bench.subscribed(stream)
    steps = []
    ret = acl.rt.record_event(event, stream)
    steps.append(("record_event", ret))
    ret = acl.rt.synchronize_stream(stream)
    steps.append(("synchronize_stream", ret))
    steps.append(("unsubscribe_report", report.unsubscribe()))
    ret = acl.rt.destroy_event(event)
    steps.append(("destroy_event", ret))
    ret = acl.rt.destroy_stream(stream)
    steps.append(("destroy_stream", ret))
    ret = acl.rt.destroy_context(bench.context)
    steps.append(("destroy_context", ret))
    bench.destroyed, bench.context = bench.context, 0
    return ", ".join(f"{name} returned {ret}" for name, ret in steps if ret) or "0 everywhere"


@THROUGH_PYACL.check("a destroyed context is refused", "§5", "107002")
def _destroyed_context(bench: Bench) -> str:
    if not bench.destroyed:
        raise Unavailable("the context was not destroyed")
    acl = bench.acl
    ret = acl.rt.set_context(bench.destroyed)
    return code_text(ret)


@THROUGH_PYACL.check("rt.reset_device holds the GIL", "§3", "held", seconds=_SLOW)
def _reset_device(bench: Bench) -> Seen:
    acl = bench.acl
    with Timed() as timed:
        ret = acl.rt.reset_device(bench.index)
    bench.good(ret, "acl.rt.reset_device")
    return timed.verdict()


@THROUGH_PYACL.check("acl.finalize works, once", "§4", "0, then 100037", seconds=_SLOW)
def _finalize(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.finalize()
    again = acl.finalize()
    return f"{ret}, then {again}"


@THROUGH_PYACL.check("ACL can be initialised again after acl.finalize", "§4", "0", seconds=_SLOW)
def _again(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.init()
    if not ret:
        acl.finalize()
    return code_text(ret)


@THROUGH_C.check("aclInit leaves the GIL free", "§21", "released", seconds=_SLOW)
def _c_init(bench: Bench) -> Seen:
    c = bench.c
    with Timed() as timed:
        ret = c.aclInit(None)
    bench.good(ret, "aclInit")
    return timed.verdict()


@THROUGH_C.check("what C has initialised is initialised for pyACL", "§21", "100002")
def _c_second_init(bench: Bench) -> str:
    acl, _ = bench.acl, bench.c
    ret = acl.init()
    return code_text(ret)


@THROUGH_C.check("aclrtSetDevice leaves the GIL free", "§21", "released", seconds=_SLOW)
def _c_set_device(bench: Bench) -> Seen:
    c = bench.c
    with Timed() as timed:
        ret = c.aclrtSetDevice(bench.index)
    bench.good(ret, "aclrtSetDevice")
    return timed.verdict()


@THROUGH_C.check("a device that C has set is set for pyACL on that thread", "§21", "the same")
def _c_device(bench: Bench) -> str:
    acl, _ = bench.acl, bench.c
    device, ret = acl.rt.get_device()
    bench.good(ret, "acl.rt.get_device")
    return "the same" if device == bench.index else f"device {device}"


@THROUGH_C.check("aclrtCreateContext leaves the GIL free", "§21", "released")
def _c_create_context(bench: Bench) -> Seen:
    c = bench.c
    cell = c_void_p()
    with Timed() as timed:
        ret = c.aclrtCreateContext(byref(cell), bench.index)
    bench.good(ret, "aclrtCreateContext")
    bench.context = cell.value or 0
    return timed.verdict()


@THROUGH_C.check("aclrtDestroyContext and aclrtResetDevice undo what C and pyACL did", "§21", "0, 0", seconds=_SLOW)
def _c_close(bench: Bench) -> Seen:
    c = bench.c
    context, bench.context = bench.context, 0
    destroyed = c.aclrtDestroyContext(context)
    with Timed() as timed:
        ret = c.aclrtResetDevice(bench.index)
    return Seen(f"{destroyed}, {ret}", f"the reset took {timed.seconds * 1e3:.0f} ms")


@THROUGH_C.check("aclFinalize is acl.finalize", "§21", "0, then 100037", seconds=_SLOW)
def _c_finalize(bench: Bench) -> str:
    acl, c = bench.acl, bench.c
    ret = c.aclFinalize()
    again = acl.finalize()
    return f"{ret}, then {again}"
