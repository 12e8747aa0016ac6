"""`spark-submit commands/segment_convert.py` converts as `klog convert` does on one machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import corpora
from tests.convert.logs import contents, converted, records_of, with_codec
from tests.spark import sessions
from tests.spark.conftest import require_spark

SCRIPT = str(corpora.REPOSITORY / "commands" / "segment_convert.py")
TIMEOUT_S = 250


@pytest.fixture(autouse=True)
def _spark_is_there() -> None:
    require_spark()


def test_segments_converted_on_spark_are_those_converted_here(tmp_path: Path) -> None:
    original = corpora.Corpus("k39-codecs").log_dir()
    on_spark, here = tmp_path / "spark", tmp_path / "here"
    for copy in (on_spark, here):
        shutil.copytree(original.path, copy)
    arguments = ("--input", str(on_spark), "--compression", "zstd", "--all", "--batch-bytes", "2000")
    done = subprocess.run(
        sessions.submit_command(tmp_path, "local[2]", SCRIPT, *arguments, "--verify", "--yes"),
        env=sessions.environment(tmp_path),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "records verified" in done.stdout
    for partition in original.partitions():
        converted(here / partition.name, with_codec(4, batch_bytes=2000))
        assert contents(on_spark / partition.name) == contents(here / partition.name)
        assert records_of(here / partition.name)
