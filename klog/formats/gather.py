"""Gathering of decoded values: compiled where klog was built with a C compiler, else its pure-Python twin.

Set `KLOG_PURE_PYTHON=1` to choose the twin; `IMPLEMENTATION` says which one runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("KLOG_PURE_PYTHON"):
    from klog.formats._pygather import IMPLEMENTATION, gather, gather_headers, take
else:
    try:
        from klog.formats._gather import IMPLEMENTATION, gather, gather_headers, take
    except ImportError:
        from klog.formats._pygather import IMPLEMENTATION, gather, gather_headers, take

__all__ = ["IMPLEMENTATION", "gather", "gather_headers", "take"]
