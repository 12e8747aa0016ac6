"""Chooses how Arrow allocates memory, so that few pages are taken from the system and given back again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_THRESHOLD_BYTES: Final = 32 << 20
"""The greatest that glibc accepts."""
_TRIM_THRESHOLD_BYTES: Final = 128 << 20
_SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables of the environment by which a user chooses the thresholds."""


@contextmanager
def system_allocator() -> Iterator[None]:
    """Let Arrow use the system's allocator in the block.

    It is as fast as Arrow's own for large columns, and it returns memory to the system: Arrow's own keeps it.
    With glibc the process keeps up to 128 MiB of free memory from now on (`keep_free_pages`).
    """
    import pyarrow as pa

    keep_free_pages()
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def keep_free_pages() -> bool:
    """Make glibc reuse freed memory instead of returning each freed buffer to the system.

    An export frees and allocates buffers of some MiB all the time. By default glibc maps each of them anew,
    and each new page costs a page fault. Blocks above 32 MiB are still returned at once, and free memory
    above 128 MiB. Returns whether the thresholds were set: not with another C library, nor if the environment
    sets them.
    """
    if any(name in os.environ for name in _SETTINGS) or not _is_glibc():
        return False
    import ctypes

    set_option = ctypes.CDLL(None).mallopt
    return bool(
        set_option(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        and set_option(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    )


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
