"""Decoded records as Arrow: the requested columns are gathered from record tables into record batches.

Column names and meanings are those of the JSON Lines records (`klog dump-segment --format jsonl`), typed
for analysis. Keys, values and header values are `binary`, because their encoding is not known. Times are
`timestamp[ms, UTC]`. The column is null if Kafka stores -1 for "no timestamp"; other fields keep Kafka's -1.
Header keys are `string`; bytes that are not UTF-8 become U+FFFD, as in Kafka's own reader.

    builder = ArrowBuilder(["offset", "timestamp", "value"])
    decoded = ((payload, batches, records) for ...)  # tables of the record kernel; they are copied
    for batch in builder.batches_of(decoded, ARROW_BATCH_BYTES): ...

Columns that are not requested are not built. A builder grows until its user calls `finish`; the caller
decides where files and row groups begin and end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from klog.formats.checksums import Bytes
from klog.formats.compression import codec_name
from klog.formats.constants import CODEC_MASK, CONTROL_BIT, INT32_MAX, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from klog.formats.errors import UsageError
from klog.formats.optional import require_pyarrow
from klog.kernel.columns import BatchTable, HeadersColumn, RecordTable
from klog.kernel.gathered import SPAN_FIELDS, Gathered, binary_array, header_pairs, int64_array

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
    "magic",
    "codec",
    "isTransactional",
    "isControl",
    "producerId",
    "producerEpoch",
    "sequence",
    "leaderEpoch",
    "batchBaseOffset",
    "batchPosition",
    "recordSize",
)
"""Every column there is, in the order of the JSON Lines records."""

DEFAULT_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
"""What a consumer of the topic would see."""

ARROW_BATCH_BYTES: Final = 1 << 20
"""Small enough that the memory of one batch is still in the caches for the next."""

_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")

# The fields of the record table, and those of the batch table, that each column needs.
_OF_RECORD: Final[dict[str, tuple[str, ...]]] = {
    "offset": ("offset",),
    "timestamp": ("timestamp",),
    "sequence": ("offset",),
    "recordSize": ("record_size",),
}
_OF_BATCH: Final[dict[str, tuple[str, ...]]] = {
    "timestampType": ("magic", "attributes"),
    "magic": ("magic",),
    "codec": ("attributes",),
    "isTransactional": ("magic", "attributes"),
    "isControl": ("magic", "attributes"),
    "producerId": ("producer_id",),
    "producerEpoch": ("producer_epoch",),
    "sequence": ("base_sequence", "base_offset"),
    "leaderEpoch": ("leader_epoch",),
    "batchBaseOffset": ("base_offset",),
    "batchPosition": ("position",),
}


def schema(columns: Sequence[str] = DEFAULT_COLUMNS) -> pa.Schema:
    """The Arrow schema of `columns`.

    Raises `UsageError` for a name that is not in COLUMNS, and without pyarrow.
    """
    require_pyarrow("an Arrow table")
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    types: dict[str, Any] = {
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "timestampType": pa.string(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.field("item", header, nullable=False)),
        "magic": pa.int8(),
        "codec": pa.string(),
        "isTransactional": pa.bool_(),
        "isControl": pa.bool_(),
        "producerId": pa.int64(),
        "producerEpoch": pa.int16(),
        "sequence": pa.int32(),
        "leaderEpoch": pa.int32(),
        "batchBaseOffset": pa.int64(),
        "batchPosition": pa.int64(),
        "recordSize": pa.int32(),
    }
    nullable = {"timestamp", "key", "value"}
    _check(columns)
    return pa.schema([pa.field(name, types[name], nullable=name in nullable) for name in columns])


def _check(columns: Iterable[str]) -> None:
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"no column {name!r}", cure=f"one of {', '.join(COLUMNS)}")


def table_of(batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None) -> pa.Table:
    """All of `batches`, which have these columns, as one table; a table without rows if there are none."""
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema(DEFAULT_COLUMNS if columns is None else columns))


class ArrowBuilder:
    """Gathers records into Arrow record batches of chosen columns; not for two threads at a time.

    `columns` are names of COLUMNS in the requested order. Raises `UsageError` for an unknown name, and
    without pyarrow.
    """

    def __init__(self, columns: Sequence[str] = DEFAULT_COLUMNS) -> None:
        require_pyarrow("an Arrow table")
        _check(columns)
        self.columns = tuple(columns)
        self._clear()

    def _clear(self) -> None:
        self._gathered = Gathered(
            of_record=sorted({field for name in self.columns for field in _OF_RECORD.get(name, ())}),
            of_batch=sorted({field for name in self.columns for field in _OF_BATCH.get(name, ())}),
            spans=[name for name in SPAN_FIELDS if name in self.columns],
            headers="headers" in self.columns,
        )

    @property
    def rows(self) -> int:
        """Records gathered since the last `finish`."""
        return self._gathered.rows

    @property
    def nbytes(self) -> int:
        """Approximate bytes of the gathered columns in memory."""
        return self._gathered.nbytes

    def has_room(self, payload: Bytes) -> bool:
        """Whether the records of `payload` fit too, whatever they are (Arrow's offsets have 32 bits)."""
        return self.nbytes + len(payload) <= INT32_MAX

    def append(
        self,
        payload: Bytes,
        table: BatchTable,
        records: RecordTable,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Copy the rows `first` to `last` (exclusive; default: all) of `records`.

        `records` point into the buffer `payload`; `table` holds their batches. If they do not belong
        together, or the columns would exceed Arrow's 32-bit offsets (see `has_room`), raises `UsageError` and
        copies nothing.
        """
        stop = len(records) if last is None else last
        if not 0 <= first <= stop <= len(records):
            raise UsageError(f"rows {first} to {stop} of a table of {len(records)}")
        if not self.has_room(payload):
            raise UsageError("a row group of more than 2 GiB", cure="finish the row group earlier")
        self._gathered.append(payload, table, records, first, stop)

    def batches_of(
        self, decoded: Iterable[tuple[Bytes, BatchTable, RecordTable]], limit_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """All records of `decoded` (arguments of `append`) in batches of about `limit_bytes`, none empty."""
        for payload, table, records in decoded:
            if self.rows and not self.has_room(payload):
                yield self.finish()
            self.append(payload, table, records)
            if self.nbytes >= limit_bytes:
                yield self.finish()
        if self.rows:
            yield self.finish()

    def finish(self) -> pa.RecordBatch:
        """The gathered records. The builder is empty afterwards."""
        import pyarrow as pa

        wanted = schema(self.columns)
        arrays = [_finished(self._gathered, field.name, field.type) for field in wanted]
        batch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
        self._clear()
        return batch


def _finished(gathered: Gathered, name: str, kind: pa.DataType) -> pa.Array:
    if name in gathered.spans:
        return binary_array(gathered.spans[name], kind)
    if gathered.headers is not None and name == "headers":
        return _header_lists(gathered.headers, kind)
    fields = {field: int64_array(gathered.of_record[field]) for field in _OF_RECORD.get(name, ())}
    fields |= {field: int64_array(gathered.of_batch[field].values) for field in _OF_BATCH.get(name, ())}
    if name == "timestamp":
        return _timestamps(fields["timestamp"], kind)
    if name in {"timestampType", "codec", "isTransactional", "isControl"}:
        return from_attributes(name, fields)
    if name == "sequence":
        return sequences(fields).cast(kind)
    (values,) = fields.values()
    return values.cast(kind)


def _timestamps(values: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pc.equal(values, -1)
    return pc.if_else(missing, pa.scalar(None, pa.int64()), values).cast(kind)


def from_attributes(name: str, fields: dict[str, pa.Array]) -> pa.Array:
    """The column `name` (codec, timestampType, isTransactional, isControl) of `attributes` and `magic`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    attributes = fields["attributes"]
    if name == "codec":
        names = pa.array([codec_name(codec) for codec in range(CODEC_MASK + 1)])
        return names.take(pc.bit_wise_and(attributes, CODEC_MASK))
    magic = fields["magic"]
    if name == "timestampType":
        append_time = pc.not_equal(pc.bit_wise_and(attributes, TIMESTAMP_TYPE_BIT), 0).cast(pa.int64())
        kinds = pc.if_else(pc.equal(magic, 0), pa.scalar(2, pa.int64()), append_time)
        return pa.array(_TIMESTAMP_TYPES).take(kinds)
    bit = TRANSACTIONAL_BIT if name == "isTransactional" else CONTROL_BIT
    return pc.and_(pc.not_equal(pc.bit_wise_and(attributes, bit), 0), pc.greater_equal(magic, 2))


def sequences(fields: dict[str, pa.Array]) -> pa.Array:
    """The sequence number of each record: base sequence plus offset in the batch; it wraps from 2^31-1 to
    0.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    base = fields["base_sequence"]
    delta = pc.subtract(fields["offset"], fields["base_offset"])
    wrapped = pc.bit_wise_and(pc.add(base, delta), INT32_MAX)
    return pc.if_else(pc.less(base, 0), pa.scalar(-1, pa.int64()), wrapped)


def _header_lists(column: HeadersColumn, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    buffers = [None, pa.py_buffer(column.ends)]
    pairs = header_pairs(column, kind.value_type)
    return pa.Array.from_buffers(kind, len(column.ends) - 1, buffers, null_count=0, children=[pairs])
