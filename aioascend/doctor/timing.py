"""Whether a call holds the GIL, seen from another Python thread: does it go on while the call runs?"""

from __future__ import annotations

import itertools
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
_FEW = 4  # times that a thread may run while the GIL is "held": before and after the C call, in the wrapper's own code
_ATTEMPTS = 3
_PLENTY = 1.0  # no machine is so busy that it stops a thread for most of a second


class Timed:
    """Times what is in its block, and how much of it another Python thread that wanted to run stood still."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.still = 0.0
        self.longest = 0.0
        self.turns = 0
        self._ticks: list[float] = []
        self._stop = threading.Event()
        self._ticking = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._started = 0.0

    def _tick(self) -> None:
        while not self._stop.is_set():
            self._ticks.append(time.perf_counter())
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
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = time.perf_counter()
        self.stop()
        self.seconds = ended - self._started
        inside = [self._started, *(tick for tick in self._ticks if self._started < tick < ended), ended]
        self.turns = len(inside) - 2
        pauses = [later - earlier for earlier, later in itertools.pairwise(inside)]
        self.longest = max(pauses)
        self.still = sum(pause for pause in pauses if pause > _STILL)

    def verdict(self) -> Seen:
        """ "held" or "released"; raises `Unavailable` where it was over too soon to tell."""
        text = f"{self.seconds * 1e3:.0f} ms"
        if self.seconds < _LEAST:
            raise Unavailable(f"too quick to tell: {self.seconds * 1e3:.1f} ms")
        # A busy machine stops the other thread too, but neither for most of the time at once nor for nearly all of it.
        most = _HELD * self.seconds
        few = self.turns <= max(_FEW, 50 * self.seconds)
        held = self.longest >= most or self.still >= (most if few else _NEARLY_ALL * self.seconds)
        return Seen("held" if held else "released", f"{text}, others stood still {self.still * 1e3:.0f} ms")


def held_or_released(call: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> Seen:
    """Whether `call` holds the GIL; `prepare` comes before it each time, unmeasured.

    Another thread that runs in the middle of a call proves that it is free; that it does not run may be the fault of a
    busy machine, so that it takes several times to be believed.
    """
    seen: Seen | None = None
    quick: Unavailable | None = None
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
        except Unavailable as too_quick:
            quick = too_quick
            continue
        if seen.text == "released" or timed.seconds > _PLENTY:
            break
    if seen is None:
        assert quick is not None
        raise quick
    return seen
