"""The two checksums of the log: CRC-32C (magic 2, producer snapshots) and CRC-32 (magic 0 and 1).

Libraries compute both at memory speed, without copying the buffer: `crc32c`, and isal or zlib. If what they
give differs from the stored checksum, that means damage, for which logs are cut and records are refused. So
crcmod, which shares no code with them, computes it again first (`confirm_crc32c`, `confirm_crc32`). A broker
compares them at its start, too (`require_correct_code`). crcmod is imported when it is needed. Without its C
part it computes some MB/s.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import zlib
from collections.abc import Callable
from typing import Any, Final

from klog.formats.errors import ChecksumCodeError

Bytes = bytes | bytearray | memoryview
Checksum = Callable[[Any], int]

_PIECE_BYTES: Final = 1 << 20
# Long enough for the loops that the libraries have for long buffers, and with a rest.
_BLOCK: Final = bytes(range(256)) * 128 + b"rest..."


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


def _choose_crc32c() -> Checksum:
    found = _crc32c_of_extension()
    if found is not None:
        return found
    from crc32c import crc32c as packaged

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


def confirm_crc32c(data: Any, computed: int) -> None:  # noqa: ANN401 (any buffer)
    """Compute the CRC-32C of a buffer, which is not the stored one, by crcmod.

    Raises `ChecksumCodeError` if that gives another one than `crc32c` did.
    """
    _confirm("CRC-32C", data, computed)


def confirm_crc32(data: Any, computed: int) -> None:  # noqa: ANN401 (any buffer)
    """The same for CRC-32."""
    _confirm("CRC-32", data, computed)


def require_correct_code() -> None:
    """Raise `ChecksumCodeError` if the libraries and crcmod do not agree on a fixed block."""
    confirm_crc32c(_BLOCK, crc32c(_BLOCK))
    confirm_crc32(_BLOCK, crc32(_BLOCK))


def _confirm(name: str, data: Any, computed: int) -> None:  # noqa: ANN401 (any buffer)
    compute = _by_crcmod(name)
    expected = 0
    with memoryview(data) as view:
        for at in range(0, len(view), _PIECE_BYTES):
            expected = compute(bytes(view[at : at + _PIECE_BYTES]), expected)
        if computed != expected:
            raise ChecksumCodeError(
                f"this machine's checksum code is wrong: {name} of {len(view)} bytes is {expected} by crcmod,"
                f" but {computed} by the library that klog uses; nothing counts as damaged, and klog stops"
                " here (test memory and processor, install crc32c and isal again, or work on another machine)"
            )


@functools.cache
def _by_crcmod(name: str) -> Callable[[bytes, int], int]:
    import crcmod.predefined

    compute: Callable[[bytes, int], int] = crcmod.predefined.mkPredefinedCrcFun(name.lower())
    return compute
