"""The examples of docs/testing.md run as written and print the output that is shown."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import klog.testing
from klog.testing import BrokerFailedError
from tests.corpora import REPOSITORY

PAGE = (REPOSITORY / "docs/testing.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEXT = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_for_pytest_passes(tmp_path):
    for block in PYTHON:
        named = re.match(r"# (\w+\.py)\n", block)
        if named:
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"test_orders.py", "conftest.py"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "klog.testing.plugin", "test_orders.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("program", "shown"), [(PYTHON[2], TEXT[0]), (PYTHON[3], TEXT[2])])
def test_an_example_without_pytest_prints_what_is_shown(capfd, program: str, shown: str):
    exec(compile(program, "docs/testing.md", "exec"), {})
    assert capfd.readouterr().out == shown


def test_a_failure_is_reported_as_shown():
    refused = klog.testing.broker({"num.partitions": "many"})
    with pytest.raises(BrokerFailedError) as raised:
        refused.__enter__()
    assert f"klog.testing.process.BrokerFailedError: {raised.value}" == TEXT[1]


@pytest.mark.parametrize("kind", [klog.testing.BrokerProcess, klog.testing.KlogCluster])
def test_every_public_name_is_documented(kind: type):
    made = kind()
    made.close()
    names = {name for name in (*dir(kind), *vars(made)) if not name.startswith("_")}
    assert {name for name in names if not re.search(rf"`{name}\b", PAGE)} == set()
