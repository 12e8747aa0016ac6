"""Columns as Kafka's text: the compiled functions, or their twins in pure Python.

`IMPLEMENTATION` says which ones run; `_pytext` states the meaning of the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.kernel._pytext import AUTO, BASE64, HEX, NONE, UTF8, java_text
from klog.kernel.twins import members

if TYPE_CHECKING:
    from klog.kernel._pytext import (
        IMPLEMENTATION,
        first_unshown_control,
        kafka_batches,
        kafka_deep,
        kafka_records,
        offset_gaps,
    )
else:
    _kafka_names = ["IMPLEMENTATION", "kafka_batches", "kafka_deep", "kafka_records"]
    IMPLEMENTATION, kafka_batches, kafka_deep, kafka_records = members(
        "klog.kernel._text", "klog.kernel._pytext", _kafka_names
    )
    first_unshown_control, offset_gaps = members(
        "klog.kernel._text", "klog.kernel._pytext", ["first_unshown_control", "offset_gaps"]
    )

__all__ = [
    "AUTO",
    "BASE64",
    "HEX",
    "IMPLEMENTATION",
    "NONE",
    "UTF8",
    "first_unshown_control",
    "java_text",
    "kafka_batches",
    "kafka_deep",
    "kafka_records",
    "offset_gaps",
]
