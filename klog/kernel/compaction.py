"""Offset maps and rewritten batches for compaction: the compiled ones, or their twins in pure Python.

`IMPLEMENTATION` says which ones run; `_pycompaction` states their meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.kernel.twins import members

__all__ = ["IMPLEMENTATION", "OffsetMap", "rewrite"]

if TYPE_CHECKING:
    from klog.kernel._pycompaction import IMPLEMENTATION, OffsetMap, rewrite
else:
    _found = members("klog.kernel._compaction", "klog.kernel._pycompaction", __all__)
    IMPLEMENTATION, OffsetMap, rewrite = _found
