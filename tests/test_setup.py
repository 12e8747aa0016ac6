"""A second build compiles only what has changed, and packs nothing that it does not compile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KERNEL = "klog/server/network/_file_sending.pyx"
MODULES = ("formats/varints.py", "storage/log/run_limits.py")
YEAR_S = 365 * 24 * 3600

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of klog with one kernel and two compiled modules, after a first build."""
    checkout = tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, checkout)
    for source in (KERNEL, *(f"klog/{name}" for name in MODULES)):
        (checkout / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, checkout / source)
    write_setup(checkout, MODULES)
    build(checkout)
    assert compiled(checkout) == {"_cython", "_file_sending", "varints", "run_limits"}
    return checkout


@pytest.fixture
def checkout(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "checkout")


def write_setup(checkout: Path, modules: tuple[str, ...]) -> None:
    """The real setup.py with a shorter list of modules."""
    text = (ROOT / "setup.py").read_text()
    listed = "".join(f'    "{name}",\n' for name in modules)
    text, replaced = re.subn(r"(?ms)^COMPILED_MODULES = \(\n.*?^\)", f"COMPILED_MODULES = (\n{listed})", text)
    assert replaced == 1
    (checkout / "setup.py").write_text(text)


def build(checkout: Path) -> None:
    """Builds as pip does: in a new process, in the directory `build` of the checkout."""
    env = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-P", "setup.py", "-q", "build_ext"]
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def compiled(checkout: Path) -> set[str]:
    """The names of the extension modules that were built."""
    return {path.name.split(".")[0] for path in (checkout / "build").rglob("lib*/klog/**/*.so")}


def files_of_builds(checkout: Path) -> list[Path]:
    return [path for path in (checkout / "build").rglob("*") if path.is_file()]


def age(checkout: Path) -> None:
    """All files become a year older, so that Cython's own files are newer, as in each environment of pip."""
    for path in checkout.rglob("*"):
        if path.is_file():
            seconds = path.stat().st_mtime - YEAR_S
            os.utime(path, (seconds, seconds))


def test_a_second_build_compiles_only_what_has_changed(checkout: Path) -> None:
    age(checkout)
    before = {path: path.stat().st_mtime_ns for path in files_of_builds(checkout)}
    (checkout / "klog" / MODULES[0]).touch()
    build(checkout)
    changed = {
        path.name.split(".")[0]
        for path in files_of_builds(checkout)
        if path.stat().st_mtime_ns != before.get(path)
    }
    assert changed == {"varints"}


def test_a_module_that_is_no_longer_listed_leaves_the_package(checkout: Path) -> None:
    write_setup(checkout, MODULES[1:])
    build(checkout)
    assert compiled(checkout) == {"_cython", "_file_sending", "run_limits"}
