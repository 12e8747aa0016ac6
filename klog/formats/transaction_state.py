"""Records of `__transaction_state`: the state of each transactional id at its coordinator.

Rules: Kafka's TransactionLogKey and TransactionLogValue schemas (KIP-98, KIP-890). A null value removes the
id.
"""

from __future__ import annotations

from typing import Final

from klog.formats import schema
from klog.formats.keyed import Keyed
from klog.formats.schema import INT8, INT16, INT32, INT64, NEVER, STRING, Field, array, struct
from klog.formats.structures import Versioned

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Kafka's names of `transactionStatus`, by number."""

Key: Final = Versioned(
    "TransactionLogKey", {0: schema.fields_of(0, NEVER, Field("transactionalId", STRING, "of the producer"))}
)
Value: Final = schema.message(
    "TransactionLogValue",
    range(2),
    1,
    Field("producerId", INT64, "in use by the transactional id"),
    Field("previousProducerId", INT64, "of the last committed transaction", since=1, tag=0),
    Field("nextProducerId", INT64, "that the producer knows already", since=1, tag=1),
    Field("producerEpoch", INT16, "of the producer id"),
    Field("nextProducerEpoch", INT16, "that goes with nextProducerId", since=1, tag=3),
    Field("transactionTimeoutMs", INT32, "after which the coordinator aborts"),
    Field(
        "transactionStatus",
        INT8,
        ", ".join(f"{number} {name}" for number, name in enumerate(STATES)),
    ),
    Field(
        "transactionPartitions",
        array(
            struct(
                Field("topic", STRING, "in the transaction"),
                Field("partitionIds", array(INT32), "in the transaction"),
            )
        ),
        "null when the transaction is over",
        null_since=0,
    ),
    Field("transactionLastUpdateTimestampMs", INT64, "of the last change (ms)"),
    Field("transactionStartTimestampMs", INT64, "of the transaction (ms), -1 before the first"),
    Field("clientTransactionVersion", INT16, "of the client's protocol (KIP-890)", since=1, tag=2),
)
TransactionRecord: Final = Keyed("transaction record", Key, lambda _key: Value, {"0": Value})

parse: Final = TransactionRecord.parse
build: Final = TransactionRecord.build


def state_name(status: int) -> str:
    """Kafka's name of a `transactionStatus`; `Unknown(9)` for numbers that Kafka does not define."""
    return STATES[status] if 0 <= status < len(STATES) else f"Unknown({status})"
