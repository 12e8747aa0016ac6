"""A batch that the cleaner emptied has no compressed block, whatever codec it names. As in Kafka, that is
not a problem.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

import klog


@pytest.mark.parametrize("codec", range(5))
def test_an_emptied_batch_holds_no_record_and_is_no_problem(tmp_path: Path, codec: int) -> None:
    checked = struct.pack(">hiqqqhii", codec, 4, -1, -1, 7, 0, 3, 0)
    batch = struct.pack(">qiibI", 100, 9 + len(checked), 0, 2, crc32c(checked)) + checked
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(batch)
    problems: list[klog.KlogError] = []
    segment = klog.Segment(path)
    assert list(segment.records(on_problem=problems.append)) == []
    assert [found.count for found in segment.batches(on_problem=problems.append)] == [0]
    assert problems == []
