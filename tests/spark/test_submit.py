"""`spark-submit commands/segment_export.py` as users run it: real drivers and executors, killed too."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from klog.export.schema import METADATA_COLUMNS
from klog.spark.job import packed
from tests import corpora
from tests.export.expected import before_damage, log_rows
from tests.export.export_support import EVERYTHING, export, in_order, table_rows, tree
from tests.processes import kill_session
from tests.spark import sessions
from tests.spark.combined import Combined
from tests.spark.conftest import require_spark
from tests.waiting import eventually

SCRIPT = str(corpora.REPOSITORY / "commands" / "segment_export.py")
ALL_COLUMNS = ("--include-headers", "--metadata-columns", ",".join(METADATA_COLUMNS))
TRANSACTIONS = corpora.corpora("k39-txn")[0].log_dir()
TIMEOUT_S = 250  # a tenth is usual; machines that test are busy


@pytest.fixture(autouse=True)
def _spark_is_there() -> None:
    require_spark()


def submit(
    work: Path, *arguments: str, master: str = "local[2]", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The script's end and what it said."""
    return subprocess.run(
        sessions.submit_command(work, master, *arguments),
        env={**sessions.environment(work), **(environment or {})},
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # spark-submit makes one of a Python driver's two as well
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_executors_of_a_cluster_export_what_kafka_says_is_in_every_corpus(
    combined: Combined, tmp_path: Path
) -> None:
    done = submit(
        tmp_path,
        *(SCRIPT, "--input", str(combined.path), "--output", "out", "--report", "report.json"),
        *("--verify", *ALL_COLUMNS),
        master="local-cluster[2,1,1024]",
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == 1, done.stdout  # damaged corpora are among them
    assert report["findings"] == []
    assert report["lost"]
    assert "all other records are there" in done.stdout
    found = combined.by_log_dir(in_order(table_rows(tmp_path / "out")))
    for log_dir in corpora.log_dirs():
        expected = log_rows(log_dir)
        rows = in_order(found.get(log_dir, []))
        assert before_damage(log_dir, rows) == before_damage(log_dir, expected)
        if not log_dir.corpus.is_corrupt:
            assert rows == expected
    assert report["records"] == sum(map(len, found.values()))


def test_a_killed_job_resumes_to_the_very_same_files(combined: Combined, tmp_path: Path) -> None:
    job = (SCRIPT, "-i", str(combined.path), "-o", str(tmp_path / "out"), *ALL_COLUMNS)
    kill_when(tmp_path, job, lambda: committed(tmp_path / "out") >= 1)
    kill_when(tmp_path, (*job, "--resume"), lambda: committed(tmp_path / "out") >= 100)
    kept = committed(tmp_path / "out")
    done = submit(tmp_path, *job, "--resume")
    assert f"{kept} of " in done.stdout
    export(combined.path, tmp_path / "alone", read=EVERYTHING)
    assert tree(tmp_path / "out") == tree(tmp_path / "alone")


def committed(output: Path) -> int:
    return len(list((output / "_klog" / "splits").glob("*.json")))


def kill_when(work: Path, arguments: tuple[str, ...], due: Callable[[], bool]) -> None:
    """Start a job, and kill it with all that it has started once it is `due`."""
    log = work / "killed.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            sessions.submit_command(work, "local[2]", *arguments),
            env=sessions.environment(work),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        eventually(lambda: due() or process.poll() is not None, TIMEOUT_S)
        assert process.poll() is None, f"ended before it was killed: {log.read_text()}"
    finally:
        kill_session(process.pid)
        process.wait()


@pytest.fixture(scope="module")
def without_klog(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that has all that klog needs, but no klog."""
    work = tmp_path_factory.mktemp("without-klog")
    packages = work / "packages"
    packages.mkdir()
    for name in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(name)).iterdir():
            if "klog" not in entry.name and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    python = work / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return {
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "PYTHONPATH": str(packages),
    }


def test_a_checkout_is_enough(without_klog: dict[str, str], tmp_path: Path) -> None:
    arguments = (SCRIPT, "-i", str(TRANSACTIONS.path), "-o", "out")
    done = submit(tmp_path, *arguments, environment=without_klog)
    assert done.returncode == 0, done.stdout
    export(TRANSACTIONS.path, tmp_path / "alone")
    assert tree(tmp_path / "out") == tree(tmp_path / "alone")


SHIPPED = """
import runpy, sys
from klog.spark.source import register
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
register(spark)
frame = spark.read.format("klog").option("subscribe", "t-txn").load(sys.argv[2])
places = frame.rdd.map(lambda _: __import__("klog").__file__)
print("rows:", frame.count(), "of executors with", places.first())
spark.stop()
runpy.run_path("segment_export.py", run_name="__main__")
"""


def test_shipped_by_py_files_both_run_on_executors_without_klog(
    without_klog: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "segment_export.py").write_bytes(Path(SCRIPT).read_bytes())
    script = tmp_path / "shipped.py"
    script.write_text(SHIPPED)
    with packed(corpora.REPOSITORY) as archive:
        arguments = ("--py-files", archive, str(script), "-i", str(TRANSACTIONS.path), "-o", "out")
        done = submit(tmp_path, *arguments, master="local-cluster[1,1,1024]", environment=without_klog)
    assert done.returncode == 0, done.stdout
    wanted = sum(row["topic"] == "t-txn" for row in log_rows(TRANSACTIONS))
    assert f"rows: {wanted} of executors with " in done.stdout
    assert "klog.zip/klog/__init__.py" in done.stdout
    export(TRANSACTIONS.path, tmp_path / "alone")
    assert tree(tmp_path / "out") == tree(tmp_path / "alone")


def test_the_printed_command_works_in_an_environment_that_is_not_active(tmp_path: Path) -> None:
    arguments = [str(TRANSACTIONS.path), "--output", str(tmp_path / "out"), "--print-spark-submit"]
    printed = subprocess.run(
        [sys.executable, "-m", "klog", "export", *arguments], capture_output=True, text=True, check=True
    ).stdout
    settings = sessions.environment(tmp_path)
    plain = {name: settings[name] for name in ("LC_ALL", "SPARK_LOCAL_IP", "JDK_JAVA_OPTIONS")}
    java = Path(shutil.which("java") or "").resolve().parent.parent
    done = subprocess.run(
        ["/bin/sh", "-c", printed],
        env={**plain, "PATH": "/usr/bin:/bin", "JAVA_HOME": str(java)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    export(TRANSACTIONS.path, tmp_path / "alone")
    assert tree(tmp_path / "out") == tree(tmp_path / "alone")


def test_without_klog_anywhere_the_script_says_what_to_do(
    without_klog: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "segment_export.py"
    script.write_bytes(Path(SCRIPT).read_bytes())
    python = without_klog["PYSPARK_PYTHON"]
    done = subprocess.run(
        [python, str(script)], env=without_klog, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install klog" in done.stderr
    assert "--py-files" in done.stderr
