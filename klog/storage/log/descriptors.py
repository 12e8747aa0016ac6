"""File descriptors: how many the process may have open, and how many logs need.

A log keeps three files of its active segment open: records, offset index and time index. If descriptors run
out, or the address space in which the indexes are mapped, no disk has failed: the log directory stays online.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from typing import Final

from klog.formats.errors import StorageError

LOG_DESCRIPTORS: Final = 3
# How many are left for what comes and goes: segments that roll, checkpoints. If there are few in all, it is
# an eighth of them.
_SPARE: Final = 64
_OPEN: Final = "/proc/self/fd"

STAYS_ONLINE: Final = (
    "descriptors or memory are missing, so this is refused until there is room, and the log directory stays"
    " online; see ulimit -n and ulimit -v"
)
"""What a log line says of an error for which `are_exhausted` holds."""


class DescriptorsError(StorageError):
    """The process may not open as many files as its logs need, or not map them into its memory."""


def are_exhausted(error: BaseException) -> bool:
    """Whether an error, or what it came from, says that no descriptor or no memory is left."""
    while not isinstance(error, OSError):
        if error.__cause__ is None:
            return False
        error = error.__cause__
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def most_descriptors() -> int:
    """How many descriptors the process may have, as `ulimit -n` says."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def spare_descriptors(most: int) -> int:
    """How many of these stay free for the work of the logs that are open already."""
    return min(_SPARE, most // 8)


def room_for_logs() -> int:
    """How many more logs the process can open."""
    most = most_descriptors()
    try:
        used = len(os.listdir(_OPEN))
    except OSError:
        # Not Linux, or none left to look with.
        used = 0 if not os.path.isdir(_OPEN) else most
    return max(0, most - spare_descriptors(most) - used) // LOG_DESCRIPTORS


def only_spare_left() -> bool:
    """Whether the descriptors that are left are needed by the logs that are open already."""
    most = most_descriptors()
    try:
        lowest_free = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        return are_exhausted(error)
    os.close(lowest_free)
    return lowest_free + LOG_DESCRIPTORS > most - spare_descriptors(most)


def require_descriptors(logs: int) -> None:
    """Raises DescriptorsError if so many logs cannot be open at once."""
    most = most_descriptors()
    if logs * LOG_DESCRIPTORS + spare_descriptors(most) > most:
        raise exhausted(logs)


def exhausted(logs: int, error: BaseException | None = None) -> DescriptorsError:
    """The error of a process whose limit is too low for so many logs; `error` says which limit (None: that of
    descriptors).
    """
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    if error is not None and error.errno == errno.ENOMEM:
        return DescriptorsError(
            f"no memory is left in which the indexes of {logs} logs can be mapped",
            cure="start with a higher limit: ulimit -v (with systemd LimitAS), or a smaller"
            " log.index.size.max.bytes",
        )
    needed = logs * LOG_DESCRIPTORS + _SPARE
    return DescriptorsError(
        f"{logs} logs need {needed} file descriptors, clients need more, {most_descriptors()} are allowed",
        cure=f"start with a higher limit: ulimit -n {_next_power(2 * needed)} (with systemd LimitNOFILE)",
    )


def _next_power(value: int) -> int:
    return 1 << (value - 1).bit_length()
