"""Internal topics as tables of their own: `__consumer_offsets` and `__transaction_state`, a row a record.

The first columns say where a record stands (`recordPartition`, `recordOffset`, `recordTimestamp`), the others
what it says. Nothing is compacted away: the last row of a key is what holds, and `deleted` says that it was
taken back. What a record says is read by `klog.formats`; commits, of which such a topic is full, faster here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from klog.export.decoders.types_ddl import parse_type
from klog.export.deserialise import BadRecords, BadRows
from klog.formats.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

POSITION_COLUMNS: Final = {
    "partition": "recordPartition",
    "offset": "recordOffset",
    "timestamp": "recordTimestamp",
}
"""Columns of the input that stay, under names of their own: offsets are also what the records speak of."""

READ_COLUMNS: Final = ("key", "value", *POSITION_COLUMNS)
"""What has to be read of such a topic."""

Reads = Callable[[bytes | None, bytes | None], dict[str, Any]]


class InternalTable:
    """The table of one internal topic: `reads` makes a row of `ddl`'s columns of key and value, or raises
    FormatError. Used in place of a `klog.export.deserialise.Deserialiser`, with the same meaning.
    """

    def __init__(self, ddl: str, reads: Reads, bad_records: BadRecords = BadRecords.COLUMN) -> None:
        self._kind = parse_type(ddl)
        self._reads = reads
        self._bad_rows = BadRows(bad_records)

    def schema(self, input_schema: pa.Schema) -> pa.Schema:
        """What batches of `input_schema` come out as."""
        import pyarrow as pa

        places = [
            input_schema.field(name).with_name(new)
            for name, new in POSITION_COLUMNS.items()
            if name in input_schema.names
        ]
        return self._bad_rows.schema(pa.schema([*places, *self._kind]))

    def rejects_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """What rejected rows of `input_schema` come out as: as they were read, and why."""
        return self._bad_rows.rejects_schema(input_schema)

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The batch as rows of the table, and the rows that are rejected (None: none are)."""
        import pyarrow as pa

        rows: list[dict[str, Any] | None] = []
        errors: dict[int, str] = {}
        pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        for number, (key, value) in enumerate(pairs):
            try:
                rows.append(self._reads(key, value))
            except FormatError as error:
                errors[number] = error.what
                rows.append(None)
        places = [batch.column(name) for name in POSITION_COLUMNS if name in batch.schema.names]
        columns = [*places, *pa.array(rows, self._kind).flatten()]
        return self._bad_rows.told(batch, columns, self.schema(batch.schema), errors, ("key", "value"))


def internal_table(topic: str, bad_records: BadRecords = BadRecords.COLUMN) -> InternalTable | None:
    """The table of an internal topic; None for any other topic."""
    if topic == "__consumer_offsets":
        from klog.export import internal_groups

        return InternalTable(internal_groups.DDL, internal_groups.read, bad_records)
    if topic == "__transaction_state":
        from klog.export import internal_transactions

        return InternalTable(internal_transactions.DDL, internal_transactions.read, bad_records)
    return None
