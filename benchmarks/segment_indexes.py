"""Writes the indexes of generated segments."""

from __future__ import annotations

from pathlib import Path

from klog.storage.repair.segment_scan import IndexSettings, scan_segment


def write_indexes(log: Path) -> None:
    """Writes the offset index and the time index beside a segment."""
    with log.open("rb") as file:
        scan = scan_segment(file, int(log.stem), IndexSettings())
    log.with_suffix(".index").write_bytes(scan.offset_index)
    log.with_suffix(".timeindex").write_bytes(scan.time_index)
