"""What tests/bytecode.py compiles is what pytest would compile, and pytest uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import bytecode, tiers

TEST = """
def test_two():
    assert {word!r} == "two"
"""


def modification_times(paths: Sequence[Path]) -> list[int]:
    return [path.stat().st_mtime_ns for path in paths]


def run(directory: Path, **environment: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--disable-plugin-autoload",
        str(directory),
    ]
    path = os.pathsep.join((str(tiers.TESTS.parent), os.environ.get("PYTHONPATH", "")))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(directory / "pyc"), **environment}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)
    return done.stdout


def test_pytest_takes_the_rewritten_test_and_rewrites_it_after_an_edit(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(TEST.format(word="one"))
    conftest = tmp_path / "conftest.py"
    conftest.write_text(
        "import pathlib\nfrom tests import bytecode\n\n"
        "def pytest_sessionstart(session):\n"
        f"    bytecode._rewrite(session.config, [pathlib.Path({str(test)!r})])\n"
        f"    assert list(pathlib.Path({str(tmp_path)!r}, 'pyc').rglob('test_it.*pytest*.pyc'))\n"
    )
    assert "assert 'one' == 'two'" in run(tmp_path)
    (compiled,) = (tmp_path / "pyc").rglob("test_it.*pytest*.pyc")
    written = modification_times([compiled])
    assert "1 failed" in run(tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert modification_times([compiled]) == written
    test.write_text(TEST.format(word="two"))
    assert "1 passed" in run(tmp_path)


@pytest.mark.parametrize("tier", tiers.TIERS)
def test_what_a_tier_leaves_out_is_not_compiled(tier: str) -> None:
    compiled = bytecode.test_modules(tier)
    assert (Path(__file__) in compiled) == (tier != tiers.REST)
    assert (tiers.TESTS / "spark" / "conftest.py" in compiled) == (tier != tiers.QUICK)


def test_commands_that_tests_start_may_write_bytecode() -> None:
    assert not sys.dont_write_bytecode
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
