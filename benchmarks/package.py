"""Builds klog as a package.

A package contains the compiled modules of the broker. An editable install does not have them.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.measure import BenchmarkError

CHECKOUT = Path(__file__).parents[1]
_PACKAGE = CHECKOUT / "build" / "package"


@functools.cache
def packaged_klog() -> Path:
    """The directory of the package, for PYTHONPATH. The package is built if a source is newer."""
    complete = _PACKAGE / "complete"
    if complete.exists() and complete.stat().st_mtime > max(_changed_s()):
        return _PACKAGE
    print("building klog as a package ...", file=sys.stderr)
    shutil.rmtree(_PACKAGE, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(_PACKAGE), "."]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"pip install: {done.stderr.decode()[-1000:]}")
    complete.touch()
    return _PACKAGE


def require_compiled(version_command: Sequence[str], env: Mapping[str, str], *, broker: bool) -> None:
    """Raises BenchmarkError if this klog runs on its pure-Python twins, or (`broker`) interpreted modules.

    Their speed is not that of the klog that users install.
    """
    done = subprocess.run(version_command, env=env, capture_output=True, text=True, check=False)
    if "cython kernel" not in done.stdout:
        raise BenchmarkError(f"klog runs without its compiled kernel: {done.stdout.strip() or done.stderr}")
    if broker and "compiled broker" not in done.stdout:
        raise BenchmarkError(f"klog runs without its compiled broker: {done.stdout.strip()}")


def _changed_s() -> Iterator[float]:
    for path in (CHECKOUT / "setup.py", *(CHECKOUT / "klog").rglob("*")):
        if path.suffix in (".py", ".pyx", ".pxi", ".pxd"):
            yield path.stat().st_mtime
