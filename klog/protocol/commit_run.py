"""The usual OffsetCommit frames, read in one pass: compiled if klog was built so, else in Python.

Set `KLOG_PURE_PYTHON=1` to choose Python.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("KLOG_PURE_PYTHON"):
    from klog.protocol._pycommit_run import CommitRun
else:
    try:
        from klog.protocol._commit_run import CommitRun
    except ImportError:
        from klog.protocol._pycommit_run import CommitRun

__all__ = ["CommitRun"]
