"""Bytes move between brokers and between log directories under load, as fast as throttles allow.

KLOG_TEST_MOVED_MIB says how many; `python -m tests.cluster.moving` moves as many as asked for, and reports.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.moving import MIB, Growth, Moved, run
from tests.cluster.world import kinds
from tests.peers.kafka import KafkaPeer

SIZE_BYTES: Final = int(os.environ.get("KLOG_TEST_MOVED_MIB", "64")) * MIB
LIMIT: Final = max(SIZE_BYTES // 8, 1)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mix", ["klog,klog,klog"])
def test_replicas_move_under_load_as_fast_as_allowed(mix: str, tmp_path: Path, kafka3: KafkaPeer) -> None:
    """A busy machine may be slower than the limit. Nobody may be faster."""
    said: list[object] = []
    between_brokers, between_directories = run(tmp_path, kafka3, kinds(mix), SIZE_BYTES, LIMIT, said.append)
    for each in (between_brokers, between_directories):
        assert each.size_bytes >= SIZE_BYTES
        assert each.rate_to_limit < 1.1, each
    assert said


def test_growth_is_measured_from_the_first_byte_to_the_last(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    segment = directory / "0.log"
    segment.write_bytes(b"old")
    growth = Growth(lambda: iter([directory]))
    growth.samples += [(10.0, 3), (11.0, 3), (12.0, 1003), (16.0, 2003), (17.0, 2003), (18.0, 2003)]
    growth.samples[0] = (9.0, 3)
    moved = growth.moved("a test", 200)
    assert moved == Moved("a test", 2000, 5.0, 200)
    assert moved.rate_to_limit == 2.0
