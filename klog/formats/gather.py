"""Decoded values gathered into contiguous columns: the compiled functions, or their twins in pure Python.

`IMPLEMENTATION` says which ones run; `_pygather` states the meaning of the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.formats.twins import compiled_or_twin

if TYPE_CHECKING:
    from klog.formats import _pygather as _gather_functions
else:
    _gather_functions = compiled_or_twin("klog.formats._gather", "klog.formats._pygather")

IMPLEMENTATION = _gather_functions.IMPLEMENTATION
gather = _gather_functions.gather
gather_headers = _gather_functions.gather_headers
take = _gather_functions.take
