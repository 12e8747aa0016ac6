"""Control records: transaction markers (KIP-98) and the quorum's own records (KIP-595, KIP-630, KIP-853).

Rules: Kafka's documentation, "Control Batches". A control batch holds one such record, and clients never see
it. The key says the type, and the value is the message of that type. Later versions may add fields, so bytes
after the known fields are kept.
"""

from __future__ import annotations

from typing import Final

import construct as c

from klog.formats import schema
from klog.formats.constants import CONTROL_TYPES
from klog.formats.keyed import Keyed
from klog.formats.schema import INT16, INT32, INT64, STRING, UINT16, UUID, Field, array, struct
from klog.formats.structures import Versioned

ControlKey: Final = c.Struct(
    "version" / c.Int16sb * "0",
    "type"
    / c.Enum(c.Int16sb, **{name: number for number, name in enumerate(CONTROL_TYPES)})
    * "of the record",
    "rest" / c.GreedyBytes * "fields of later versions; empty in version 0",
)

# Not flexible, so that every version of Kafka can read it: 6 bytes; more are ignored.
EndTxnMarker: Final = c.Struct(
    "version" / c.Int16sb * "0",
    "coordinatorEpoch" / c.Int32sb * "of the transaction coordinator that ended the transaction",
    "rest" / c.GreedyBytes * "fields of later versions; empty in version 0",
)

_VOTER = struct(
    Field("voterId", INT32, "broker or controller id of the voter"),
    Field("voterDirectoryId", UUID, "its metadata directory (KIP-853)", since=1),
)
LeaderChange: Final = schema.message(
    "LeaderChangeMessage",
    range(2),
    0,
    Field("leaderId", INT32, "the leader that the quorum elected"),
    Field("voters", array(_VOTER), "voters of the quorum"),
    Field("grantingVoters", array(_VOTER), "those that voted for the leader"),
)
SnapshotHeader: Final = schema.message(
    "SnapshotHeaderRecord",
    range(1),
    0,
    Field("lastContainedLogTimestamp", INT64, "append time (ms) of the last record that the snapshot covers"),
)
SnapshotFooter: Final = schema.message("SnapshotFooterRecord", range(1), 0)
KRaftVersion: Final = schema.message(
    "KRaftVersionRecord", range(1), 0, Field("kRaftVersion", INT16, "0 static voters, 1 voters in the log")
)
Voters: Final = schema.message(
    "VotersRecord",
    range(1),
    0,
    Field(
        "voters",
        array(
            struct(
                Field("voterId", INT32, "controller id"),
                Field("voterDirectoryId", UUID, "its metadata directory"),
                Field(
                    "endpoints",
                    array(
                        struct(
                            Field("name", STRING, "of the listener"),
                            Field("host", STRING, "to connect to"),
                            Field("port", UINT16, "to connect to"),
                        )
                    ),
                    "where it listens",
                ),
                Field(
                    "kRaftVersionFeature",
                    struct(
                        Field("minSupportedVersion", INT16, "of kraft.version"),
                        Field("maxSupportedVersion", INT16, "of kraft.version"),
                    ),
                    "versions it understands",
                ),
            )
        ),
        "of the quorum",
    ),
)

VALUES: Final[dict[str, c.Construct | Versioned]] = {
    "ABORT": EndTxnMarker,
    "COMMIT": EndTxnMarker,
    "LEADER_CHANGE": LeaderChange,
    "SNAPSHOT_HEADER": SnapshotHeader,
    "SNAPSHOT_FOOTER": SnapshotFooter,
    "KRAFT_VERSION": KRaftVersion,
    "KRAFT_VOTERS": Voters,
}
ControlRecord: Final = Keyed(
    "control record", ControlKey, lambda key: VALUES.get(str(key["type"]), c.GreedyBytes), VALUES
)

parse: Final = ControlRecord.parse
build: Final = ControlRecord.build
