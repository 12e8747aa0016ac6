"""The limit for an export: pyarrow writing a table that it finds ready in memory.

`... load TABLE.parquet TABLE.arrow` gets the table ready; `... write TABLE.arrow TABLE.parquet` is measured.
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.parquet as pq


def load(source: str, target: str) -> None:
    """Parquet to an Arrow file, which `write` maps into memory."""
    table = pq.read_table(source)
    with pa.OSFile(target, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write(source: str, target: str) -> None:
    """The mapped table to Parquet."""
    with pa.memory_map(source) as mapped:
        pq.write_table(pa.ipc.open_file(mapped).read_all(), target, compression="zstd")


if __name__ == "__main__":
    {"load": load, "write": write}[sys.argv[1]](*sys.argv[2:])
