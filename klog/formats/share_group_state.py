"""Records of `__share_group_state`: the progress of each share group in each partition (KIP-932, as of 4.1).

Rules: Kafka's message schemas of the share coordinator. The key's version is the record's type: a snapshot of
the state, or an update to it.
"""

from __future__ import annotations

from typing import Final

from klog.formats import schema
from klog.formats.keyed import Keyed
from klog.formats.schema import INT8, INT16, INT32, INT64, NEVER, STRING, UUID, Field, array, struct
from klog.formats.structures import Versioned

_KEY_FIELDS: Final = schema.fields_of(
    0,
    NEVER,
    Field("groupId", STRING, "share group"),
    Field("topicId", UUID, "of the partition"),
    Field("partition", INT32, "number"),
)
Key: Final = Versioned("type of the record", {0: _KEY_FIELDS, 1: _KEY_FIELDS})

_SNAPSHOT_EPOCH: Final = Field("snapshotEpoch", INT32, "counts snapshots")
_STATE_EPOCH: Final = Field("stateEpoch", INT32, "of the share partition")
_LEADER_EPOCH: Final = Field("leaderEpoch", INT32, "of the partition")
_START_OFFSET: Final = Field("startOffset", INT64, "first offset in flight, -1: unchanged")
_STATE_BATCHES: Final = Field(
    "stateBatches",
    array(
        struct(
            Field("firstOffset", INT64, "of the batch"),
            Field("lastOffset", INT64, "of the batch"),
            Field("deliveryState", INT8, "0 available, 2 acknowledged, 4 archived"),
            Field("deliveryCount", INT16, "times delivered"),
        )
    ),
    "offsets in flight",
)
VALUES: Final[dict[int, Versioned]] = {
    0: schema.message(
        "ShareSnapshotValue",
        range(1),
        0,
        _SNAPSHOT_EPOCH,
        _STATE_EPOCH,
        _LEADER_EPOCH,
        _START_OFFSET,
        Field("createTimestamp", INT64, "of the state (ms)"),
        Field("writeTimestamp", INT64, "of this record (ms)"),
        _STATE_BATCHES,
    ),
    1: schema.message(
        "ShareUpdateValue", range(1), 0, _SNAPSHOT_EPOCH, _LEADER_EPOCH, _START_OFFSET, _STATE_BATCHES
    ),
}
ShareGroupRecord: Final = Keyed(
    "share group record",
    Key,
    lambda key: VALUES[key["version"]],
    {"0 ShareSnapshot": VALUES[0], "1 ShareUpdate": VALUES[1]},
)

parse: Final = ShareGroupRecord.parse
build: Final = ShareGroupRecord.build
