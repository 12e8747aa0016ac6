"""Keys to offsets, and batches rewritten: compiled where klog was built with a C compiler, else the twin.

`KLOG_PURE_PYTHON=1` chooses the twin, as it does for the record kernel.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("KLOG_PURE_PYTHON"):
    from klog.formats._pycompaction import IMPLEMENTATION, OffsetMap, rewrite
else:
    try:
        from klog.formats._compaction import IMPLEMENTATION, OffsetMap, rewrite
    except ImportError:
        from klog.formats._pycompaction import IMPLEMENTATION, OffsetMap, rewrite

__all__ = ["IMPLEMENTATION", "OffsetMap", "rewrite"]
