"""Rows of `__transaction_state`: the state of each transactional id.

`klog.formats.transaction_state` defines the fields. -1, and fields that an older version does not have, are
null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klog.export.internal_groups import micros
from klog.formats import transaction_state

DDL: Final = """
    transactionalId STRING, deleted BOOLEAN,
    producerId BIGINT, producerEpoch SMALLINT, previousProducerId BIGINT, nextProducerId BIGINT,
    nextProducerEpoch SMALLINT, state STRING, transactionTimeoutMs INT,
    partitions ARRAY<STRUCT<topic: STRING, partition: INT>>,
    lastUpdateTimestamp TIMESTAMP, startTimestamp TIMESTAMP, clientTransactionVersion SMALLINT
"""


def read(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """One record as a row. Raises FormatError."""
    record = transaction_state.TransactionRecord.read(key, value)
    row: dict[str, Any] = {"transactionalId": record.key["transactionalId"], "deleted": value is None}
    fields = record.value
    if not isinstance(fields, Mapping):
        return row
    tagged = {one["name"]: one["value"] for one in fields.get("taggedFields", ())}
    for name in ("previousProducerId", "nextProducerId", "nextProducerEpoch", "clientTransactionVersion"):
        row[name] = _known(tagged.get(name, -1))
    return row | {
        "producerId": fields["producerId"],
        "producerEpoch": fields["producerEpoch"],
        "state": transaction_state.state_name(fields["transactionStatus"]),
        "transactionTimeoutMs": fields["transactionTimeoutMs"],
        "partitions": _partitions(fields["transactionPartitions"]),
        "lastUpdateTimestamp": micros(fields["transactionLastUpdateTimestampMs"]),
        "startTimestamp": micros(fields["transactionStartTimestampMs"]),
    }


def _partitions(topics: list[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    if topics is None:
        return None
    return [
        {"topic": topic["topic"], "partition": number} for topic in topics for number in topic["partitionIds"]
    ]


def _known(number: int) -> int | None:
    return None if number == -1 else number
