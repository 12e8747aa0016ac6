"""Columns as text: the compiled functions, or their twins in pure Python.

`IMPLEMENTATION` says which ones run; `_pytext` and `_pyjsontext` state the meaning of the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.formats._pytext import AUTO, BASE64, HEX, NONE, UTF8, java_text
from klog.formats.twins import compiled_or_twin

if TYPE_CHECKING:
    from klog.formats import _pyjsontext as _jsontext_functions
    from klog.formats import _pytext as _text_functions
else:
    _jsontext_functions = compiled_or_twin("klog.formats._jsontext", "klog.formats._pyjsontext")
    _text_functions = compiled_or_twin("klog.formats._text", "klog.formats._pytext")

jsonl_batches = _jsontext_functions.jsonl_batches
jsonl_records = _jsontext_functions.jsonl_records
IMPLEMENTATION = _text_functions.IMPLEMENTATION
kafka_batches = _text_functions.kafka_batches
kafka_deep = _text_functions.kafka_deep
kafka_records = _text_functions.kafka_records
first_unshown_control = _text_functions.first_unshown_control
offset_gaps = _text_functions.offset_gaps

__all__ = [
    "AUTO",
    "BASE64",
    "HEX",
    "IMPLEMENTATION",
    "NONE",
    "UTF8",
    "first_unshown_control",
    "java_text",
    "jsonl_batches",
    "jsonl_records",
    "kafka_batches",
    "kafka_deep",
    "kafka_records",
    "offset_gaps",
]
