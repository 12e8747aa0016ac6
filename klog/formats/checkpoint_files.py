"""The checkpoint files of a log directory and of a partition.

Rules: Kafka's `CheckpointFile`, `OffsetCheckpointFile` and `LeaderEpochCheckpointFile` (KIP-101). An empty
file, and one that ends after its version, have no entries. `checkpoints` reads and writes them fast, by what
`derive` makes of these definitions.
"""

from __future__ import annotations

from typing import Final

import construct as c

from klog.formats import binary
from klog.formats.constants import CHECKPOINT_VERSION
from klog.formats.text_blocks import CountedLines, Int32, Int64, Text, TextLine, UnlessEnd
from klog.formats.values import Bytes


def _checkpoint(*words: c.Renamed) -> c.Struct:
    return c.Struct(
        "version"
        / UnlessEnd(c.Const(CHECKPOINT_VERSION, TextLine(Int32)))
        * "0; an empty file has no entries",
        "count" / UnlessEnd(TextLine(Int32)) * "entries that follow",
        "entries" / CountedLines("count", TextLine(*words)),
    )


OffsetCheckpointFile: Final = _checkpoint(
    "topic" / Text * "of a partition of this log directory; in no order",
    "partition" / Int32 * "number",
    "offset"
    / Int64
    * "recovery point, log start, high watermark or first dirty offset, as the file's name says",
)
LeaderEpochFile: Final = _checkpoint(
    "epoch" / Int32 * "leader epoch; ascending",
    "startOffset" / Int64 * "first offset that this leader wrote; ascending",
)


def parse(definition: c.Struct, data: Bytes) -> c.Container:
    """A checkpoint file. Raises `FormatError`."""
    checkpoint: c.Container = binary.parse_all(definition, data, "checkpoint")
    return checkpoint


def build(definition: c.Struct, checkpoint: c.Container) -> bytes:
    """The bytes of a checkpoint file."""
    return binary.build(definition, checkpoint, "checkpoint")
