"""A Python of Spark's workers without klog is named, with what to do; by default it is the driver's."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from klog.formats.errors import KlogError, UsageError
from klog.spark.worker_python import PYSPARK_PYTHON, choose_python, missing_module, require_klog


@dataclass
class Context:
    """What is asked of a SparkContext."""

    pythonExec: str  # noqa: N815 (Spark's name)
    master: str = "local[2]"


class Settings(dict[str, str]):
    """What is asked of a SparkConf."""

    def contains(self, name: str) -> bool:
        return name in self


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_worker_python_without_klog_is_refused_with_what_to_do(tmp_path: Path) -> None:
    python = script(tmp_path / "python3", f'exec {sys.executable} -I -S "$@"')
    with pytest.raises(UsageError, match="has no klog") as caught:
        require_klog(Context(python))  # type: ignore[arg-type]
    assert python in caught.value.what
    assert "PYSPARK_PYTHON" in (caught.value.cure or "")


def test_a_worker_python_with_klog_is_accepted(tmp_path: Path) -> None:
    require_klog(Context(sys.executable))  # type: ignore[arg-type]
    require_klog(Context(script(tmp_path / "python3", "exit 0")))  # type: ignore[arg-type]


@pytest.mark.parametrize("python", ["no-such-python", "/no/such/python"])
def test_what_cannot_be_asked_is_left_to_spark(python: str) -> None:
    require_klog(Context(python))  # type: ignore[arg-type]
    require_klog(Context(python, "yarn"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "environment", "chosen"),
    [
        ({}, {}, sys.executable),
        ({"spark.master": "local[4]"}, {}, sys.executable),
        ({}, {PYSPARK_PYTHON: "/mine"}, "/mine"),
        ({"spark.pyspark.python": "/mine"}, {}, None),
        ({"spark.master": "yarn"}, {}, None),
    ],
)
def test_workers_on_this_machine_run_the_drivers_python_unless_one_is_chosen(
    settings: dict[str, str], environment: dict[str, str], chosen: str | None
) -> None:
    choose_python(Settings(settings), environment)  # type: ignore[arg-type]
    assert environment.get(PYSPARK_PYTHON) == chosen


def test_a_failed_job_tells_which_module_the_executors_lack() -> None:
    text = "Task failed\norg.apache.spark.X: Traceback\nModuleNotFoundError: No module named 'klog.export'"
    assert missing_module(text) == "klog"
    assert missing_module("ModuleNotFoundError: No module named 'pyarrow'") == "pyarrow"
    assert missing_module("ModuleNotFoundError: No module named 'mine'") is None


def test_the_error_of_such_a_job_says_what_to_do() -> None:
    from pyspark.errors import PySparkException

    from klog.spark.job import _collected

    def collect() -> list[int]:
        raise PySparkException("ModuleNotFoundError: No module named 'klog'")

    with pytest.raises(KlogError, match="the Python of Spark's executors has no klog") as caught:
        _collected(collect)
    assert "PYSPARK_PYTHON" in (caught.value.cure or "")
