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


def test_the_example_without_pytest_prints_what_is_shown(capfd):
    exec(compile(PYTHON[-1], "docs/testing.md", "exec"), {})
    assert capfd.readouterr().out == TEXT[0]


def test_a_failure_is_reported_as_shown():
    refused = klog.testing.broker({"num.partitions": "many"})
    with pytest.raises(BrokerFailedError) as raised:
        refused.__enter__()
    assert f"klog.testing.process.BrokerFailedError: {raised.value}" == TEXT[1]


def test_every_public_name_of_the_broker_is_documented():
    process = klog.testing.BrokerProcess()
    process.close()
    names = {name for name in (*vars(klog.testing.BrokerProcess), *vars(process)) if not name.startswith("_")}
    assert {name for name in names if not re.search(rf"`{name}\b", PAGE)} == set()
