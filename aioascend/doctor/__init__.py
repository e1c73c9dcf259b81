"""Self-check on hardware: every fact about the driver that could not be verified without a device, seen on one.

The checks call `acl` themselves, in the forms of the reference: what the driver layer would smooth over is what they
are there to see.
"""

from .checks import Row
from .report import as_expected, to_json, to_text
from .run import examine

__all__ = ["Row", "as_expected", "examine", "to_json", "to_text"]
