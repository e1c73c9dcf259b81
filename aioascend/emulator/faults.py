"""Faults on demand: calls that return a code, tasks that fail or never end, callbacks that come late, lost devices.

Everything is counted from when the fault was asked for: `nth` is the first occasion that is hit, `times` how many in a
row are (None: all from then on).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from . import codes

KINDS = ("execute", "copy", "memset", "any")
_ITEM = re.compile(r"(?P<what>[A-Za-z_.0-9]+?)(?:#(?P<nth>\d+|\*)(?P<on>\+?))?(?:=(?P<value>[0-9.]+))?")


@dataclass
class Rule:
    """One fault. `seen` counts the occasions so far, `hits` those that it struck."""

    what: str
    value: float
    nth: int = 1
    times: int | None = 1
    device: int | None = None
    seen: int = 0
    hits: int = 0
    lock: Any = field(default_factory=threading.RLock, repr=False)

    def __post_init__(self) -> None:
        """Refuse what can never strike, for a test with it would pass for the wrong reason."""
        if self.nth < 1:
            raise ValueError(f"{self.what}: occasions are counted from 1, {self.nth} was given")
        if self.times is not None and self.times < 1:
            raise ValueError(f"{self.what}: it must strike once at least, {self.times} times was given")

    def strikes(self) -> bool:
        """Count an occasion; whether it is one to hit."""
        with self.lock:
            self.seen += 1
            due = self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)
            self.hits += due
            return due


class Faults:
    """The faults of one emulator. Methods may be called at any time, from any thread."""

    def __init__(self, lose: Callable[[int, int, bool], None], give_back: Callable[[int], None], devices: int) -> None:
        self._lose = lose
        self._give_back = give_back
        self._devices = devices
        self._calls: dict[str, list[Rule]] = {}
        self._tasks: list[Rule] = []
        self._hangs: list[Rule] = []
        self._late: list[Rule] = []
        self._losses: list[Rule] = []
        # all that tasks may be hit by
        self.of_tasks: list[Rule] = []

    # -- asking for faults --------------------------------------------------------------------------------------

    def fail(self, call: str, code: int, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Let the nth call of a function (``acl.rt.malloc``) return `code` without doing anything."""
        name = call if call.startswith("acl.") else f"acl.{call}"
        rules = self._calls.get(name)
        if rules is None:
            raise ValueError(f"no such function: {name}")
        rule = Rule(name, _failing(name, code), nth, times)
        rules.append(rule)
        return rule

    def fail_task(
        self,
        kind: str = "execute",
        code: int = codes.AICORE_EXCEPTION,
        *,
        nth: int = 1,
        times: int | None = 1,
        device: int | None = None,
    ) -> Rule:
        """Let a task fail on the device: its stream reports `code` at the next status call. It does no work."""
        return self._add(
            self._tasks, Rule(_kind(kind), _failing(f"task.{kind}", code), nth, times, self._device(device))
        )

    def hang(self, kind: str = "execute", *, nth: int = 1, times: int | None = 1, device: int | None = None) -> Rule:
        """Let a task never end. Only abort, forced destruction, reset and shutdown get rid of it."""
        return self._add(self._hangs, Rule(_kind(kind), 0, nth, times, self._device(device)))

    def delay_callback(self, seconds: float, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Let a callback come late; its stream stands still meanwhile."""
        if not 0 < seconds < inf:
            raise ValueError(f"a callback comes some seconds late, {seconds} was given")
        return self._add(self._late, Rule("callback", seconds, nth, times))

    def lose_device(
        self, device: int, code: int = codes.LOST_HEARTBEAT, *, recoverable: bool = True, at_task: int | None = None
    ) -> None:
        """Lose a device now, or when it comes to its `at_task`-th task from now.

        Everything that touches it returns `code` from then on. A recoverable one is well again when all its contexts
        are destroyed and it was reset.
        """
        self._device(device)
        _failing("a lost device", code)
        if at_task is None:
            self._lose(device, code, recoverable)
        else:
            self._add(self._losses, Rule("recoverable" if recoverable else "for good", code, at_task, 1, device))

    def return_device(self, device: int) -> None:
        """Let a device that was lost for good be reset again; one that nobody uses is well at once."""
        self._device(device)
        self._give_back(device)

    def clear(self) -> None:
        """Forget every fault asked for. What happened stays happened."""
        for rules in self._calls.values():
            rules.clear()
        for rules in (self._tasks, self._hangs, self._late, self._losses, self.of_tasks):
            rules.clear()

    def _device(self, device: int | None) -> int | None:
        if device is not None and not 0 <= device < self._devices:
            raise ValueError(f"there is no device {device}, only {self._devices} from 0")
        return device

    def _add(self, rules: list[Rule], rule: Rule) -> Rule:
        rules.append(rule)
        if rules is not self._late:
            self.of_tasks.append(rule)
        return rule

    # -- from text ----------------------------------------------------------------------------------------------

    def parse(self, text: str) -> None:
        """Ask for the faults in `text`, separated by commas or semicolons.

        ``acl.rt.malloc#3=207001`` (the third call; ``#3+`` from the third on; ``#*`` every one),
        ``task.execute#2=507015``, ``hang.copy``, ``late.callback#1=0.5`` (seconds), ``lost.0#20=507010`` (device 0 at
        its twentieth task).
        """
        for item in re.split(r"[,;]", text):
            if item.strip():
                self._parse_one(item.strip())

    def _parse_one(self, item: str) -> None:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ValueError(f"not a fault: {item!r}; wanted for example acl.rt.malloc#3=207001 or task.execute=507015")
        what, value = match["what"], match["value"]
        every = match["nth"] == "*"
        nth = 1 if every or match["nth"] is None else int(match["nth"])
        times = None if every or match["on"] else 1
        head, _, rest = what.partition(".")
        if head == "task":
            self.fail_task(rest, _code(item, value or codes.AICORE_EXCEPTION), nth=nth, times=times)
        elif head == "hang":
            if value is not None:
                raise ValueError(f"{item!r}: a task that never ends gives no code: hang.{rest}")
            self.hang(rest, nth=nth, times=times)
        elif what == "late.callback":
            if value is None:
                raise ValueError(f"{item!r} needs a number of seconds: late.callback=0.5")
            self.delay_callback(_seconds(item, value), nth=nth, times=times)
        elif head == "lost" and rest.isdigit():
            self.lose_device(int(rest), _code(item, value or codes.LOST_HEARTBEAT), at_task=nth)
        elif value is None:
            raise ValueError(f"{item!r} needs a code: {item}=207001")
        else:
            self.fail(what, _code(item, value), nth=nth, times=times)

    # -- what the emulator asks ---------------------------------------------------------------------------------

    def rules_of(self, call: str) -> list[Rule]:
        """The list that holds the rules for a function: empty nearly always, so cheap to look at."""
        return self._calls.setdefault(call, [])

    def on_task(self, kind: str, device: int) -> int | None:
        """The code that a task fails with; -1: it never ends; None: nothing happens to it."""
        for rule in list(self._losses):
            if rule.device == device and rule.strikes():
                # not on the engine's own thread, which may hold its lock
                arguments = (device, int(rule.value), rule.what == "recoverable")
                threading.Thread(target=self._lose, args=arguments, name="aioascend-fault", daemon=True).start()
                return -1
        for rules, hang in ((self._hangs, True), (self._tasks, False)):
            for rule in rules:
                if rule.what in ("any", kind) and rule.device in (None, device) and rule.strikes():
                    return -1 if hang else int(rule.value)
        return None

    def on_callback(self) -> float:
        """Seconds that a callback comes late."""
        for rule in self._late:
            if rule.strikes():
                return rule.value
        return 0.0


def strike(rules: list[Rule]) -> int:
    """The code that this call returns by one of `rules`, 0 for none."""
    for rule in list(rules):
        if rule.strikes():
            return int(rule.value)
    return 0


def _code(item: str, value: str | int) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{item!r}: a code is a whole number, {value!r} was given") from None


def _seconds(item: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{item!r}: {value!r} is no number of seconds") from None


def _failing(what: str, code: int) -> int:
    if code == codes.SUCCESS:
        raise ValueError(f"{what}: code {code} is success, so nothing would fail")
    return code


def _kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"no such kind of task: {kind!r}; there are {', '.join(KINDS)}")
    return kind
