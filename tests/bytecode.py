"""Compiles the tests and klog once, before the workers of pytest-xdist start.

All workers collect all tests, at the same time. In a fresh checkout each of them would compile klog, and
rewrite the asserts of all tests, which takes most of the time of a collection.
"""

from __future__ import annotations

import compileall
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests import tiers

KLOG: Final = tiers.TESTS.parent / "klog"


def keep_what_is_compiled() -> None:
    """Let this process and those that it starts write bytecode, whatever PYTHONDONTWRITEBYTECODE says.

    Without it every klog command that a test starts compiles klog again.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def compile_all(config: pytest.Config, paths: Sequence[Path]) -> None:
    """Write the bytecode of klog, and that of test modules, whose asserts are rewritten by all cores."""
    cores = os.cpu_count() or 1
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_rewrite, args=(config, paths[at::cores])) for at in range(cores)]
    for process in processes:
        process.start()
    compileall.compile_dir(KLOG, quiet=2)
    for process in processes:
        process.join()


def _rewrite(config: pytest.Config, paths: Sequence[Path]) -> None:
    try:
        # pytest has no public function for this. Without these, each worker does it for itself.
        from _pytest.assertion.rewrite import (
            PYC_TAIL,
            _read_pyc,
            _rewrite_test,
            _write_pyc,
            assertstate_key,
            get_cache_dir,
        )
    except ImportError:
        return
    state = config.stash[assertstate_key]
    for path in paths:
        directory = get_cache_dir(path)
        directory.mkdir(parents=True, exist_ok=True)
        compiled = directory / (path.stem + PYC_TAIL)
        if _read_pyc(path, compiled) is None:
            source_hash, code = _rewrite_test(path, config)
            _write_pyc(state, code, source_hash, compiled)


def test_modules(tier: str) -> list[Path]:
    """The modules whose asserts pytest rewrites, if it runs `tier`."""
    return [
        path
        for path in sorted(tiers.TESTS.rglob("*.py"))
        if (path.name == "conftest.py" or path.name.startswith("test_")) and not tiers.has_none(tier, path)
    ]
