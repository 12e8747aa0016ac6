"""Gathers decoded records into Arrow record batches with the columns of `klog.export.schema`.

Only selected columns are gathered. Values that are mostly the same for all records (codec, producer,
timestamp type) are kept once for each batch and repeated at the end, which takes very little time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from klog.formats.checksums import Bytes
from klog.formats.compression import codec_name
from klog.formats.constants import CODEC_MASK, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from klog.kernel.columns import BatchTable, HeadersColumn, RecordTable
from klog.kernel.gathered import SPAN_FIELDS, BatchField, Gathered, binary_array, header_pairs, int64_array

if TYPE_CHECKING:
    import pyarrow as pa

_OF_RECORD: Final = {"offset": ("offset",), "timestamp": ("timestamp",), "sequence": ("offset",)}
_OF_BATCH: Final = {
    "timestampType": ("magic", "attributes"),
    "leaderEpoch": ("leader_epoch",),
    "producerId": ("producer_id",),
    "producerEpoch": ("producer_epoch",),
    "sequence": ("base_sequence", "base_offset"),
    "isTransactional": ("magic", "attributes"),
    "codec": ("attributes",),
    "batchPosition": ("position",),
}
_NO_TIMESTAMP_TYPE: Final = -1
_MAGICS: Final = 256


class SplitColumns:
    """Gathers the records of one split into batches of `schema`.

    `topic`, `partition` and `file` are the same for all records.
    """

    def __init__(self, schema: pa.Schema, topic: str, partition: int, file: str) -> None:
        self.schema = schema
        self._constants: dict[str, str | int] = {"topic": topic, "partition": partition, "file": file}
        self._constant_bytes = sum(
            4 + len(str(value)) for name, value in self._constants.items() if name in schema.names
        )
        self._clear()

    def _clear(self) -> None:
        self._gathered = self._new(SPAN_FIELDS)

    def _new(self, spans: Iterable[str]) -> Gathered:
        names: Sequence[str] = self.schema.names
        return Gathered(
            of_record=sorted({field for name in names for field in _OF_RECORD.get(name, ())}),
            of_batch=sorted({field for name in names for field in _OF_BATCH.get(name, ())}),
            spans=[name for name in spans if name in names],
            headers="headers" in names,
        )

    @property
    def rows(self) -> int:
        """Records gathered since the last `finish`."""
        return self._gathered.rows

    @property
    def nbytes(self) -> int:
        """The approximate memory of these records in bytes."""
        return self._gathered.nbytes + self._gathered.rows * self._constant_bytes

    def append(self, payload: Bytes, table: BatchTable, records: RecordTable, first: int, last: int) -> None:
        """Add the rows `first` to `last` (exclusive). `payload` is the buffer that `records` point into; it
        is copied."""
        self._gathered.append(payload, table, records, first, last)

    def alone(self, payload: Bytes, table: BatchTable, records: RecordTable, row: int) -> pa.RecordBatch:
        """A batch of one record, whose key and value stay in `payload` and are not copied."""
        import pyarrow as pa

        gathered = self._new(spans=())
        gathered.append(payload, table, records, row, row + 1)
        spans = {
            "key": (records.key_start[row], records.key_size[row]),
            "value": (records.value_start[row], records.value_size[row]),
        }
        arrays = [
            _uncopied(payload, *spans[field.name], field.type)
            if field.name in spans
            else self._array(field, gathered)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def finish(self) -> pa.RecordBatch:
        """The gathered records as a batch; then none are gathered any more."""
        import pyarrow as pa

        arrays = [self._array(field, self._gathered) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._clear()
        return batch

    def _array(self, field: pa.Field, gathered: Gathered) -> pa.Array:
        import pyarrow as pa

        name, kind = field.name, field.type
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], kind), gathered.rows)
        if name in gathered.spans:
            return binary_array(gathered.spans[name], kind)
        if name == "headers" and gathered.headers is not None:
            return _header_lists(gathered.headers, kind)
        if name == "offset":
            return int64_array(gathered.of_record["offset"])
        if name == "timestamp":
            return _timestamps(int64_array(gathered.of_record["timestamp"]), kind)
        if name == "sequence":
            return _sequences(gathered, kind)
        return _of_batch(name, [gathered.of_batch[source] for source in _OF_BATCH[name]], kind)


def _uncopied(payload: Bytes, start: int, size: int, kind: pa.DataType) -> pa.Array:
    """A column of one value in `payload`, without a copy; null for a size below 0."""
    import pyarrow as pa

    if size < 0:
        return pa.nulls(1, kind)
    value = pa.py_buffer(memoryview(payload)[start : start + size])
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(array("i", (0, size))), value])


def _timestamps(values_ms: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    times_ms = values_ms.view(pa.timestamp("ms", "UTC"))
    try:
        return times_ms.cast(kind)
    except pa.ArrowInvalid:  # a time is too far from 1970 for microseconds in 64 bits
        most_ms = (2**63 - 1) // 1000
        fits = pc.and_(pc.less_equal(values_ms, most_ms), pc.greater_equal(values_ms, -most_ms))
        return pc.if_else(fits, times_ms, pa.scalar(None, times_ms.type)).cast(kind)


def _header_lists(column: HeadersColumn, kind: pa.DataType) -> pa.Array:
    """Lists of headers; null for a record without headers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    buffers = [None, pa.py_buffer(column.ends)]
    rows = len(column.ends) - 1
    pairs = header_pairs(column, kind.value_type)
    lists = pa.Array.from_buffers(kind, rows, buffers, null_count=0, children=[pairs])
    if not len(pairs):
        return pa.nulls(rows, kind)
    some = pc.greater(pc.list_value_length(lists), 0)
    return pa.Array.from_buffers(kind, rows, [some.buffers()[1], buffers[1]], children=[pairs])


def _sequences(gathered: Gathered, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    from klog.kernel.arrow import sequences

    base_sequence = gathered.of_batch["base_sequence"]
    if base_sequence.constant == -1:
        return pa.repeat(pa.scalar(-1, kind), gathered.rows)
    fields = {name: int64_array(gathered.of_batch[name].values) for name in ("base_sequence", "base_offset")}
    return sequences({**fields, "offset": int64_array(gathered.of_record["offset"])}).cast(kind)


def _timestamp_type(magic: int, attributes: int) -> int:
    return _NO_TIMESTAMP_TYPE if magic == 0 else int(attributes & TIMESTAMP_TYPE_BIT != 0)


def _is_transactional(magic: int, attributes: int) -> bool:
    return magic >= 2 and attributes & TRANSACTIONAL_BIT != 0


def _codec(attributes: int) -> str:
    return codec_name(attributes & CODEC_MASK)


_COMPUTED_FROM_BATCH: Final[dict[str, Callable[..., int | bool | str]]] = {
    "timestampType": _timestamp_type,
    "isTransactional": _is_transactional,
    "codec": _codec,
}


def _of_batch(name: str, fields: list[BatchField], kind: pa.DataType) -> pa.Array:
    """A column with the same value for all records of a batch, computed once for each combination of
    fields."""
    import pyarrow as pa
    import pyarrow.compute as pc

    make = _COMPUTED_FROM_BATCH.get(name, int)
    if all(field.constant is not None for field in fields):
        value = make(*(field.constant for field in fields))
        return pa.repeat(pa.scalar(value, kind), fields[0].rows)
    if make is int:
        return int64_array(fields[0].values).cast(kind)
    combined = int64_array(fields[-1].values)
    if len(fields) > 1:  # magic and attributes, of 8 and 16 bits
        combined = pc.add(pc.multiply(combined, _MAGICS), int64_array(fields[0].values))
    encoded = combined.dictionary_encode()
    met = [_separate(value.as_py(), len(fields)) for value in encoded.dictionary]
    return pa.array([make(*values) for values in met], kind).take(encoded.indices)


def _separate(combined: int, fields: int) -> tuple[int, ...]:
    return (combined,) if fields == 1 else (combined % _MAGICS, combined // _MAGICS)
