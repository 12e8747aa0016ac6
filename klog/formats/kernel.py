"""The record kernel: the compiled one where klog was built with a C compiler, else its pure-Python twin.

Set `KLOG_PURE_PYTHON=1` to choose the twin; `IMPLEMENTATION` says which one runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("KLOG_PURE_PYTHON"):
    from klog.formats._pykernel import (
        IMPLEMENTATION,
        check_records,
        decode,
        decode_payload,
        headers,
        index,
        payload_span,
        scan,
        seek,
        verify,
    )
else:
    try:
        from klog.formats._kernel import (
            IMPLEMENTATION,
            check_records,
            decode,
            decode_payload,
            headers,
            index,
            payload_span,
            scan,
            seek,
            verify,
        )
    except ImportError:
        from klog.formats._pykernel import (
            IMPLEMENTATION,
            check_records,
            decode,
            decode_payload,
            headers,
            index,
            payload_span,
            scan,
            seek,
            verify,
        )

__all__ = [
    "IMPLEMENTATION",
    "check_records",
    "decode",
    "decode_payload",
    "headers",
    "index",
    "payload_span",
    "scan",
    "seek",
    "verify",
]
