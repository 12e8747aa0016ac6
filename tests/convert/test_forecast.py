"""What a conversion needs is foretold from some batches."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

from klog.convert.forecast import forecast
from klog.convert.options import ConvertOptions
from klog.convert.planning import plan_partition
from klog.convert.run_convert import pool, run_convert
from klog.formats.errors import KlogError
from tests.corpora import FIXTURES


def ticking() -> Callable[[], float]:
    """A clock that goes on by a second each time it is read."""
    ticks = count()
    return lambda: float(next(ticks))


def test_a_forecast_is_what_the_conversion_then_needs(tmp_path: Path) -> None:
    source = FIXTURES / "k08-codecs" / "logs" / "t-multi-0"
    directory = str(shutil.copytree(source, tmp_path / source.name))
    plan = plan_partition(directory, directory, ConvertOptions(converts_active=True), high_watermark=None)
    found = forecast([plan], ticking())
    assert (found.size_bytes, found.seconds) == (plan.convertible_bytes, 1.0)
    ((_, outcome),) = run_convert([plan], pool(1))
    assert not isinstance(outcome, KlogError)
    assert found.converted_bytes == outcome.new_bytes


def test_nothing_to_convert_needs_nothing() -> None:
    assert forecast([], ticking()) == (0, 0, 0.0)
