"""Decompresses lz4 blocks of segments and compresses them with zstd, by the libraries alone.

It writes nothing, and no conversion of the same batches can be faster.
Usage: `python -m benchmarks.codec_pass DIRECTORY`.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import lz4.frame
import zstandard

HEADER_BYTES = 61
PREFIX_BYTES = 12
CHUNK_BYTES = 8 << 20
LEVEL = 3
_LENGTH = struct.Struct(">i")


def main() -> None:
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    written_bytes = 0
    for path in sorted(Path(sys.argv[1]).glob("*.log")):
        with path.open("rb", buffering=0) as log:
            rest = b""
            while chunk := log.read(CHUNK_BYTES):
                data = memoryview(rest + chunk)
                at = 0
                while at + PREFIX_BYTES <= len(data):
                    end = at + PREFIX_BYTES + _LENGTH.unpack_from(data, at + 8)[0]
                    if end > len(data):
                        break
                    records = lz4.frame.decompress(data[at + HEADER_BYTES : end])
                    written_bytes += len(compressor.compress(records))
                    at = end
                rest = bytes(data[at:])
    print(written_bytes)


if __name__ == "__main__":
    main()
