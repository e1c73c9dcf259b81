"""What is wrong with a file, and where."""

from __future__ import annotations

__all__ = ["OmError"]

# What the vendor's loader answers for such a file (om-format §11, pyACL reference §15).
PATH_INVALID = 145002
DATA_SIZE_INVALID = 145006
PARAM_INVALID = 145000


class OmError(ValueError):
    """The file is no offline model, or a damaged one: one line that says what is wrong, and at which byte.

    `offset` is None where no byte is to blame. `code` is the one with which the vendor's loader refuses such a file.
    """

    def __init__(self, text: str, offset: int | None = None, code: int = DATA_SIZE_INVALID) -> None:
        super().__init__(text if offset is None else f"at byte {offset}: {text}")
        self.offset = offset
        self.code = code
