"""Whether a call holds the GIL, seen from another Python thread: does it go on while the call runs?"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from .checks import Seen, Unavailable

__all__ = ["Timed", "held_or_released"]

_LEAST = 0.030  # below this a call is too quick for the ticks of another thread to tell anything
_STILL = 0.020  # a pause of a thread that wants to run every millisecond, on a machine with other work
_HELD = 0.6
_NEARLY_ALL = 0.9
_MOSTLY = 0.5
_FEW = 4  # times that a thread may run while the GIL is "held": before and after the C call, in the wrapper's own code
_ATTEMPTS = 3
_PLENTY = 1.0  # no machine is so busy that it stops a thread for most of a second
# Who waits for the GIL looks up at this interval, and may have to wait for a core each time: not often.
_SWITCH = 0.05


def starved() -> float:
    """Seconds for which the calling thread could have run and had no core; 0 where the kernel does not say."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Timed:
    """Times what is in its block, and how much of it another Python thread that wanted to run stood still.

    When that thread had no core is not counted: it is the machine that is busy then.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.still = 0.0
        self.longest = 0.0
        self.turns = 0
        self.starved = 0.0
        self._behind = 0.0  # for how long the thread that called had no core itself
        self._ticks: list[tuple[float, float]] = []  # when, and for how long it had been starved until then
        self._stop = threading.Event()
        self._ticking = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._started = 0.0
        self._interval = 0.0

    def _tick(self) -> None:
        stopped = False
        while not stopped:
            stopped = self._stop.is_set()  # one tick more, so that the last pause has an end
            self._ticks.append((time.perf_counter(), starved()))
            self._ticking.set()
            time.sleep(0.001)

    def start(self) -> None:
        """Let the other thread begin, which takes a while: before what must not wait is prepared."""
        self._thread.start()
        self._ticking.wait()

    def stop(self) -> None:
        """End the other thread."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Timed:
        if not self._ticking.is_set():
            self.start()
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(max(_SWITCH, self._interval))
        self._behind = starved()
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = time.perf_counter()
        self._behind = starved() - self._behind
        sys.setswitchinterval(self._interval)
        self.stop()
        started = self._started
        self.seconds = ended - started
        self.turns = sum(started < at < ended for at, _ in self._ticks)
        pauses = []
        self.starved = 0.0
        for (last, before), (at, after) in itertools.pairwise(self._ticks):
            inside = min(at, ended) - max(last, started)
            if inside > 0:
                outside = at - last - inside  # some of the wait for a core may have been there
                without_core = min(inside, max(0.0, after - before - outside))
                self.starved += without_core
                pauses.append(inside - without_core)
        self.longest = max(pauses)
        self.still = sum(pause for pause in pauses if pause > _STILL)

    def verdict(self) -> Seen:
        """ "held" or "released"; raises `Unavailable` where it was over too soon, or the machine too busy, to tell."""
        text = f"{self.seconds * 1e3:.0f} ms"
        if self.seconds < _LEAST:
            raise Unavailable(f"too quick to tell: {self.seconds * 1e3:.1f} ms")
        awake = self.seconds - self.starved
        few = self.turns <= max(_FEW, 50 * self.seconds)
        if few and awake < max(_LEAST, _MOSTLY * self.seconds):
            raise Unavailable(f"this machine is too busy to tell: {text}, and a core for {awake * 1e3:.0f} ms of it")
        # A busy machine may stop the other thread in ways that nobody counts, a virtual one with its host, but neither
        # for most of the time at once nor for nearly all of it.
        most = _HELD * awake
        held = self.longest >= most or self.still >= (most if few else max(most, _NEARLY_ALL * (awake - self._behind)))
        if held and self._behind > _MOSTLY * self.still:  # the caller may have had the GIL all the while, and no core
            raise Unavailable(
                f"this machine is too busy to tell: {text}, {self._behind * 1e3:.0f} ms of it without a core"
            )
        return Seen("held" if held else "released", f"{text}, others stood still {self.still * 1e3:.0f} ms")


def held_or_released(call: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> Seen:
    """Whether `call` holds the GIL; `prepare` comes before it each time, unmeasured.

    Another thread that runs in the middle of a call proves that it is free; that it does not run may still be the fault
    of a busy machine, so that it takes several times to be believed.
    """
    seen: Seen | None = None
    untold: Unavailable | None = None
    for _ in range(_ATTEMPTS):
        timed = Timed()
        timed.start()
        try:
            prepare()
        except BaseException:
            timed.stop()
            raise
        with timed:
            call()
        try:
            seen = timed.verdict()
        except Unavailable as reason:
            untold = reason
            continue
        if seen.text == "released" or timed.seconds > _PLENTY:
            break
    if seen is None:
        assert untold is not None
        raise untold
    return seen
