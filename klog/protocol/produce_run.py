"""The usual Produce frames, read in one pass: compiled if klog was built with a C compiler, else in Python.

Set `KLOG_PURE_PYTHON=1` to choose Python.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("KLOG_PURE_PYTHON"):
    from klog.protocol._pyproduce_run import ProduceRun
else:
    try:
        from klog.protocol._produce_run import ProduceRun
    except ImportError:
        from klog.protocol._pyproduce_run import ProduceRun

__all__ = ["ProduceRun"]
