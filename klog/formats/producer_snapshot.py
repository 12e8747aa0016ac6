"""The producer snapshot (`.snapshot`): the state of each producer before the offset in its name.

Rules: Kafka's `ProducerStateManager` (KIP-98). A broker starts from the newest one and replays the log after
it. Kafka stores only the last batch of a producer; its memory has five. klog stores an entry for each of
these five, the last one at last: Kafka reads all and keeps the last entry of each producer id.
"""

from __future__ import annotations

from typing import Any, Final

import construct as c

from klog.formats import binary
from klog.formats.checksums import confirm_crc32c, crc32c
from klog.formats.constants import SNAPSHOT_CRC_FROM, SNAPSHOT_CRC_POSITION, SNAPSHOT_VERSION
from klog.formats.errors import FormatError
from klog.formats.primitives import SizedArray
from klog.formats.values import Bytes

TITLE: Final = "producer snapshot"

ProducerEntry: Final = c.Struct(
    "producerId" / c.Int64sb,
    "producerEpoch" / c.Int16sb * "newest seen",
    "lastSequence" / c.Int32sb * "of its last batch, -1 for none",
    "lastOffset" / c.Int64sb * "of its last batch, -1 for none (only markers seen)",
    "offsetDelta" / c.Int32sb * "last minus first offset of that batch",
    "timestamp" / c.Int64sb * "of that batch (ms); decides when the producer expires",
    "coordinatorEpoch" / c.Int32sb * "of its last marker, -1 for none",
    "currentTxnFirstOffset" / c.Int64sb * "of the open transaction, -1 for none",
)
ProducerSnapshot: Final = c.Struct(
    "version" / c.Const(SNAPSHOT_VERSION, c.Int16sb) * "1",
    "crc" / c.Int32ub * "CRC-32C of everything after it",
    "producers" / SizedArray(c.Int32sb, ProducerEntry) * "the last entry with a producer's id counts",
)


def parse(data: Bytes) -> c.Container:
    """The snapshot. Raises `FormatError`, also if the crc does not match."""
    snapshot: c.Container = binary.parse_all(ProducerSnapshot, data, TITLE)
    checked = memoryview(data)[SNAPSHOT_CRC_FROM:]
    computed = crc32c(checked)
    if computed != snapshot.crc:
        confirm_crc32c(checked, computed)
        raise FormatError(
            f"{TITLE}: crc is {snapshot.crc}, but its bytes give {computed}",
            position_bytes=SNAPSHOT_CRC_POSITION,
            cure="a broker takes the next older one; `klog rebuild-index --snapshots` rebuilds it",
        )
    return snapshot


def build(snapshot: c.Container) -> bytes:
    """The bytes of a snapshot from its fields, with the crc as it is given (`sealed` computes it)."""
    return binary.build(ProducerSnapshot, snapshot, TITLE)


def sealed(producers: list[dict[str, Any]]) -> c.Container:
    """A snapshot of these producers with its crc."""
    snapshot = c.Container(version=SNAPSHOT_VERSION, crc=0, producers=producers)
    snapshot["crc"] = crc32c(build(snapshot)[SNAPSHOT_CRC_FROM:])
    return snapshot
