"""Whether segments are still those that a plan was made for, told by a few KiB of each.

A fingerprint covers the first and the last bytes of what is planned of a segment. Appending changes neither;
compaction, truncation and recovery, which put other batches or another length there, do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Final

from klog.formats.checksums import crc32c
from klog.formats.errors import StorageError
from klog.spark.files import is_remote, open_input
from klog.spark.splits import Split

_SAMPLE_BYTES: Final = 4096
_REQUESTS: Final = 16
"""At once, of remote files: each waits for the network."""


def fingerprints(splits: Iterable[Split]) -> dict[str, str | None]:
    """A fingerprint of each file, in the order of their names; None for one that cannot be read."""
    ranges = _planned_ranges(splits)
    files = sorted(ranges)
    if any(map(is_remote, files)):
        with ThreadPoolExecutor(_REQUESTS) as pool:
            return dict(
                zip(files, pool.map(lambda file: _fingerprint(file, *ranges[file]), files), strict=True)
            )
    return {file: _fingerprint(file, *ranges[file]) for file in files}


def changed(
    splits: Iterable[Split], recorded: Mapping[str, str | None], all_splits: Iterable[Split]
) -> list[str]:
    """The files of `splits` that are not what they were when `all_splits` were planned."""
    files = {split.file for split in splits}
    now = fingerprints(split for split in all_splits if split.file in files)
    return [file for file, fingerprint in now.items() if fingerprint != recorded.get(file)]


def _planned_ranges(splits: Iterable[Split]) -> dict[str, tuple[int, int]]:
    ranges: dict[str, tuple[int, int]] = {}
    for split in splits:
        start, end = ranges.get(split.file, (split.start_bytes, split.end_bytes))
        ranges[split.file] = min(start, split.start_bytes), max(end, split.end_bytes)
    return ranges


def _fingerprint(file: str, start_bytes: int, end_bytes: int) -> str | None:
    sample_bytes = min(_SAMPLE_BYTES, end_bytes - start_bytes)
    try:
        with open_input(file) as opened:
            head = _read_exactly(opened, start_bytes, sample_bytes)
            tail = _read_exactly(opened, end_bytes - sample_bytes, sample_bytes)
    except StorageError:
        return None
    return f"{len(head) + len(tail)}:{crc32c(head + tail):08x}"


def _read_exactly(file: BinaryIO, position_bytes: int, wanted_bytes: int) -> bytes:
    """The bytes from a position on, fewer only where the file ends."""
    file.seek(position_bytes)
    parts = []
    while wanted_bytes > 0 and (part := file.read(wanted_bytes)):
        parts.append(part)
        wanted_bytes -= len(part)
    return b"".join(parts)
