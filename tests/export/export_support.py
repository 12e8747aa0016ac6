"""Exports as tests run and read them: jobs in this process, and the rows of all files of an output."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from pyarrow import orc

from klog.export.options import ReadOptions
from klog.export.report import Report
from klog.export.run_export import RunOptions, run_export
from klog.export.schema import METADATA_COLUMNS
from klog.export.split_export import ExportJob
from klog.replicas.splits import Plan

EVERYTHING = {"include_headers": True, "metadata_columns": METADATA_COLUMNS}


class Unwatched:
    """Nobody looks at the progress."""

    def planned(self, plan: Plan, pending_bytes: int, what: str) -> None:
        pass

    def advanced(self, size_bytes: int) -> None:
        pass


def job_of(
    source: Path | Sequence[Path], output: Path | str, *, read: dict[str, Any] | None = None, **how: Any
) -> ExportJob:
    """A job that exports `source`; `read` are fields of `ReadOptions`, the others of `ExportJob`."""
    paths = [source] if isinstance(source, Path) else source
    return ExportJob(ReadOptions(tuple(map(str, paths)), **(read or {})), str(output), **how)


def export(
    source: Path | Sequence[Path],
    output: Path | str,
    *,
    read: dict[str, Any] | None = None,
    resume: bool = False,
    verify: bool = False,
    processes: int = 1,
    **how: Any,
) -> Report:
    """Run a job to its end."""
    job = job_of(source, output, read=read, **how)
    return run_export(job, RunOptions(processes, resume=resume, verify=verify), Unwatched())


def data_files(output: Path) -> list[Path]:
    """The files of tables that a reader such as Spark would find: none below a name with `_` or `.`."""
    return sorted(
        path
        for path in output.rglob("*")
        if path.is_file() and not any(name.startswith(("_", ".")) for name in path.relative_to(output).parts)
    )


def tree(output: Path) -> dict[str, bytes]:
    """Every file below a directory, with its bytes."""
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def table_rows(output: Path) -> list[dict[str, Any]]:
    """All rows of all files, with the columns that their directories are; timestamps as microseconds."""
    rows: list[dict[str, Any]] = []
    for path in data_files(output):
        levels = dict(name.split("=", 1) for name in path.relative_to(output).parts[:-1])
        if "partition" in levels:
            levels["partition"] = int(levels["partition"])  # type: ignore[assignment]
        rows += [levels | row for row in file_rows(path)]
    return rows


def file_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of one file."""
    if ".jsonl" in path.suffixes:
        return _json_rows(path)
    # By handle: given a path, pyarrow would take columns from the names of its directories.
    with path.open("rb") as file:
        table = orc.ORCFile(file).read() if path.suffix == ".orc" else pq.ParquetFile(file).read()
    if "timestamp" in table.schema.names:
        at = table.schema.get_field_index("timestamp")
        times = table.column(at).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        table = table.set_column(at, "timestamp", times)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _json_rows(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    rows = [json.loads(line) for line in data.splitlines()]
    for row in rows:
        for name in ("key", "value"):
            row[name] = _bytes(row[name])
        for header in row.get("headers") or []:
            header["value"] = _bytes(header["value"])
    return rows


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By topic, partition and offset."""
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
