"""A klog that runs on its pure-Python kernel says so in one line where it matters, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from tests.corpora import FIXTURES
from tests.swap.klog_process import KlogBroker

LINE = "klog runs on its pure-Python kernel, which is many times slower: KLOG_PURE_PYTHON is set (unset it)"
RUN = "from klog.commands.main import main; main()"


@pytest.fixture(scope="module")
def partition(tmp_path_factory) -> Path:
    """A partition with a long segment."""
    partition = tmp_path_factory.mktemp("logs") / "long-0"
    partition.mkdir()
    with (partition / "00000000000000000000.log").open("wb") as log:
        for offset in range(17):
            log.write(build_batch([RecordData(offset, 0, None, bytes(1 << 20), ())], BatchFields()))
    return partition


def said(*arguments: object, interpreted: bool = True) -> str:
    """What a command writes to stderr."""
    env = {**os.environ, "KLOG_PURE_PYTHON": "1" if interpreted else ""}
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, check=False, text=True, timeout=250)
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("dump-segment", "--format", "kafka"),
        ("dump-segment", "--summary"),
        ("verify",),
        ("rebuild-index", "--check"),
        ("recover", "--dry-run"),
    ],
)
def test_long_work_says_it_once(partition: Path, command: tuple[str, ...]) -> None:
    assert said(*command, partition).count(LINE) == 1


def test_an_export_says_it_once_although_it_verifies_too(partition: Path, tmp_path: Path) -> None:
    text = said("export", partition, "--output", tmp_path / "out", "--jobs", 1, "--verify")
    assert text.count(LINE) == 1


def test_quiet_and_short_work_and_the_compiled_kernel_say_nothing(partition: Path) -> None:
    assert LINE not in said("verify", "--quiet", partition)
    assert LINE not in said("verify", FIXTURES / "k39-codecs/logs/t-gzip-0")
    assert "pure-Python" not in said("verify", partition, interpreted=False)


def test_a_broker_says_it_in_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLOG_PURE_PYTHON", "1")
    with KlogBroker(tmp_path) as broker:
        broker.start()
        broker.stop()
        assert sum(LINE in line for line in broker.complaints) == 1
