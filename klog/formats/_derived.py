"""What `fixed_fields` gives out. Made by `python -m klog.formats.derive`: do not edit."""

# ruff: noqa: E501
# fmt: off
# Runs of adjacent fields of fixed size: format of `struct`, names.
FIELDS: dict[str, tuple[tuple[str, str], ...]] = {
    "RecordBatch": (
        (">qiibIhiqqqhii", "baseOffset batchLength partitionLeaderEpoch magic crc attributes lastOffsetDelta baseTimestamp maxTimestamp producerId producerEpoch baseSequence recordCount"),
    ),
    "Message0": (
        (">qiIbBi", "offset size crc magic attributes key"),
        (">i", "value"),
    ),
    "Message1": (
        (">qiIbBqi", "offset size crc magic attributes timestamp key"),
        (">i", "value"),
    ),
    "OffsetIndexEntry": (
        (">ii", "relativeOffset position"),
    ),
    "TimeIndexEntry": (
        (">qi", "timestamp relativeOffset"),
    ),
    "AbortedTxn": (
        (">hqqqq", "version producerId firstOffset lastOffset lastStableOffset"),
    ),
    "ProducerSnapshot": (
        (">hIi", "version crc producers"),
    ),
    "ProducerSnapshot.producers": (
        (">qhiqiqiq", "producerId producerEpoch lastSequence lastOffset offsetDelta timestamp coordinatorEpoch currentTxnFirstOffset"),
    ),
    "ControlKey": (
        (">hh", "version type"),
    ),
    "EndTxnMarker": (
        (">hi", "version coordinatorEpoch"),
    ),
    "GroupKey.1": (
        (">hh", "version group"),
        (">h", "topic"),
        (">i", "partition"),
    ),
    "OffsetCommitValue.0": (
        (">hqh", "version offset metadata"),
        (">q", "commitTimestamp"),
    ),
    "OffsetCommitValue.1": (
        (">hqh", "version offset metadata"),
        (">qq", "commitTimestamp expireTimestamp"),
    ),
    "OffsetCommitValue.2": (
        (">hqh", "version offset metadata"),
        (">q", "commitTimestamp"),
    ),
    "OffsetCommitValue.3": (
        (">hqih", "version offset leaderEpoch metadata"),
        (">q", "commitTimestamp"),
    ),
    "ZooKeeperSnapshotNode": (
        (">i", "path"),
        (">i", "data"),
        (">qqqqqiiiqq", "acl czxid mzxid ctime mtime version cversion aversion ephemeralOwner pzxid"),
    ),
    "ZooKeeperLogEntry": (
        (">qi", "checksum transaction"),
    ),
    "ZooKeeperTransactionHead": (
        (">qiqqi", "session cxid zxid timeMs type"),
    ),
    "ZooKeeperTransactionDigest": (
        (">iq", "version treeDigest"),
    ),
}
# Fields of attributes: lowest bit, width.
BITS: dict[str, dict[str, tuple[int, int]]] = {
    "RecordBatch": {
        "unused": (7, 9),
        "hasDeleteHorizon": (6, 1),
        "isControl": (5, 1),
        "isTransactional": (4, 1),
        "timestampType": (3, 1),
        "codec": (0, 3),
    },
    "Message": {
        "unused": (4, 4),
        "timestampType": (3, 1),
        "codec": (0, 3),
    },
}
# Words of lines: types, names.
LINES: dict[str, tuple[str, str]] = {
    "OffsetCheckpointFile.version": ("int32", "version"),
    "OffsetCheckpointFile.count": ("int32", "count"),
    "OffsetCheckpointFile.entries": ("word int32 int64", "topic partition offset"),
    "LeaderEpochFile.version": ("int32", "version"),
    "LeaderEpochFile.count": ("int32", "count"),
    "LeaderEpochFile.entries": ("int32 int64", "epoch startOffset"),
}
