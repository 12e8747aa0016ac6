"""Records of `__remote_log_metadata`: which segments were copied to remote storage (KIP-405).

The value is a frame (see `frames`) around one of four records. The topic-based metadata manager of tiered
storage writes and reads them.
"""

from __future__ import annotations

from typing import Final

from klog.formats import binary, frames
from klog.formats.frames import RecordType, record_type
from klog.formats.schema import BOOL, BYTES, INT8, INT32, INT64, STRING, UUID, Field, array, struct

TITLE: Final = "remote segment record"

_TOPIC_PARTITION: Final = struct(
    Field("name", STRING, "of the topic"),
    Field("id", UUID, "of the topic"),
    Field("partition", INT32, "number"),
)
_SEGMENT_ID: Final = Field(
    "remoteLogSegmentId",
    struct(
        Field("topicIdPartition", _TOPIC_PARTITION, "whose segment it is"), Field("id", UUID, "of the copy")
    ),
    "which segment",
)
_BROKER: Final = Field("brokerId", INT32, "that made the change")
_EVENT_TIME: Final = Field("eventTimestampMs", INT64, "of the change")
_CUSTOM: Final = Field("customMetadata", BYTES, "of the storage plugin", null_since=0)
_STATE: Final = Field(
    "remoteLogSegmentState", INT8, "0 copy started, 1 copy finished, 2 delete started, 3 delete finished"
)
_SEGMENT: Final = (
    Field("startOffset", INT64, "first offset of the segment"),
    Field("endOffset", INT64, "last offset of the segment"),
    _BROKER,
    Field("maxTimestampMs", INT64, "largest of the segment"),
    _EVENT_TIME,
    Field(
        "segmentLeaderEpochs",
        array(struct(Field("leaderEpoch", INT32, "epoch"), Field("offset", INT64, "where it starts"))),
        "of the segment",
    ),
    Field("segmentSizeInBytes", INT32, "of the .log"),
    _CUSTOM,
    _STATE,
)
# Since 4.0; written only if it is true.
_EMPTY_TXN_INDEX: Final = Field("txnIndexEmpty", BOOL, "the segment has no aborted transaction", tag=0)

RECORDS: Final[dict[int, RecordType]] = {
    0: record_type("RemoteLogSegmentMetadataRecord", 0, _SEGMENT_ID, *_SEGMENT, _EMPTY_TXN_INDEX),
    1: record_type(
        "RemoteLogSegmentMetadataUpdateRecord", 0, _SEGMENT_ID, _BROKER, _EVENT_TIME, _CUSTOM, _STATE
    ),
    2: record_type(
        "RemotePartitionDeleteMetadataRecord",
        0,
        Field("topicIdPartition", _TOPIC_PARTITION, "that is deleted"),
        _BROKER,
        _EVENT_TIME,
        Field("remotePartitionDeleteState", INT8, "0 marked, 1 started, 2 finished"),
    ),
    3: record_type(
        "RemoteLogSegmentMetadataSnapshotRecord",
        0,
        Field("segmentId", UUID, "of the copy"),
        *_SEGMENT,
        _EMPTY_TXN_INDEX,
    ),
}
RemoteLogRecord: Final = frames.frame(RECORDS)
parse, build = binary.whole(RemoteLogRecord, TITLE)
