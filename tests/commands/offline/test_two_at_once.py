"""Two commands at once on one directory, the first killed at any moment: nothing is lost.

KLOG_TEST_KILLS lets all pairs run, and sets how many moments are tried for each.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

import klog
from tests.corpora import Corpus
from tests.storage.partition_copies import contents

KILLS = int(os.environ.get("KLOG_TEST_KILLS", "0"))
CHANGING = {
    "recover": ("recover", "--yes"),
    "rebuild-index": ("rebuild-index", "--force"),
    "convert": ("convert", "--yes", "--compression", "zstd", "--all"),
    "clean": ("clean", "--yes", "--policy", "compact", "--min-dirty-ratio", "0"),
    "adopt": ("adopt", "--yes", "-o", "broker.id=1"),
}
READING = {"verify": ("verify",), "dump-segment": ("dump-segment",)}
FEW = [
    ("rebuild-index", "recover"),
    ("convert", "recover"),
    ("convert", "verify"),
    ("recover", "dump-segment"),
    ("clean", "recover"),
    ("adopt", "convert"),
]
PAIRS = list(product(CHANGING, CHANGING | READING)) if KILLS else FEW


def started(command: tuple[str, ...], directory: Path) -> subprocess.Popen[str]:
    path = directory.parent if command[0] == "adopt" else directory
    return subprocess.Popen(
        [sys.executable, "-m", "klog", *command, str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def copy(root: Path, *commands: str) -> Path:
    """A partition in a log directory of a broker: without its indexes, unless a command needs them."""
    directory = root / "logs" / "b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, directory)
    identity = "version=0\nbroker.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    (directory.parent / "meta.properties").write_text(identity)
    if "clean" in commands:
        (directory.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    if not {"clean", "adopt"} & set(commands):
        for path in directory.glob("*index"):
            path.unlink()
    return directory


def finished(command: tuple[str, ...], directory: Path) -> None:
    with started(command, directory) as done:
        _, err = done.communicate()
    assert done.returncode == 0, err


def kept(directory: Path, *commands: str) -> object:
    """What may not be lost: the segments, but their records where what is cleaned depends on who came first.

    What is adopted is in the metadata.
    """
    if "adopt" in commands:
        assert (directory.parent / "klog-metadata.sqlite").exists()
    if "clean" in commands:
        records = klog.open_partition(directory).records()
        return [(each.offset, each.key, each.value) for each in records]
    return {name: data for name, data in contents(directory).items() if name.endswith(".log")}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_command_that_is_killed_beside_another_one_loses_nothing(
    first: str, second: str, tmp_path: Path
) -> None:
    chance = random.Random(f"{first} {second}")
    expected = copy(tmp_path / "alone", first, second)
    started_s = time.monotonic()
    finished(CHANGING[first], expected)
    took_s = time.monotonic() - started_s
    if second in CHANGING:
        finished(CHANGING[second], expected)
    for number in range(max(KILLS, 1)):
        directory = copy(tmp_path / str(number), first, second)
        with started(CHANGING[first], directory) as killed:
            time.sleep(chance.uniform(0.3, 1) * took_s)
            with started((CHANGING | READING)[second], directory) as other:
                time.sleep(chance.uniform(0, 0.3) * took_s)
                killed.kill()
                _, err = other.communicate()
        assert "Traceback" not in err
        # The second one has said who holds the directory, or has done its work.
        assert other.returncode == 0 or second in READING or re.search(r"process \d+ \(.*\) holds", err), err
        finished(CHANGING[first], directory)
        if second in CHANGING:
            finished(CHANGING[second], directory)
        assert kept(directory, first, second) == kept(expected, first, second)
        finished(READING["verify"], directory)
