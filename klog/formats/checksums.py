"""The two checksums of the log: CRC-32C (magic 2, producer snapshots) and CRC-32 (magic 0 and 1).

Both are libraries' work. `crc32c` reads any buffer without copying at memory speed; where that package
has no wheel, crcmod computes the same polynomial (and serves the tests as an independent oracle).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import zlib
from collections.abc import Callable
from typing import Any

Bytes = bytes | bytearray | memoryview
Checksum = Callable[[Any], int]


def _crc32c_of_extension() -> Checksum | None:
    # The package's __init__ imports importlib.metadata for its version: 30 of the 35 ms that it takes.
    # Loading its extension module alone leaves a small dump instant.
    package = importlib.util.find_spec("crc32c")
    if package is None or not package.submodule_search_locations:
        return None
    folder = next(iter(package.submodule_search_locations))
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = os.path.join(folder, "_crc32c" + suffix)
        if os.path.exists(path):
            spec = importlib.util.spec_from_file_location("crc32c._crc32c", path)
            if spec is None or spec.loader is None:
                return None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            compute: Checksum | None = getattr(module, "crc32c", None)
            return compute
    return None


def crc32c_by_crcmod(data: Bytes) -> int:
    """CRC-32C by crcmod: the fallback, and the independent oracle of the tests (slow without its C part)."""
    import crcmod.predefined

    return int(crcmod.predefined.mkPredefinedCrcFun("crc-32c")(bytes(data)))


def _choose_crc32c() -> Checksum:
    found = _crc32c_of_extension()
    if found is not None:
        return found
    try:
        from crc32c import crc32c as packaged
    except ImportError:
        return crc32c_by_crcmod
    return packaged


crc32c: Checksum = _choose_crc32c()
"""Unsigned CRC-32C (Castagnoli) of a buffer, not copied."""


def _choose_crc32() -> Checksum:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.crc32
    compute: Checksum = isal_zlib.crc32
    return compute


crc32: Checksum = _choose_crc32()
"""Unsigned CRC-32 (IEEE) of a buffer, not copied; isal's where it is installed, else zlib's."""
