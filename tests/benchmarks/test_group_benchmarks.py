"""The benchmarks of groups run, at a tiny size, on klog's modules of the checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.broker_groups import GroupSizes, groups
from benchmarks.broker_offsets import offsets
from benchmarks.broker_requests import Options, compare
from benchmarks.rows import Rows

TINY = GroupSizes(members=3, many=4, groups=6, idle_s=0.1)


def test_members_join_and_stay(tmp_path: Path) -> None:
    printed = groups(tmp_path, 1, Rows(), TINY, klog_only=True, checkout=True)
    assert "3 members from join to stable: klog" in printed
    assert "6 groups of one member" in printed


def test_offsets_are_loaded_after_a_restart(tmp_path: Path) -> None:
    printed = offsets(tmp_path, 1, Rows(), (120,), klog_only=True, checkout=True)
    assert "  120 offsets\n    loaded after: klog" in printed
    assert "p99 beside the load: klog" in printed


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
def test_commits_are_sent_and_checked(tmp_path: Path) -> None:
    options = Options(loads=["commit-8x5"], checkout=True, seconds=0.2)
    printed = compare(tmp_path, 1, Rows(), options)
    assert "OffsetCommit, 8 connections, 5 in flight\n    requests/s: klog" in printed
