"""Finds out whether segments have changed since they were planned, from a few KiB of each.

A fingerprint covers the first and the last bytes of the planned part of a segment. Appending to the segment
changes neither. Compaction, truncation and recovery change the batches or the length there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klog.formats.checksums import crc32c
from klog.formats.errors import StorageError
from klog.replicas.concurrency import map_concurrently
from klog.replicas.files import is_remote, open_input
from klog.replicas.splits import Split
from klog.storage.files.files import read_at

_SAMPLE_BYTES: Final = 4096


def fingerprints(splits: Iterable[Split]) -> dict[str, str | None]:
    """The fingerprint of each file, in the order of the names; None for a file that cannot be read."""
    ranges = _planned_ranges(splits)
    files = sorted(ranges)
    found = map_concurrently(
        lambda file: _fingerprint(file, *ranges[file]), files, remote=any(map(is_remote, files))
    )
    return dict(zip(files, found, strict=True))


def changed(
    splits: Iterable[Split],
    recorded: Mapping[str, str | None],
    all_splits: Iterable[Split],
    find: Callable[[Iterable[Split]], Mapping[str, str | None]] = fingerprints,
) -> list[str]:
    """The files of `splits` that have changed since `all_splits` were planned; `find` gives fingerprints."""
    files = {split.file for split in splits}
    now = find(split for split in all_splits if split.file in files)
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
            head = read_at(opened, start_bytes, sample_bytes)
            tail = read_at(opened, end_bytes - sample_bytes, sample_bytes)
    except StorageError:
        return None
    return f"{len(head) + len(tail)}:{crc32c(head + tail):08x}"
