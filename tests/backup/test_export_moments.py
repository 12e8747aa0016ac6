"""`klog export REPOSITORY`: the rows of a moment are those of what a restore to it gives."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from klog.backup import keys
from klog.backup.exporting import BackupSource, source_of
from klog.backup.keys import UserKey
from klog.backup.restoring.plan import RestorePlan
from klog.backup.restoring.request import RestoreRequest
from klog.export.jobs import ExportJob
from klog.export.options import Edge, Isolation, ReadOptions, Subscription
from klog.export.report import Report
from klog.export.run_export import RunOptions, run_export
from klog.formats.errors import StorageError, UsageError
from klog.formats.names import TopicPartition
from tests import corpora
from tests.backup.recorded import SEED, Recorded, restore, without_input
from tests.backup.repositories import Backups
from tests.backup.transactional_load import TOPIC
from tests.commands.running import Run, runner
from tests.export.export_support import EVERYTHING, Unwatched, in_order, table_rows, tree
from tests.export.logs import batch, replica, write_segment

MOMENTS = max(1, int(os.environ.get("KLOG_TEST_MOMENTS", "12")) // 4)
KEY = b"the key of these tests"


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def exported(place: Path | str, output: Path, run: RunOptions | None = None, **read: Any) -> Report:
    options = ReadOptions((str(place),), **EVERYTHING, **read)
    job = ExportJob(options, str(output), source=source_of(options))
    return run_export(job, run or RunOptions(1), Unwatched())


def rows(output: Path, topic: str | None = None) -> list[dict[str, Any]]:
    """The rows in order, without where they were read."""
    return [
        {name: value for name, value in row.items() if name not in ("file", "batchPosition")}
        for row in in_order(table_rows(output))
        if topic in (None, row["topic"])
    ]


def without_added(found: list[dict[str, Any]], plan: RestorePlan) -> list[dict[str, Any]]:
    """The rows without the records that a restore adds to the coordinators' topics."""
    ends = {each.target: each.cut.end_offset for each in plan.partitions}
    return [row for row in found if row["offset"] < ends[TopicPartition(row["topic"], row["partition"])]]


def pieces(backups: Backups, partition: str = "orders-0") -> list[Path]:
    return sorted((Path(backups.place) / "data" / partition).glob("*.log*"))


def two_logs(logs: Path) -> None:
    replica(logs / "orders-0", [batch(5 * each, 5, at=1000 * each, size=200) for each in range(8)])
    replica(logs / "payments-0", [batch(5 * each, 5) for each in range(4)])


# -- What is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(MOMENTS))
def test_the_rows_of_a_moment_are_those_of_a_restore(recorded: Recorded, tmp_path: Path, number: int) -> None:
    chance = random.Random(SEED + 200 + number)
    at_ms = chance.randint(recorded.begin_ms + 300, recorded.end_ms) if number else recorded.end_ms
    plan = restore(recorded.repository, RestoreRequest(at_ms, wants=without_input), tmp_path / "restored")

    for isolation in Isolation:
        output, expected = tmp_path / f"{isolation}", tmp_path / f"{isolation}-expected"
        report = exported(recorded.repository.place, output, at_ms=at_ms, isolation=isolation)
        exported(tmp_path / "restored", expected, isolation=isolation)

        assert report.clean
        assert rows(output) == without_added(rows(expected), plan)
        assert rows(output, TOPIC) or number


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("key", [None, UserKey(KEY)], ids=["plain", "encrypted"])
@pytest.mark.parametrize("corpus", ["k39-txn", "k08-codecs"])
def test_what_kafka_wrote_is_exported_as_from_a_restore(
    corpus: str,
    key: UserKey | None,
    compression: str,
    backups: Backups,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "_COST", 16)
    directory = corpora.Corpus(corpus).log_dir().path
    backups.compression, backups.key = compression, key
    backups.run(directory)
    (tmp_path / "key").write_bytes(KEY)
    how = {"encryption_key_file": str(tmp_path / "key")} if key else {}
    plan = restore(backups.repository, RestoreRequest(), tmp_path / "restored")

    for isolation in Isolation:
        output, expected = tmp_path / f"{isolation}", tmp_path / f"{isolation}-expected"
        exported(backups.place, output, RunOptions(1, verify=True), isolation=isolation, **how)
        exported(tmp_path / "restored", expected, isolation=isolation)
        assert rows(output) == without_added(rows(expected), plan) != []


def test_offsets_and_times_bound_what_is_read_as_in_a_log_directory(
    backups: Backups, logs: Path, tmp_path: Path
) -> None:
    two_logs(logs)
    backups.run(logs)
    orders = Subscription(topics=frozenset({"orders"}))
    for number, (starting, ending) in enumerate(
        [
            (Edge(-2, offsets={"orders": {0: 7}}), Edge(-1, offsets={"orders": {0: 23}})),
            (Edge(-2, timestamp_ms=2003), Edge(-1, timestamp_ms=5000)),
            (Edge(-2, timestamps={"orders": {0: 3000}}), Edge(-1)),
        ]
    ):
        bounds = {"starting": starting, "ending": ending, "subscription": orders}
        exported(backups.place, tmp_path / f"{number}", **bounds)
        exported(logs, tmp_path / f"{number}-expected", **bounds)
        assert rows(tmp_path / f"{number}") == rows(tmp_path / f"{number}-expected") != []


def test_single_partitions_can_be_chosen(backups: Backups, logs: Path, tmp_path: Path) -> None:
    replica(logs / "orders-0", [batch(0, 5)])
    replica(logs / "orders-1", [batch(0, 3)])
    backups.run(logs)

    exported(
        backups.place, tmp_path / "out", subscription=Subscription(partitions={"orders": frozenset({1})})
    )

    assert [(row["partition"], row["offset"]) for row in rows(tmp_path / "out")] == [(1, 0), (1, 1), (1, 2)]


# -- Splits -------------------------------------------------------------------------------------------------


def test_small_pieces_share_a_split_and_each_is_opened_once(
    backups: Backups, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        write_segment(logs / "orders-0", [batch(10 * number, 5), batch(10 * number + 5, 5)])
        backups.run(logs)
    opened: list[str] = []
    original = BackupSource.open
    monkeypatch.setattr(BackupSource, "open", lambda self, file: opened.append(file) or original(self, file))

    report = exported(backups.place, tmp_path / "out")

    assert len(pieces(backups)) == 6
    assert sorted(opened) == [str(each) for each in pieces(backups)]
    assert (len(report.plan.splits), report.files) == (1, 1)
    assert [row["offset"] for row in rows(tmp_path / "out")] == list(range(60))
    assert {row["file"] for row in table_rows(tmp_path / "out")} == {str(each) for each in pieces(backups)}


def test_as_many_splits_are_made_as_are_asked_for(backups: Backups, logs: Path, tmp_path: Path) -> None:
    for number in range(6):
        write_segment(logs / "orders-0", [batch(10 * number, 10)])
        backups.run(logs)

    assert 2 <= len(exported(backups.place, tmp_path / "two", min_partitions=2).plan.splits) < 6
    assert len(exported(backups.place, tmp_path / "all", target_split_bytes=1).plan.splits) == 6
    assert rows(tmp_path / "two") == rows(tmp_path / "all")


def test_processes_open_the_repository_themselves(backups: Backups, logs: Path, tmp_path: Path) -> None:
    two_logs(logs)
    backups.run(logs)

    exported(backups.place, tmp_path / "out", RunOptions(2, small_bytes=0))

    exported(logs, tmp_path / "expected")
    assert rows(tmp_path / "out") == rows(tmp_path / "expected")


def test_a_job_that_is_sent_elsewhere_has_no_key_in_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    assert KEY not in pickle.dumps(BackupSource(str(tmp_path), str(tmp_path / "key")))


def test_a_job_that_is_resumed_stays_with_its_moment(backups: Backups, logs: Path, tmp_path: Path) -> None:
    two_logs(logs)
    backups.run(logs)
    output = tmp_path / "out"
    exported(backups.place, output)
    before = tree(output)
    [split] = (output / "topic=payments").rglob("*.parquet")
    split.unlink()
    write_segment(logs / "orders-0", [batch(40, 5)])
    backups.run(logs)

    exported(backups.place, output, RunOptions(1, resume=True))

    assert {name: data for name, data in tree(output).items() if not name.startswith("_")} == {
        name: data for name, data in before.items() if not name.startswith("_")
    }


# -- Damage -------------------------------------------------------------------------------------------------


def test_damage_in_an_object_costs_its_batches_only(
    backups: Backups, logs: Path, tmp_path: Path, klog: Run
) -> None:
    two_logs(logs)
    backups.run(logs)
    piece = pieces(backups)[-1]
    data = bytearray(piece.read_bytes())
    data[-1] ^= 1
    piece.write_bytes(data)

    done = klog("export", backups.place, "-o", tmp_path / "out")

    assert done.code == 1
    assert f"lost: {piece} at byte " in done.err
    assert "offsets 35 to 39: batch fails its checksum" in done.err
    assert [row["offset"] for row in rows(tmp_path / "out", "orders")] == list(range(35))
    assert len(rows(tmp_path / "out", "payments")) == 20


def test_an_object_that_is_missing_is_lost_and_named(backups: Backups, logs: Path, tmp_path: Path) -> None:
    for number in range(3):
        write_segment(logs / "orders-0", [batch(10 * number, 10)])
        backups.run(logs)
    gone = pieces(backups)[1]
    gone.unlink()

    report = exported(backups.place, tmp_path / "out")

    assert [(each.file, each.first_offset, each.end_offset) for each in report.lost] == [(str(gone), 10, 20)]
    assert len(rows(tmp_path / "out")) == 20
    with pytest.raises(StorageError, match=gone.name):
        exported(backups.place, tmp_path / "other", fail_on_data_loss=True)


def test_what_was_damaged_at_its_source_is_lost(backups: Backups, logs: Path, tmp_path: Path) -> None:
    two_logs(logs)
    log = max((logs / "orders-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    backups.run(logs)

    report = exported(backups.place, tmp_path / "out")

    assert [(each.file, each.first_offset) for each in report.lost] == [(str(log), 35)]
    assert "damaged when it was backed up" in report.lost[0].reason
    assert not report.clean


# -- Options ------------------------------------------------------------------------------------------------


def test_a_plan_names_the_moment_of_a_backup(backups: Backups, logs: Path, tmp_path: Path, klog: Run) -> None:
    two_logs(logs)
    first = backups.run(logs).manifest
    write_segment(logs / "orders-0", [batch(40, 5)])
    backups.run(logs)
    out = ("-o", tmp_path / "out", "--subscribe", "orders", "--dry-run")

    assert "orders-0: offsets 0 to 45 (log 0 to 45), 1 split, " in klog("export", backups.place, *out).out
    assert "offsets 0 to 40 " in klog("export", backups.place, "--backup", first.id, *out).out
    done = klog("export", backups.place, "--at", "2020-01-01T00:00:00Z", *out)
    assert (done.code, "the moment is before the first backup" in done.out) == (0, True)


def test_a_moment_is_for_a_repository_that_is_read_alone(
    backups: Backups, logs: Path, tmp_path: Path, klog: Run
) -> None:
    two_logs(logs)
    backups.run(logs)
    out = ("-o", tmp_path / "out")

    for arguments, complaint in [
        ((logs, "--at", "1h"), "for a backup repository"),
        ((logs, "--backup", "x"), "for a backup repository"),
        ((logs, backups.place), "a repository is read alone"),
        ((backups.place, "--include-deleted"), "leave out includeDeleted"),
        ((backups.place, "--at", "1h", "--backup", "x"), "exclude each other"),
    ]:
        done = klog("export", *arguments, *out)
        assert (done.code, complaint in done.err) == (2, True), arguments
    assert not (tmp_path / "out").exists()


def test_a_wrong_key_is_said_before_anything_is_written(
    backups: Backups, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_COST", 16)
    backups.key = UserKey(KEY)
    two_logs(logs)
    backups.run(logs)
    (tmp_path / "wrong").write_bytes(b"some other long phrase")

    with pytest.raises(UsageError, match="key"):
        exported(backups.place, tmp_path / "out", encryption_key_file=str(tmp_path / "wrong"))
    monkeypatch.setenv(keys.KEY_VARIABLE, KEY.decode())
    assert exported(backups.place, tmp_path / "out").clean
    state = json.loads((tmp_path / "out" / "_klog" / "manifest.json").read_text())
    assert state["options"]["options"]["encryptionKeyFile"] is None
