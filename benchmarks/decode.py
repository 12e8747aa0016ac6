"""Decodes a segment to Arrow and prints the records per second: `python -m benchmarks.decode FILE`.

It measures the CPU seconds of this process while klog reads, checks and decodes. A first pass does not count:
it loads modules that are imported late and fills the page cache.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa

from klog.storage.reading.segment import Segment


def main() -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    _decode(Path(sys.argv[1]))
    start_s = time.process_time()
    count = _decode(Path(sys.argv[1]))
    print(count / (time.process_time() - start_s))


def _decode(file: Path) -> int:
    return sum(batch.num_rows for batch in Segment(file).arrow_batches())


if __name__ == "__main__":
    main()
