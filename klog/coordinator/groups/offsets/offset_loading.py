"""Committed offsets in memory, and their loading: compiled if klog was built so, else in Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("KLOG_PURE_PYTHON"):
    from klog.coordinator.groups.offsets._pyoffset_loading import OffsetLoader, StoredOffset
else:
    try:
        from klog.coordinator.groups.offsets._offset_loading import OffsetLoader, StoredOffset
    except ImportError:
        from klog.coordinator.groups.offsets._pyoffset_loading import OffsetLoader, StoredOffset

__all__ = ["OffsetLoader", "StoredOffset"]
