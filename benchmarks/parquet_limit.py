"""The limit for an export: pyarrow writing a table that it finds ready in memory.

`... load TABLE.parquet TABLE.arrow` gets the table ready (of a directory: all its files, without the columns
that its directories are); `... write TABLE.arrow TABLE.parquet` is measured; `... count A B` counts rows.
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.parquet as pq


def load(source: str, target: str) -> None:
    """Parquet to an Arrow file, which `write` maps into memory."""
    # Here, for `write` is measured and does not need it.
    import pyarrow.dataset as ds  # noqa: PLC0415

    rows = ds.dataset(source, format="parquet", partitioning=None)
    with pa.OSFile(target, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)


def write(source: str, target: str) -> None:
    """The mapped table to Parquet."""
    with pa.memory_map(source) as mapped:
        pq.write_table(pa.ipc.open_file(mapped).read_all(), target, compression="zstd")


def count(parquet: str, arrow: str) -> None:
    """The rows of both."""
    import pyarrow.dataset as ds  # noqa: PLC0415

    with pa.memory_map(arrow) as mapped:
        theirs = pa.ipc.open_file(mapped).read_all().num_rows
    print(ds.dataset(parquet, format="parquet", partitioning=None).count_rows(), theirs)


if __name__ == "__main__":
    {"load": load, "write": write, "count": count}[sys.argv[1]](*sys.argv[2:])
