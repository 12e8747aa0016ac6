"""The limit for an export:

pyarrow writing a table that it finds ready in memory. `... TABLE.arrow OUTPUT.parquet`
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.parquet as pq


def main() -> None:
    with pa.memory_map(sys.argv[1]) as source:
        pq.write_table(pa.ipc.open_file(source).read_all(), sys.argv[2], compression="zstd")


if __name__ == "__main__":
    main()
