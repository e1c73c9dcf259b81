"""The groups of checks, in the order in which they run: what matters most first, should time run out."""

from __future__ import annotations

from .checks import Group
from .completion import COMPLETION
from .events import EVENTS
from .gil import GIL
from .handles import HANDLES
from .memory import MEMORY
from .misuse import MISUSE
from .models import MODELS
from .opening import THROUGH_C, THROUGH_PYACL
from .streams import STREAMS

__all__ = ["GROUPS"]

GROUPS: dict[str, Group] = {
    group.name: group
    for group in (THROUGH_PYACL, THROUGH_C, HANDLES, GIL, COMPLETION, EVENTS, MEMORY, MODELS, STREAMS, MISUSE)
}
