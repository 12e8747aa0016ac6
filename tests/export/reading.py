"""Splits of the corpora as tests read them: files, and what Kafka says is in them as the export's rows."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from klog.export.options import ReadOptions
from klog.export.reader import read_split
from klog.formats import names
from klog.replicas.splits import AbortedRange, LostRange, Split
from tests.corpora import JsonObject, PartitionDirectory

EVERY_OFFSET = 2**62


def split_of(
    path: Path,
    *,
    start_bytes: int = 0,
    end_bytes: int | None = None,
    first_offset: int = 0,
    end_offset: int = EVERY_OFFSET,
    aborted: Sequence[AbortedRange] = (),
) -> Split:
    """The whole of one segment file as a split, or the part that is named."""
    directory = names.parse_directory(path.parent.name).partition
    return Split(
        number=0,
        topic=directory.topic,
        partition=directory.partition,
        file=str(path),
        base_offset=names.parse_file(path.name).offset or 0,
        start_bytes=start_bytes,
        end_bytes=path.stat().st_size if end_bytes is None else end_bytes,
        first_offset=first_offset,
        end_offset=end_offset,
        aborted=tuple(aborted),
    )


def read(
    split: Split, options: ReadOptions | None = None, columns: Sequence[str] | None = None
) -> tuple[list[dict[str, Any]], list[LostRange]]:
    """The rows of a split (timestamps as microseconds), and what was lost."""
    lost: list[LostRange] = []
    batches = list(read_split(split, options or ReadOptions(()), columns=columns, on_lost=lost.append))
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows
    return rows_of(batches), lost


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Rows as Python values; a timestamp as the microseconds that it is."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        at = batch.schema.get_field_index("timestamp")
        plain = batch
        if at >= 0:
            plain = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
        rows += plain.to_pylist()
    return rows


TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}


def expected_rows(partition: PartitionDirectory, file: str) -> list[dict[str, Any]]:
    """What Kafka's own reader says of one file, as the rows of an export with all columns."""
    directory = names.parse_directory(partition.name).partition
    return [
        expected_row(line, directory, str(partition.path / file))
        for line in partition.expected_records()
        if line.get("file") == file and "offset" in line and not line["isControl"]
    ]


def expected_row(line: JsonObject, partition: names.TopicPartition, file: str) -> dict[str, Any]:
    """One line of `records.jsonl` as a row; a long value as `Digest`, which equals the value itself."""
    headers = [
        {"key": base64.b64decode(key).decode("utf-8", "replace"), "value": decoded(value)}
        for key, value in line["headers"]
    ]
    return {
        "key": field(line, "key"),
        "value": field(line, "value"),
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": line["offset"],
        "timestamp": line["timestamp"] * 1000,
        "timestampType": TIMESTAMP_TYPES[line["timestampType"]],
        "headers": headers or None,
        "leaderEpoch": line["leaderEpoch"],
        "producerId": line["producerId"],
        "producerEpoch": line["producerEpoch"],
        "sequence": line["sequence"],
        "isTransactional": line["isTransactional"],
        "codec": line["codec"],
        "batchPosition": line["batchPosition"],
        "file": file,
    }


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def field(line: JsonObject, name: str) -> Any:
    """A key or value; of a long one the corpora keep length and digest only."""
    if name in line:
        return decoded(line[name])
    return Digest(line[f"{name}_len"], line[f"{name}_sha256"])


class Digest:
    """Equals the bytes of this length and SHA-256."""

    def __init__(self, length: int, sha256: str) -> None:
        self._length = length
        self._sha256 = sha256

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, bytes)
            and len(other) == self._length
            and hashlib.sha256(other).hexdigest() == self._sha256
        )

    def __repr__(self) -> str:
        return f"<{self._length} bytes with SHA-256 {self._sha256}>"

    __hash__ = None  # type: ignore[assignment]
