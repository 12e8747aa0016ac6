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

from tests.corpora import Corpus
from tests.storage.partition_copies import contents

KILLS = int(os.environ.get("KLOG_TEST_KILLS", "0"))
CHANGING = {
    "recover": ("recover", "--yes"),
    "rebuild-index": ("rebuild-index", "--force"),
    "convert": ("convert", "--yes", "--compression", "zstd", "--all"),
}
READING = {"verify": ("verify",), "dump-segment": ("dump-segment",)}
FEW = [
    ("rebuild-index", "recover"),
    ("convert", "recover"),
    ("convert", "verify"),
    ("recover", "dump-segment"),
]
PAIRS = list(product(CHANGING, CHANGING | READING)) if KILLS else FEW


def started(command: tuple[str, ...], directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "klog", *command, str(directory)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def copy(root: Path) -> Path:
    """A partition without its indexes, in a log directory of a broker."""
    directory = root / "logs" / "b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, directory)
    (directory.parent / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    for path in directory.glob("*index"):
        path.unlink()
    return directory


def finished(command: tuple[str, ...], directory: Path) -> None:
    with started(command, directory) as done:
        _, err = done.communicate()
    assert done.returncode == 0, err


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_command_that_is_killed_beside_another_one_loses_nothing(
    first: str, second: str, tmp_path: Path
) -> None:
    chance = random.Random(f"{first} {second}")
    expected = copy(tmp_path / "alone")
    started_s = time.monotonic()
    finished(CHANGING[first], expected)
    took_s = time.monotonic() - started_s
    if second in CHANGING:
        finished(CHANGING[second], expected)
    for number in range(max(KILLS, 1)):
        directory = copy(tmp_path / str(number))
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
        logs = {name: data for name, data in contents(directory).items() if name.endswith(".log")}
        assert logs == {name: data for name, data in contents(expected).items() if name.endswith(".log")}
        finished(READING["verify"], directory)
