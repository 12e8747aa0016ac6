"""Checks the Python of Spark's workers: it must have klog, and it often is not that of the driver.

PySpark starts its workers with `PYSPARK_PYTHON`, or else with the `python3` that it finds. In a virtual
environment that was not activated, this is another Python.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

PYSPARK_PYTHON: Final = "PYSPARK_PYTHON"
CURE: Final = (
    "set PYSPARK_PYTHON (or spark.pyspark.python) to the Python that klog is installed in, or ship an "
    "environment with --archives: see docs/spark.md"
)
_MISSING: Final = re.compile(r"No module named '(klog|pyarrow)\b")
_TIMEOUT_S: Final = 60.0


def choose_python(settings: SparkConf, environment: MutableMapping[str, str]) -> None:
    """Let the workers on this machine run the Python of this process, if the user has chosen none."""
    chosen = any(settings.contains(f"spark.pyspark.{name}") for name in ("python", "driver.python"))
    if not chosen and str(settings.get("spark.master", "local")).startswith("local"):
        environment.setdefault(PYSPARK_PYTHON, sys.executable)


def require_klog(context: SparkContext) -> None:
    """Raise `UsageError` if the workers' Python cannot import klog; those of other machines are not
    checked."""
    python = shutil.which(context.pythonExec) or context.pythonExec
    # Not by inode: the Python of a virtual environment is a link to that of the system.
    if not str(context.master).startswith("local") or os.path.abspath(python) == sys.executable:
        return
    command = [python, "-c", "import klog"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return  # Spark itself says why it cannot start it
    if done.returncode and b"No module named" in done.stderr:
        raise UsageError(f"Spark's workers run {python}, which has no klog", cure=CURE)


def missing_module(text: str) -> str | None:
    """The module that a failed worker did not have, klog or pyarrow; None if it failed otherwise."""
    found = _MISSING.search(text)
    return None if found is None else found[1]
