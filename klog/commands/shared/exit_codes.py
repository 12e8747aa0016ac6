"""The exit codes of commands (docs/commands.md)."""

from __future__ import annotations

from typing import Final

from klog.formats.errors import ChecksumCodeError, KlogError, MissingInputError, UsageError

FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130


def exit_code(error: KlogError | ChecksumCodeError) -> int:
    """The exit code for an error: 2 if the command line is wrong, else 1."""
    is_usage = isinstance(error, UsageError) and not isinstance(error, MissingInputError)
    return WRONG_USAGE if is_usage else FAILED
