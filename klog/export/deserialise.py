"""Decodes keys and values to typed columns, batch by batch, between reading and writing.

A `Decoding` says how the bytes of one column become values; it is plain text, so that all tasks of a job do
the same. `klog.export.decoders.choose.resolve_decoding` makes it once for each job from what the user
requested (a file, a directory of schemas, a schema to be inferred). Bad values are never dropped: their rows
stay, or are rejected, with the reason and the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from klog.export.decoders.choose import decoder_of
from klog.export.decoders.decoder import Decoder
from klog.export.decoders.decoding import RAW, Decoding

if TYPE_CHECKING:
    import pyarrow as pa

ERROR_COLUMN: Final = "_error"


class BadRecords(StrEnum):
    """What to do with a record whose key or value cannot be decoded."""

    COLUMN = "column"
    """Keep it, with null for the bad column and the reason in `_error`."""
    REJECT = "reject"
    """Reject it: it is written to `_rejects` with its bytes."""


class TableOfRows:
    """Makes rows, and handles those that could not be decoded in one of the two ways of `BadRecords`."""

    def __init__(self, bad_records: BadRecords) -> None:
        self._bad_records = bad_records

    def _with_errors(self, decoded: pa.Schema) -> pa.Schema:
        """The schema, with the error column if there is one."""
        import pyarrow as pa

        if self._bad_records is BadRecords.REJECT:
            return decoded
        return decoded.append(pa.field(ERROR_COLUMN, _error_kind()))

    def rejects_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """The schema of rejected rows: the columns as they were read, and the reason."""
        import pyarrow as pa

        return input_schema.append(pa.field(ERROR_COLUMN, pa.string()))

    def _separate(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[pa.Array],
        schema: pa.Schema,
        reasons: Mapping[int, str],
        bad_columns: Sequence[str] | Mapping[int, Sequence[str]],
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The decoded `columns` as a batch of `schema`, and the rejected rows of `batch` (None if there are
        none).

        `reasons` says for each bad row what is wrong, and `bad_columns` in which columns (for all bad rows,
        or for each).
        """
        import pyarrow as pa

        if self._bad_records is BadRecords.COLUMN:
            errors = _error_column(batch, reasons, bad_columns)
            return pa.RecordBatch.from_arrays([*columns, errors], schema=schema), None
        good = pa.RecordBatch.from_arrays(list(columns), schema=schema)
        if not reasons:
            return good, None
        rows = sorted(reasons)
        rejected = batch.take(pa.array(rows))
        why = pa.array([reasons[row] for row in rows], pa.string())
        kept = pa.array([row for row in range(batch.num_rows) if row not in reasons], pa.int64())
        rejects = pa.RecordBatch.from_arrays(
            [*rejected.columns, why], schema=self.rejects_schema(batch.schema)
        )
        return good.take(kept), rejects


def _error_kind() -> pa.DataType:
    import pyarrow as pa

    return pa.struct(
        [pa.field("reason", pa.string()), pa.field("key", pa.binary()), pa.field("value", pa.binary())]
    )


def _error_column(
    batch: pa.RecordBatch,
    reasons: Mapping[int, str],
    bad_columns: Sequence[str] | Mapping[int, Sequence[str]],
) -> pa.Array:
    """The error column: for each bad row the reason and the bytes of the bad columns."""
    import pyarrow as pa

    if not reasons:
        return pa.nulls(batch.num_rows, _error_kind())
    values: list[dict[str, Any] | None] = [None] * batch.num_rows
    for row, why in reasons.items():
        names = bad_columns[row] if isinstance(bad_columns, Mapping) else bad_columns
        values[row] = {"reason": why, **{name: batch.column(name)[row].as_py() for name in names}}
    return pa.array(values, _error_kind())


class Deserialiser(TableOfRows):
    """Decodes the keys and values of record batches. Raises UsageError for an invalid schema.

    It is not safe to use from several threads at a time.
    """

    def __init__(
        self, key: Decoding = RAW, value: Decoding = RAW, bad_records: BadRecords = BadRecords.COLUMN
    ) -> None:
        super().__init__(bad_records)
        found = {"key": decoder_of(key), "value": decoder_of(value)}
        self._decoders: dict[str, Decoder] = {
            name: decoder for name, decoder in found.items() if decoder is not None
        }

    @property
    def decodes_nothing(self) -> bool:
        """Whether both columns stay as they are."""
        return not self._decoders

    def schema(self, input_schema: pa.Schema) -> pa.Schema:
        """The schema of decoded batches."""
        import pyarrow as pa

        if self.decodes_nothing:
            return input_schema
        fields = [
            field.with_type(self._decoders[field.name].kind) if field.name in self._decoders else field
            for field in input_schema
        ]
        return self._with_errors(pa.schema(fields))

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The batch with its columns decoded, and the rejected rows (None if there are none)."""
        if self.decodes_nothing:
            return batch, None
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        reasons: dict[int, str] = {}
        bad_columns: dict[int, list[str]] = {}
        for name in [name for name in self._decoders if name in columns]:
            columns[name], errors = self._decoders[name].decode(columns[name])
            for row, why in errors.items():
                reasons[row] = f"{reasons[row]}; {name}: {why}" if row in reasons else f"{name}: {why}"
                bad_columns.setdefault(row, []).append(name)
        schema = self.schema(batch.schema)
        return self._separate(batch, list(columns.values()), schema, reasons, bad_columns)
