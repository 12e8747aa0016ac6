"""Columns as JSON Lines: the compiled functions, or their twins in pure Python (`_pyjsontext`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.kernel.twins import members

if TYPE_CHECKING:
    from klog.kernel._pyjsontext import jsonl_batches, jsonl_records
else:
    jsonl_batches, jsonl_records = members(
        "klog.kernel._jsontext", "klog.kernel._pyjsontext", ["jsonl_batches", "jsonl_records"]
    )

__all__ = ["jsonl_batches", "jsonl_records"]
