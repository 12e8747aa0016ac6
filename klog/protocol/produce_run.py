"""The usual Produce frames, read in one pass if klog was built with a C compiler.

Without the compiled module, and with `KLOG_PURE_PYTHON=1`, no frame is read so: the general reader takes all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.kernel.twins import members

if TYPE_CHECKING:
    from klog.protocol._produce_run import ProduceRun
else:
    (ProduceRun,) = members("klog.protocol._produce_run", "klog.protocol.no_run", ["ProduceRun"])

__all__ = ["ProduceRun"]
