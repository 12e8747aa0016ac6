"""Writes a table that is in memory to Parquet with pyarrow: the limit for an export.

`load TABLE.parquet TABLE.arrow` prepares the table. If the source is a directory, the table has the rows of
all its files, without the columns that its directory names are. `write TABLE.arrow TABLE.parquet` is the part
that is measured; `write-as-export` encodes as `klog export` does. `count TABLE.parquet TABLE.arrow` prints
the number of rows of both.
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.parquet as pq


def load(source: str, target: str) -> None:
    """Converts Parquet to an Arrow file, which `write` maps into memory."""
    # Imported here because `write` is measured and does not need it.
    import pyarrow.dataset as ds  # noqa: PLC0415

    rows = ds.dataset(source, format="parquet", partitioning=None)
    with pa.OSFile(target, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)


def write(source: str, target: str) -> None:
    """Writes the mapped table to Parquet."""
    with pa.memory_map(source) as mapped:
        pq.write_table(pa.ipc.open_file(mapped).read_all(), target, compression="zstd")


def write_as_export(source: str, target: str) -> None:
    """Writes the mapped table to Parquet, with the row groups and encodings of `klog export`."""
    # Imported here because `write` is measured and does not need it.
    from klog.export.writers import ROW_GROUP_BYTES, parquet_settings  # noqa: PLC0415

    with pa.memory_map(source) as mapped:
        rows = pa.ipc.open_file(mapped).read_all()
        group_rows = max(1, rows.num_rows * ROW_GROUP_BYTES // rows.nbytes)
        settings = parquet_settings(rows.slice(0, group_rows))
        with pq.ParquetWriter(target, rows.schema, compression="zstd", **settings) as writer:
            writer.write_table(rows, row_group_size=group_rows)


def count(parquet: str, arrow: str) -> None:
    """Prints the number of rows of both."""
    import pyarrow.dataset as ds  # noqa: PLC0415

    with pa.memory_map(arrow) as mapped:
        theirs = pa.ipc.open_file(mapped).read_all().num_rows
    print(ds.dataset(parquet, format="parquet", partitioning=None).count_rows(), theirs)


if __name__ == "__main__":
    {"load": load, "write": write, "write-as-export": write_as_export, "count": count}[sys.argv[1]](
        *sys.argv[2:]
    )
