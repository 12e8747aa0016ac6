"""The text kernels: the compiled ones where klog was built with a C compiler, else their pure-Python twins.

Set `KLOG_PURE_PYTHON=1` to choose the twins; `IMPLEMENTATION` says which run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klog.formats._pytext import AUTO, BASE64, HEX, NONE, UTF8, java_text

if TYPE_CHECKING or os.environ.get("KLOG_PURE_PYTHON"):
    from klog.formats._pyjsontext import jsonl_batches, jsonl_records
    from klog.formats._pytext import (
        IMPLEMENTATION,
        kafka_batches,
        kafka_deep,
        kafka_records,
        odd_control,
        offset_gaps,
    )
else:
    try:
        from klog.formats._jsontext import jsonl_batches, jsonl_records
        from klog.formats._text import (
            IMPLEMENTATION,
            kafka_batches,
            kafka_deep,
            kafka_records,
            odd_control,
            offset_gaps,
        )
    except ImportError:
        from klog.formats._pyjsontext import jsonl_batches, jsonl_records
        from klog.formats._pytext import (
            IMPLEMENTATION,
            kafka_batches,
            kafka_deep,
            kafka_records,
            odd_control,
            offset_gaps,
        )

__all__ = [
    "AUTO",
    "BASE64",
    "HEX",
    "IMPLEMENTATION",
    "NONE",
    "UTF8",
    "java_text",
    "jsonl_batches",
    "jsonl_records",
    "kafka_batches",
    "kafka_deep",
    "kafka_records",
    "odd_control",
    "offset_gaps",
]
