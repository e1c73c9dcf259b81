"""A progress bar on a terminal, and nothing where there is none."""

from __future__ import annotations

import shutil
from typing import TextIO

__all__ = ["Progress"]

_BAR = 20


class Progress:
    """One line that is written over; only on a terminal, so that logs and pipes hold results alone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()
        self._width = 0

    def show(self, what: str, share: float) -> None:
        """Show that `share` (0 to 1) of `what` is over."""
        if not self._shown:
            return
        full = round(_BAR * min(1.0, max(0.0, share)))
        line = f"[{'#' * full}{'.' * (_BAR - full)}] {what}"[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
