"""Keys and values as typed columns: a stage between reading and writing that works batch by batch.

A `Decoding` says how one column's bytes become values; it is plain text, so that all tasks of a job do the
same. What a user asks for (a file, a directory of schemas, a schema to be inferred) becomes one by
`klog.spark.decoders.choose.settle`, once a job. Bad values are never dropped: their rows stay, or go to the
rejects, with the reason and the bytes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from klog.spark.decoders.choose import decoder_of
from klog.spark.decoders.decoder import Decoded, Decoder
from klog.spark.decoders.decoding import RAW, Decoding

if TYPE_CHECKING:
    import pyarrow as pa

ERROR_COLUMN: Final = "_error"


class BadRecords(StrEnum):
    """What becomes of a record whose key or value cannot be decoded."""

    COLUMN = "column"
    """It stays among the others, with what is bad as null and `_error` filled."""
    REJECT = "reject"
    """It goes to the rejects, with its bytes as they are."""


class Deserialiser:
    """Decodes the keys and values of record batches. Raises UsageError for a schema that is none.

    Not for two threads at a time.
    """

    def __init__(
        self, key: Decoding = RAW, value: Decoding = RAW, bad_records: BadRecords = BadRecords.COLUMN
    ) -> None:
        self._bad_records = bad_records
        found = {"key": decoder_of(key), "value": decoder_of(value)}
        self._decoders: dict[str, Decoder] = {
            name: decoder for name, decoder in found.items() if decoder is not None
        }

    @property
    def idle(self) -> bool:
        """Whether nothing is decoded at all."""
        return not self._decoders

    def schema(self, input_schema: pa.Schema) -> pa.Schema:
        """What batches of `input_schema` come out as."""
        import pyarrow as pa

        fields = [
            field.with_type(self._decoders[field.name].kind) if field.name in self._decoders else field
            for field in input_schema
        ]
        if self._decoders and self._bad_records is BadRecords.COLUMN:
            fields.append(pa.field(ERROR_COLUMN, _error_kind()))
        return pa.schema(fields)

    def rejects_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """What rejected rows of `input_schema` come out as: as they were read, and why."""
        import pyarrow as pa

        return input_schema.append(pa.field(ERROR_COLUMN, pa.string()))

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The batch with its columns decoded, and the rows that are rejected (None: none are)."""
        import pyarrow as pa

        if not self._decoders:
            return batch, None
        decoded = {
            name: decoder.decode(batch.column(name))
            for name, decoder in self._decoders.items()
            if name in batch.schema.names
        }
        columns = [
            decoded[name].values if name in decoded else batch.column(name) for name in batch.schema.names
        ]
        schema = self.schema(batch.schema)
        if self._bad_records is BadRecords.COLUMN:
            columns.append(_error_column(batch, decoded))
            return pa.RecordBatch.from_arrays(columns, schema=schema), None
        good = pa.RecordBatch.from_arrays(columns, schema=schema)
        reasons = _reasons(decoded)
        if not reasons:
            return good, None
        return _divided(batch, good, reasons, self.rejects_schema(batch.schema))


def _error_kind() -> pa.DataType:
    import pyarrow as pa

    return pa.struct(
        [pa.field("reason", pa.string()), pa.field("key", pa.binary()), pa.field("value", pa.binary())]
    )


def _reasons(decoded: dict[str, Decoded]) -> dict[int, str]:
    """What is wrong with each bad row."""
    reasons: dict[int, str] = {}
    for name, column in decoded.items():
        for row, why in column.errors.items():
            reasons[row] = f"{reasons[row]}; {name}: {why}" if row in reasons else f"{name}: {why}"
    return reasons


def _error_column(batch: pa.RecordBatch, decoded: dict[str, Decoded]) -> pa.Array:
    """For each bad row the reason, and the bytes of what is bad."""
    import pyarrow as pa

    reasons = _reasons(decoded)
    if not reasons:
        return pa.nulls(batch.num_rows, _error_kind())
    values: list[dict[str, Any] | None] = [None] * batch.num_rows
    for row, why in reasons.items():
        bad = {
            name: batch.column(name)[row].as_py() for name, column in decoded.items() if row in column.errors
        }
        values[row] = {"reason": why, **bad}
    return pa.array(values, _error_kind())


def _divided(
    batch: pa.RecordBatch, good: pa.RecordBatch, reasons: dict[int, str], rejects_schema: pa.Schema
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    import pyarrow as pa

    rows = sorted(reasons)
    rejected = batch.take(pa.array(rows))
    columns = [*rejected.columns, pa.array([reasons[row] for row in rows], pa.string())]
    kept = pa.array([row for row in range(batch.num_rows) if row not in reasons], pa.int64())
    return good.take(kept), pa.RecordBatch.from_arrays(columns, schema=rejects_schema)
