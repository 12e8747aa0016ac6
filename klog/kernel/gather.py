"""Decoded values gathered into contiguous columns: the compiled functions, or their twins in pure Python.

`IMPLEMENTATION` says which ones run; `_pygather` states the meaning of the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.kernel.twins import members

__all__ = ["IMPLEMENTATION", "gather", "gather_headers", "take"]

if TYPE_CHECKING:
    from klog.kernel._pygather import IMPLEMENTATION, gather, gather_headers, take
else:
    _found = members("klog.kernel._gather", "klog.kernel._pygather", __all__)
    IMPLEMENTATION, gather, gather_headers, take = _found
