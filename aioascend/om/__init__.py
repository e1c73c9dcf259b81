"""Offline models (`.om`), read without a device: header, sections, inputs and outputs, gears, what they need.

The package imports nothing of ours, so that the model layer and the emulator can both read by it. Sections (§) are
those of the format's description that the project works by.
"""

from .advice import Advice, advice
from .describe import as_json, compare, summary
from .errors import OmError
from .file import OmFile, OmModel, Tasks, read
from .gears import GEAR_INPUT, Gears
from .header import Header
from .pieces import first_bytes, open_file
from .sections import Section
from .soc import Verdict, compare_chips
from .tensors import OmTensor

__all__ = [
    "GEAR_INPUT",
    "Advice",
    "Gears",
    "Header",
    "OmError",
    "OmFile",
    "OmModel",
    "OmTensor",
    "Section",
    "Tasks",
    "Verdict",
    "advice",
    "as_json",
    "compare",
    "compare_chips",
    "first_bytes",
    "open_file",
    "read",
    "summary",
]
