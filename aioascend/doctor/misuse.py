"""What is refused, and with which code: mistakes that harm nobody. Old CANN has other numbers for some of them."""

from __future__ import annotations

import threading

from .bench import Bench, code_text
from .checks import Group

__all__ = ["MISUSE"]

MISUSE = Group("codes of mistakes")

_NO_BLOCK = 0


@MISUSE.check("a context of 0", "§5", "100000")
def _context_0(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.set_context(0)
    return code_text(ret)


@MISUSE.check("a call on a thread without a context", "§5", "107002")
def _no_context(bench: Bench) -> str:
    acl = bench.acl
    seen: list[int] = []

    def create() -> None:
        _stream, ret = acl.rt.create_stream()
        seen.append(ret)

    thread = threading.Thread(target=create)
    thread.start()
    thread.join()
    return code_text(seen[0])


@MISUSE.check("a stream of another context", "§5", "107003")
def _foreign_stream(bench: Bench) -> str:
    acl = bench.acl
    stream, event = bench.stream(), bench.event("plain")
    context, ret = acl.rt.create_context(bench.index)
    bench.good(ret, "acl.rt.create_context")
    ret = acl.rt.record_event(event, stream)
    acl.rt.set_context(bench.context)
    acl.rt.destroy_context(context)
    return code_text(ret)


@MISUSE.check("destroying the default context", "§5", "107002")
def _default_context(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.set_device(bench.index)
    bench.good(ret, "acl.rt.set_device")
    context, ret = acl.rt.get_context()
    bench.good(ret, "acl.rt.get_context")
    ret = acl.rt.destroy_context(context)
    acl.rt.set_context(bench.context)
    acl.rt.reset_device(bench.index)
    return code_text(ret)


@MISUSE.check("destroying stream 0", "§6", "100000")
def _destroy_default_stream(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.destroy_stream(0)
    return code_text(ret)


@MISUSE.check("a wait for a stream with a timeout below -1", "§6", "107000")
def _stream_timeout(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.synchronize_stream_with_timeout(bench.stream(), -2)
    return code_text(ret)


@MISUSE.check("None as a stream", "§1, §2", "TypeError")
def _none(bench: Bench) -> str:
    acl = bench.acl
    try:
        ret = acl.rt.synchronize_stream(None)
    except TypeError:
        return "TypeError"
    return f"taken: {ret}"


@MISUSE.check("a stream that is subscribed already", "§9", "107011", "100033")
def _subscribed_twice(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    ident = threading.get_ident()
    ret = acl.rt.subscribe_report(ident, stream)
    bench.good(ret, "acl.rt.subscribe_report")
    ret = acl.rt.subscribe_report(ident, stream)
    acl.rt.unsubscribe_report(ident, stream)
    return code_text(ret)


@MISUSE.check("unsubscribing a stream that is not subscribed", "§9", "107011", "107012", "100034", "100035")
def _not_subscribed(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.unsubscribe_report(threading.get_ident(), bench.stream())
    return code_text(ret)


@MISUSE.check("process_report on a thread without a subscription returns at once", "§9", "107012", "100035")
def _no_subscription(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.process_report(2000)
    return code_text(ret)


@MISUSE.check("process_report with a timeout of 0", "§9", "100000")
def _report_timeout(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    ident = threading.get_ident()
    ret = acl.rt.subscribe_report(ident, stream)
    bench.good(ret, "acl.rt.subscribe_report")
    ret = acl.rt.process_report(0)
    acl.rt.unsubscribe_report(ident, stream)
    return code_text(ret)


@MISUSE.check("a callback on a stream that is not subscribed", "§9", "107015", "100034")
def _unsubscribed_callback(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.launch_callback(lambda _: None, None, _NO_BLOCK, bench.stream())
    return code_text(ret)


@MISUSE.check("a block type other than 0 and 1", "§9", "100000")
def _block_type(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    bench.subscribed(stream)
    ret = acl.rt.launch_callback(lambda _: None, None, 7, stream)
    return code_text(ret)


@MISUSE.check("unloading a model that is not loaded", "§11", "145003", "100011")
def _unload(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.mdl.unload(0x7FFFFFF0)
    return code_text(ret)


@MISUSE.check("loading a file that does not exist fails", "§11, §15", "refused")
def _load_nothing(bench: Bench) -> str:
    acl = bench.acl
    model, ret = acl.mdl.load_from_file("/nowhere/there-is-no-such-model.om")
    if not ret:
        acl.mdl.unload(model)
    return "refused" if ret else "loaded"


@MISUSE.check("the context still works after all this", "§5", "0")
def _still_works(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    bench.busy(stream, 0.01)
    ret = acl.rt.synchronize_stream(stream)
    return code_text(ret)
