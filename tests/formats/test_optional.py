"""Without pyarrow, klog imports and works. What makes tables says how to install it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora import FIXTURES

SEGMENT = FIXTURES / "k39-codecs/logs/t-gzip-0/00000000000000000000.log"
CURE = f"{sys.executable} -m pip install 'klog[arrow]'"

# A finder before all others, which finds no pyarrow.
WITHOUT = """
import importlib.util, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'pyarrow':
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Missing())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == 'pyarrow' else found(name, package)
"""


def run_without_pyarrow(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + text, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def klog(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_without_pyarrow("from klog.commands.main import main; main()", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", SEGMENT.parent, "--output", "out"),
        ("export", SEGMENT.parent, "--output", "out", "--dry-run"),
        ("dump-segment", "--format", "parquet", "--output", "out.parquet", SEGMENT),
    ],
)
def test_a_command_that_makes_tables_says_what_to_install(
    arguments: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = klog(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert CURE in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("dump-segment", "--summary", SEGMENT),
        ("dump-segment", "--format", "table", SEGMENT),
        ("dump-segment", "--format", "jsonl", SEGMENT),
        ("dump-segment", "--files", SEGMENT, "--print-data-log"),
        ("verify", SEGMENT.parent),
        ("rebuild-index", "--check", SEGMENT.parent),
        ("recover", "--dry-run", SEGMENT.parent),
        ("clean", "--status", SEGMENT.parent),
        ("formats", "time-index"),
        ("export", "--help"),
        ("--version",),
    ],
)
def test_everything_else_works(arguments: tuple[object, ...]) -> None:
    done = klog(*arguments)
    assert (done.returncode, done.stdout != "") == (0, True), done.stderr


@pytest.mark.parametrize("call", ["segment.to_arrow()", "segment.arrow_batches()", "partition.to_arrow()"])
def test_tables_of_the_library_say_what_to_install(call: str) -> None:
    text = f"""
import klog
segment = klog.open_segment({str(SEGMENT)!r})
partition = klog.open_partition({str(SEGMENT.parent)!r})
print(len(list(segment.records())))
try:
    {call}
except klog.KlogError as error:
    print(error)
"""
    done = run_without_pyarrow(text)
    assert CURE in done.stdout, done.stderr


def test_a_broker_of_klog_testing_serves() -> None:
    text = """
import klog.testing
with klog.testing.broker() as broker:
    broker.create_topic('t')
print('served', 'pyarrow' in sys.modules)
"""
    assert run_without_pyarrow(text).stdout == "served False\n"
