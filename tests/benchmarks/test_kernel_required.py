"""Benchmarks measure the klog that users install, not its pure-Python twins."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.measure import BenchmarkError
from benchmarks.package import require_compiled

VERSION = (sys.executable, "-c", "from klog.commands.main import main; main()", "--version")


def test_a_klog_on_its_twins_is_not_measured() -> None:
    require_compiled(VERSION, {**os.environ, "KLOG_PURE_PYTHON": ""}, broker=False)
    with pytest.raises(BenchmarkError, match="without its compiled kernel"):
        require_compiled(VERSION, {**os.environ, "KLOG_PURE_PYTHON": "1"}, broker=False)


def test_a_klog_that_does_not_run_is_not_measured() -> None:
    with pytest.raises(BenchmarkError):
        require_compiled((sys.executable, "-c", "raise SystemExit(3)"), os.environ, broker=False)
