"""Keeps the garbage collector from running while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# With fewer new objects a collection takes a few ms.
_MANY_OBJECTS: Final = 20_000


@contextmanager
def without_collections() -> Iterator[None]:
    """Let no collection run meanwhile: it would stop all threads for tens of ms, again and again.

    If many objects were made, later collections do not look at what exists by then. Cycles that are garbage
    at that moment stay in memory; there are few.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > _MANY_OBJECTS:
            gc.freeze()
        if was_enabled:
            gc.enable()
