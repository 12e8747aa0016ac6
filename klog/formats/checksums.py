"""The two checksums of the log: CRC-32C (magic 2, producer snapshots) and CRC-32 (magic 0 and 1).

Libraries compute both. The package `crc32c` reads any buffer at memory speed without copying it. If it has no
wheel for the platform, crcmod computes the same polynomial; tests use crcmod for comparison.
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
    # Only the extension module is loaded: the package's __init__ imports importlib.metadata, which takes 30
    # ms.
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
    """CRC-32C by crcmod: the fallback, and the comparison in tests. It is slow without its C part."""
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
"""Unsigned CRC-32 (IEEE) of a buffer, not copied; by isal if it is installed, else by zlib."""
