"""The progress through one file is reported in steps while it is read, and in all it is the file's size."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from klog.export.jobs import ExportJob
from klog.export.options import ReadOptions
from klog.export.planner import plan
from klog.export.split_export import export_split
from klog.jobs.progress import STEP_BYTES, FileProgress
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.storage.repair.index_reports import RebuildOptions
from klog.storage.repair.segment_scan import IndexSettings
from klog.storage.repair.verify import scope_of, verify

BIG_BYTES = 5 * STEP_BYTES


@given(st.integers(0, 10 * STEP_BYTES), st.lists(st.integers(-1, 12 * STEP_BYTES)), st.integers(0, 100))
def test_all_steps_together_are_the_size(size: int, positions: list[int], start: int) -> None:
    reported: list[int] = []
    progress = FileProgress(reported.append, size, start)
    for position in positions:
        progress.reached(position + start)
    progress.finish()
    assert sum(reported) == size
    assert all(step > 0 for step in reported)


def big_segment(directory: Path) -> Path:
    directory.mkdir()
    path = directory / f"{0:020d}.log"
    value = bytes(500_000)
    with path.open("wb") as file:
        offset = 0
        while file.tell() < BIG_BYTES:
            file.write(build_batch([RecordData(offset, offset, None, value)], BatchFields()))
            offset += 1
    return path


def test_verify_reports_progress_within_one_segment(tmp_path: Path) -> None:
    size = big_segment(tmp_path / "t-0").stat().st_size
    scope = scope_of([str(tmp_path / "t-0")])
    for processes in (1, 2):
        reported: list[int] = []
        options = RebuildOptions(now_ms=0, settings=IndexSettings(), check=True)
        list(verify(scope, options, processes=processes, on_bytes=reported.append))
        assert sum(reported) == size
        assert len(reported) >= BIG_BYTES // STEP_BYTES - 1


def test_export_reports_progress_within_one_split(tmp_path: Path) -> None:
    size = big_segment(tmp_path / "t-0").stat().st_size
    options = ReadOptions((str(tmp_path / "t-0"),), target_split_bytes=1 << 30)
    (split,) = plan(options).splits
    reported: list[int] = []
    export_split(split, ExportJob(options, str(tmp_path / "out")), on_progress=reported.append)
    assert sum(reported) == size
    assert len(reported) >= BIG_BYTES // STEP_BYTES - 1
