"""Chooses the memory allocator of Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def system_allocator() -> Iterator[None]:
    """Let Arrow use the system's allocator in the block.

    It is as fast as Arrow's own for large columns, and it returns memory to the system: Arrow's own keeps it.
    """
    import pyarrow as pa

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
