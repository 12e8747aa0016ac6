"""Decodes a segment to Arrow and prints the records per second: `python -m benchmarks.decode FILE`.

The clock runs while klog reads, checks and decodes; the start of Python and the imports are not counted.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa

from klog.storage.segment import Segment


def main() -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    start_s = time.perf_counter()
    count = sum(batch.num_rows for batch in Segment(Path(sys.argv[1])).arrow_batches())
    print(count / (time.perf_counter() - start_s))


if __name__ == "__main__":
    main()
