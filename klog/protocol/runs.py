"""The usual Produce and OffsetCommit frames, read in one pass if klog was built with a C compiler.

Without the compiled modules, and with `KLOG_PURE_PYTHON=1`, no frame is read so: the general readers
take all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.kernel.twins import members


class NoRun:
    """A run that no frame belongs to."""

    def read(self, _buffer: bytearray, _start: int, _end: int) -> int:
        """Read nothing."""
        return 0


if TYPE_CHECKING:
    from klog.protocol._commit_run import CommitRun
    from klog.protocol._produce_run import ProduceRun
else:
    ProduceRun = CommitRun = NoRun
    (CommitRun,) = members("klog.protocol._commit_run", __name__, ["CommitRun"])
    (ProduceRun,) = members("klog.protocol._produce_run", __name__, ["ProduceRun"])

__all__ = ["CommitRun", "NoRun", "ProduceRun"]
