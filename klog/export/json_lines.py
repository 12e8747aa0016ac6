"""Writes Arrow rows as JSON Lines: one object for each line, its fields in the order of the columns.

As in Spark's JSON, bytes are base64 and times are ISO 8601 in UTC; unlike there, nulls are written. JSON
cannot express NaN and infinities: they are the strings that Spark writes.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from binascii import b2a_base64
from typing import IO, TYPE_CHECKING, Any

from klog.export.outputs import Sink

if TYPE_CHECKING:
    import pyarrow as pa

_LEVEL = 6


class JsonLinesWriter:
    """A `RowWriter` of JSON Lines."""

    held_bytes = 0  # rows are encoded immediately

    def __init__(self, sink: Sink, compression: str) -> None:
        self._sink = _compressed(sink, compression)

    def write(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._sink.write(lines_of(rows))

    def flush(self) -> None:
        """No rows are held."""

    def close(self) -> None:
        self._sink.close()

    def abandon(self) -> None:
        self._sink.close()


def _compressed(sink: Sink, compression: str) -> IO[bytes]:
    if compression == "gzip":
        import gzip

        # The header has no name and no time, so the same rows give the same bytes.
        return gzip.GzipFile("", "wb", _LEVEL, sink, mtime=0)  # type: ignore[return-value]
    if compression == "zstd":
        import zstandard

        return zstandard.ZstdCompressor().stream_writer(sink, closefd=False)  # type: ignore[arg-type]
    return sink  # type: ignore[return-value]


def lines_of(rows: pa.RecordBatch) -> bytes:
    """The rows as lines of UTF-8, each with its newline."""
    names = [json.dumps(name, ensure_ascii=False) for name in rows.schema.names]
    columns = [_texts(column) for column in rows.columns]
    line = "{" + ",".join(f"{name.replace('%', '%%')}:%s" for name in names) + "}\n"
    text = "".join([line % values for values in zip(*columns, strict=True)])
    return text.encode("utf-8", "surrogatepass")


def _texts(column: pa.Array) -> list[str]:
    """Each value of a column as JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.fill_null(column.cast(pa.string()), "null").to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(kind):
        texts = pc.fill_null(pc.binary_join_element_wise('"', _iso(column), '"', ""), "null")
        return texts.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_binary(kind):
        return ["null" if value is None else _base64(value) for value in column.to_pylist()]
    encode = json.JSONEncoder(ensure_ascii=False, default=_plain, separators=(",", ":")).encode
    return [encode(_finite(value)) for value in column.to_pylist()]


def _base64(value: bytes) -> str:
    return f'"{b2a_base64(value, newline=False).decode("ascii")}"'


def _iso(column: pa.Array) -> pa.Array:
    """Timestamps such as `2020-09-13T12:26:40.000Z`, for any year."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
    return pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T"), "Z", "")


def _plain(value: object) -> object:
    """A value of a type that JSON does not have, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, decimal.Decimal):
        return str(value)
    return str(value)


def _finite(value: Any) -> Any:  # noqa: ANN401 (any Arrow value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return value
