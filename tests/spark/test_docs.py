"""What docs/spark.md shows in Python runs as written, and shows what klog has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from klog.export.options_parsing import OPTION_NAMES
from klog.spark.source import MAX_OFFSETS, PUSH_FILTERS
from tests.corpora import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (REPOSITORY / "docs" / "spark.md").read_text("utf-8")


def test_the_examples_run_one_after_the_other(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPOSITORY)
    names: dict[str, object] = {"spark": spark}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block.replace("fixtures/", f"{REPOSITORY}/fixtures/"), "docs/spark.md", "exec"), names)
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    shown = capsys.readouterr().out
    assert "|  g-a|        1|   40|" in shown
    assert shown.splitlines()[-2:] == ["10", "80"]


def test_every_option_is_documented() -> None:
    told = set(re.findall(r"`([\w.]+)`", PAGE))
    same = {"isolation": "kafka.isolation.level"}
    assert {same.get(name, name) for name in OPTION_NAMES} <= told
    assert {MAX_OFFSETS, PUSH_FILTERS} <= told
