"""Reads a file once and computes its checksum: nothing that reads a whole segment can be faster.

Usage: `python -m benchmarks.checksum_pass FILE`.
"""

from __future__ import annotations

import sys

from crc32c import crc32c

CHUNK_BYTES = 1 << 20


def main() -> None:
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    checksum = 0
    with open(sys.argv[1], "rb", buffering=0) as log:
        while size_bytes := log.readinto(buffer):
            checksum = crc32c(view[:size_bytes], checksum)
    print(checksum)


if __name__ == "__main__":
    main()
