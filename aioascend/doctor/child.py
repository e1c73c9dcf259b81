"""The process in which a group of checks runs, so that a call that never returns ends nothing but this process.

Started as ``python -m aioascend.doctor.child``, with what to do as JSON. It tells each step as a line of JSON on a pipe
of its own: the vendor's libraries may write to the standard streams.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .. import driver
from .bench import Bench
from .checks import Failed
from .groups import GROUPS

__all__ = ["main"]


def _backend(kind: driver.Kind, alter: str | None) -> driver.Backend:
    """The backend of a kind; on the emulator one whose calls take as long, with the GIL, as on hardware."""
    if kind == "npu":
        found = driver.backend(kind)
    else:
        from ..emulator import Config, Emulator, Profile

        # Long enough to be seen by a thread that ticks every millisecond.
        calls = {"acl.init": 0.1, "acl.rt.*_device": 0.1, "acl.rt.create_context": 0.1, "acl.mdl.load_*": 0.2}
        profile = Profile(on_device=2e7, pageable=1e7, calls={**calls, "acl.rt.malloc": 0.04}, hold_gil=True)
        # Not strict: what is forbidden is done on purpose, to see its code.
        emulator = Emulator(Config.from_env(profile=profile, strict=False))
        found = driver.Backend(kind, emulator.acl, emulator)
        driver.install(found)
    if alter:
        module, _, function = alter.partition(":")
        change: Callable[[Any], None] = getattr(importlib.import_module(module), function)
        change(found.acl)
    return found


def main(text: str) -> None:
    """Run the group that `text` names, from check number `first` on."""
    task = json.loads(text)
    pipe = os.fdopen(task["pipe"], "w", buffering=1, encoding="utf-8")

    def tell(**message: Any) -> None:
        pipe.write(json.dumps(message) + "\n")

    name = driver.resolve(task["device"])[0]
    group = GROUPS[task["group"]]
    bench = Bench(_backend(name.kind, task["alter"]), name.index, task["model"])
    if group.opens:
        try:
            bench.open()
        except Failed as failed:
            tell(failed=str(failed))
            return
    tell(ready=True)
    for index, check in enumerate(group.checks[task["first"] :], task["first"]):
        tell(begin=index)
        row = check.run(bench)
        tell(done=index, seen=row.seen, verdict=row.verdict)
    tell(closing=True)
    bench.close()


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # what a check has left behind must not keep the process
