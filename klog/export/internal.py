"""Decodes the internal topics `__consumer_offsets` and `__transaction_state` to tables, a row for each
record.

The first columns say where a record is (`recordPartition`, `recordOffset`, `recordTimestamp`), the others
what it says. No row is compacted away: the last row of a key is the current one, and `deleted` marks
tombstones. The definitions in `klog.formats` decode the records; commits, which are most of such a topic, are
decoded faster here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from klog.export.decoders.types_ddl import parse_type
from klog.export.deserialise import BadRecords, TableOfRows
from klog.formats.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

POSITION_COLUMNS: Final = {
    "partition": "recordPartition",
    "offset": "recordOffset",
    "timestamp": "recordTimestamp",
}
"""Columns of the input that stay, under other names: the records themselves have offsets and partitions."""

READ_COLUMNS: Final = ("key", "value", *POSITION_COLUMNS)
"""The columns that are read of an internal topic."""

ReadRow = Callable[[bytes | None, bytes | None], dict[str, Any]]


class InternalTable(TableOfRows):
    """The table of one internal topic: `read_row` makes a row with the columns of `ddl` from key and value.

    It raises FormatError for a bad record. The table has the interface of
    `klog.export.deserialise.Deserialiser`.
    """

    def __init__(self, ddl: str, read_row: ReadRow, bad_records: BadRecords = BadRecords.COLUMN) -> None:
        self._kind = parse_type(ddl)
        self._read_row = read_row
        super().__init__(bad_records)

    def schema(self, input_schema: pa.Schema) -> pa.Schema:
        """The schema of the table's batches."""
        import pyarrow as pa

        places = [
            input_schema.field(name).with_name(new)
            for name, new in POSITION_COLUMNS.items()
            if name in input_schema.names
        ]
        return self._with_errors(pa.schema([*places, *self._kind]))

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The batch as rows of the table, and the rejected rows (None if there are none)."""
        import pyarrow as pa

        rows: list[dict[str, Any] | None] = []
        errors: dict[int, str] = {}
        pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        for number, (key, value) in enumerate(pairs):
            try:
                rows.append(self._read_row(key, value))
            except FormatError as error:
                errors[number] = error.what
                rows.append(None)
        places = [batch.column(name) for name in POSITION_COLUMNS if name in batch.schema.names]
        columns = [*places, *pa.array(rows, self._kind).flatten()]
        return self._separate(batch, columns, self.schema(batch.schema), errors, ("key", "value"))


def internal_table(topic: str, bad_records: BadRecords = BadRecords.COLUMN) -> InternalTable | None:
    """The table of an internal topic, None for any other topic."""
    if topic == "__consumer_offsets":
        from klog.export import internal_groups

        return InternalTable(internal_groups.DDL, internal_groups.read, bad_records)
    if topic == "__transaction_state":
        from klog.export import internal_transactions

        return InternalTable(internal_transactions.DDL, internal_transactions.read, bad_records)
    return None
