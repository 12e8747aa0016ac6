"""Offset maps and rewritten batches for compaction: the compiled ones, or their twins in pure Python.

`IMPLEMENTATION` says which ones run; `_pycompaction` states their meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.formats.twins import compiled_or_twin

if TYPE_CHECKING:
    from klog.formats._pycompaction import IMPLEMENTATION, OffsetMap, rewrite
else:
    _compaction_functions = compiled_or_twin("klog.formats._compaction", "klog.formats._pycompaction")
    IMPLEMENTATION = _compaction_functions.IMPLEMENTATION
    OffsetMap = _compaction_functions.OffsetMap
    rewrite = _compaction_functions.rewrite

__all__ = ["IMPLEMENTATION", "OffsetMap", "rewrite"]
