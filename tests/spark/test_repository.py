"""A backup repository in Spark: executors open it themselves, and the rows are those of `klog export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from klog.backup import keys
from klog.backup.keys import UserKey
from klog.export.options import Isolation, ReadOptions
from klog.export.schema import spark_schema_ddl
from klog.formats.errors import UsageError
from tests.backup.repositories import Backups
from tests.export.export_support import data_files, in_order, table_rows
from tests.export.logs import batch, marker, replica, transactional, write_segment
from tests.export.reading import rows_of
from tests.spark.conftest import require_spark
from tests.spark.test_submit import SCRIPT, submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = b"the key of these tests"


@pytest.fixture
def backups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backups:
    """Two encrypted backups: the second has a segment more of `orders`, and knows that a transaction was
    aborted.
    """
    monkeypatch.setattr(keys, "_COST", 16)
    (tmp_path / "key").write_bytes(KEY)
    logs = tmp_path / "logs"
    replica(logs / "orders-0", [batch(5 * each, 5, size=200) for each in range(8)])
    replica(logs / "payments-0", [transactional(0, 5, 7), batch(5, 5)])
    found = Backups(tmp_path / "repository", "zstd", key=UserKey(KEY))
    found.run(logs)
    write_segment(logs / "orders-0", [batch(40, 5, size=200)])
    write_segment(logs / "payments-0", [marker(10, 7, 0), batch(11, 5)])
    found.run(logs)
    return found


def test_the_data_source_reads_the_moment_that_is_asked_for(
    spark: SparkSession, backups: Backups, tmp_path: Path
) -> None:
    first = min(backups.repository.ids())
    reader = spark.read.format("klog").options(
        encryptionKeyFile=str(tmp_path / "key"), **{"kafka.isolation.level": "read_committed"}
    )

    def offsets(topic: str, **options: str) -> list[int]:
        frame = reader.options(subscribe=topic, **options).load(str(backups.place))
        return [row["offset"] for row in rows_of(frame.toArrow().to_batches())]

    assert offsets("orders") == list(range(45))
    assert offsets("payments") == [*range(5, 10), *range(11, 16)]
    assert offsets("orders", backup=first, targetSplitBytes="1") == list(range(40))
    assert offsets("payments", backup=first) == list(range(5, 10))


def test_a_stream_of_a_repository_is_refused(backups: Backups, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource")
    from pyspark.sql.types import StructType

    from klog.spark.stream import KlogStreamReader

    options = ReadOptions((str(backups.place),), encryption_key_file=str(tmp_path / "key"))
    with pytest.raises(UsageError, match="is read as a batch"):
        KlogStreamReader(options, StructType.fromDDL(spark_schema_ddl(options)))


def test_an_export_on_spark_writes_the_files_of_one_on_this_machine(backups: Backups, tmp_path: Path) -> None:
    require_spark()
    from tests.backup.test_export_moments import exported

    arguments = ("--input", str(backups.place), "--encryption-key-file", str(tmp_path / "key"))
    done = submit(tmp_path, SCRIPT, *arguments, "--isolation", "read_committed", "--output", "out")
    assert done.returncode == 0, done.stdout

    read = {"encryption_key_file": str(tmp_path / "key"), "isolation": Isolation.READ_COMMITTED}
    exported(backups.place, tmp_path / "expected", **read)
    assert [row["offset"] for row in in_order(table_rows(tmp_path / "out"))] == [
        row["offset"] for row in in_order(table_rows(tmp_path / "expected"))
    ]
    assert [each.relative_to(tmp_path / "out") for each in data_files(tmp_path / "out")] == [
        each.relative_to(tmp_path / "expected") for each in data_files(tmp_path / "expected")
    ]
