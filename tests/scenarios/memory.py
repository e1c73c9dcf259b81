"""How much memory and how many handles this process holds."""

from __future__ import annotations

import os
from pathlib import Path


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
