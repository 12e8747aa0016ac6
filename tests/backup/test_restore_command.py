"""`klog restore`: moments, offsets, names, targets; a restore that was killed goes on."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from klog.backup.restoring import target as restore_target
from klog.backup.restoring.request import RestoreRequest, plan_of, select
from klog.backup.restoring.run import TargetOptions, run_restore
from klog.formats.names import TopicPartition
from klog.storage.files.checkpoint_files import read_offsets
from klog.storage.log.directory_loading import UnknownDirectoryError, partition_directories
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.export.logs import Log, batch, write_topic_id
from tests.storage.partition_copies import contents

FIRST_MS = 1_700_000_000_000
ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def batches(first: int, count: int) -> list[bytes]:
    """Batches of five records, one a second from the time of the first offset on."""
    return [
        batch(at, 5, at=FIRST_MS + 200 * at, size=50, leader_epoch=3)
        for at in range(first, first + 5 * count, 5)
    ]


def orders(log_directory: Path, count: int = 12, topic: str = "orders-0") -> Path:
    log = Log(log_directory / topic)
    log.append(*batches(0, 6)).roll().append(*batches(30, count - 6)).write()
    write_topic_id(log.directory, ID)
    return log.directory


@pytest.fixture
def directory(backups: Backups, logs: Path) -> Path:
    """The log of orders-0 with 60 records, which is backed up."""
    found = orders(logs)
    backups.run(logs)
    return found


def rows(done: object) -> list[dict[str, object]]:
    assert done.code == 0, done.err  # type: ignore[attr-defined]
    return [json.loads(line) for line in done.out.splitlines()]  # type: ignore[attr-defined]


def data_of(directory: Path) -> bytes:
    return b"".join(log_files(directory).values())


def test_a_dry_run_says_what_would_come_back_and_writes_nothing(
    klog: Run,
    backups: Backups,
    logs: Path,
    directory: Path,
    tmp_path: Path,
) -> None:
    (row,) = rows(klog("restore", backups.place, "--dry-run", "--json"))

    assert (row["topic"], row["partition"], row["endOffset"]) == ("orders", 0, 60)
    assert (row["basis"], row["size"]) == ("arrival", len(data_of(directory)))
    done = klog("restore", backups.place, "--dry-run")
    assert "1 topic with 1 partition" in done.out
    assert sorted(each.name for each in tmp_path.iterdir()) == ["logs", "repository"]


def test_before_the_first_backup_the_timestamps_of_records_decide(
    klog: Run,
    backups: Backups,
    directory: Path,
    tmp_path: Path,
) -> None:
    at_ms = FIRST_MS + 200 * 45  # the batch of the offsets 40 to 44 is complete

    (row,) = rows(klog("restore", backups.place, "--at", at_ms, "--to", tmp_path / "new", "--json"))

    assert (row["endOffset"], row["basis"]) == (45, "timestamp")
    restored = data_of(tmp_path / "new" / "orders-0")
    assert restored == data_of(directory)[: len(restored)]
    assert read_offsets(str(tmp_path / "new" / "recovery-point-offset-checkpoint")) == {
        TopicPartition("orders", 0): 45
    }


def test_a_moment_that_is_not_between_two_backups_is_noted(klog: Run, backups: Backups, logs: Path) -> None:
    orders(logs)
    manifest = backups.run(logs).manifest

    before = klog("restore", backups.place, "--at", FIRST_MS, "--dry-run")
    at_end = klog("restore", backups.place, "--at", manifest.begin_ms, "--dry-run")
    after = klog("restore", backups.place, "--at", manifest.begin_ms + 1, "--dry-run")
    newest = klog("restore", backups.place, "--dry-run")

    assert "the moment is before the first backup, of 20" in before.err
    assert "the moment is after the newest backup, of 20" in after.err
    assert (at_end.err, newest.err) == ("", "")
    assert (before.code, after.code) == (0, 0)


@pytest.mark.usefixtures("directory")
def test_a_moment_is_shown_with_the_time_zone_in_which_it_was_meant(
    klog: Run, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes 10:00 from a log in UTC sees that it was read as local time."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        done = klog("restore", backups.place, "--at", "2023-11-15T10:00:00", "--dry-run")
    time.tzset()

    assert "would come back as of 2023-11-15 10:00:00.000 JST" in done.out
    assert re.search(r"before the first backup, of 20\S+ \S+ JST", done.err)


def test_partitions_that_no_run_has_read_since_the_moment_are_noted(
    klog: Run, backups: Backups, logs: Path
) -> None:
    orders(logs)
    orders(logs, topic="clicks-0")
    backups.run(logs)
    manifest = backups.run(logs, patterns=("orders",)).manifest

    for moment in ((), ("--at", manifest.begin_ms)):
        done = klog("restore", backups.place, *moment, "--dry-run")
        assert "no run has looked at 1 of 2 partitions since the moment, at clicks-0 since 20" in done.err
    assert klog("restore", backups.place, "--dry-run", "--topic", "orders").err == ""


def test_what_a_run_had_read_had_arrived_whatever_its_timestamps_say(
    klog: Run,
    backups: Backups,
    logs: Path,
) -> None:
    orders(logs, 8)
    first = backups.run(logs)
    orders(logs, 12)
    backups.run(logs)

    (at_end,) = rows(klog("restore", backups.place, "--backup", first.manifest.id, "--dry-run", "--json"))
    (by_time,) = rows(klog("restore", backups.place, "--at", first.manifest.end_ms, "--dry-run", "--json"))

    # The producers' clocks are years behind, so all records up to the next run are taken for old ones.
    assert (at_end["endOffset"], at_end["basis"]) == (40, "arrival")
    assert (by_time["endOffset"], by_time["basis"]) == (60, "timestamp")


@pytest.mark.usefixtures("directory")
def test_partitions_end_at_given_offsets(
    klog: Run,
    backups: Backups,
    tmp_path: Path,
) -> None:
    (tmp_path / "offsets").write_text("orders:0:35\n")

    (row,) = rows(klog("restore", backups.place, "--offsets", tmp_path / "offsets", "--dry-run", "--json"))

    assert (row["endOffset"], row["basis"]) == (35, "offset")
    (tmp_path / "offsets").write_text("orders:0:61\n")
    refused = klog("restore", backups.place, "--offsets", tmp_path / "offsets", "--dry-run")
    assert refused.code == 2
    assert "the backup has the offsets from 0 to 60, not 61" in refused.err


def test_a_topic_comes_back_under_another_name_without_the_others(
    klog: Run,
    backups: Backups,
    logs: Path,
    tmp_path: Path,
) -> None:
    directory = orders(logs)
    orders(logs, topic="clicks-0")
    backups.run(logs)
    words = ("--topic", "orders", "--rename", "orders=orders-before", "--to", tmp_path / "new")

    rows(klog("restore", backups.place, *words, "--json"))

    assert [str(each) for each in partition_directories(str(tmp_path / "new"))] == ["orders-before-0"]
    assert log_files(tmp_path / "new" / "orders-before-0") == log_files(directory)


@pytest.mark.usefixtures("directory")
def test_a_target_that_is_not_empty_is_refused(
    klog: Run,
    backups: Backups,
    logs: Path,
    tmp_path: Path,
) -> None:
    before = contents(logs)

    done = klog("restore", backups.place, "--to", logs)

    assert done.code == 2
    assert "is not empty" in done.err
    assert contents(logs) == before
    assert "--to DIR is needed" in klog("restore", backups.place).err


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("variable", ["KLOG_BOOTSTRAP_SERVER", "KLOG_PROFILE"])
def test_a_cluster_that_only_the_environment_names_gets_nothing(
    klog: Run, backups: Backups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "127.0.0.1:1")

    refused = klog("restore", backups.place)

    assert refused.code == 2
    assert "--to DIR is needed, or --bootstrap-server" in refused.err
    (row,) = rows(klog("restore", backups.place, "--to", tmp_path / "new", "--json"))
    assert row["endOffset"] == 60
    (row,) = rows(klog("restore", backups.place, "--dry-run", "--json"))
    assert row["endOffset"] == 60


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("option", ["--bootstrap-server", "--profile"])
def test_a_restore_has_one_target(
    klog: Run, backups: Backups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Also if the option names the cluster that the environment does."""
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", "127.0.0.1:1")

    done = klog("restore", backups.place, "--to", tmp_path / "new", option, "127.0.0.1:1")

    assert done.code == 2
    assert "exclude each other" in done.err
    assert not (tmp_path / "new").exists()


def test_help_promises_no_cluster_that_was_not_named(klog: Run) -> None:
    connection = klog("restore", "--help").out.partition("Connection:")[2]

    assert "--bootstrap-server" in connection
    for promise in ("127.0.0.1:9092", "KLOG_BOOTSTRAP_SERVER", "KLOG_PROFILE", "current profile"):
        assert promise not in connection


def test_each_broker_gets_replicas_with_the_same_bytes(
    klog: Run,
    backups: Backups,
    logs: Path,
    tmp_path: Path,
) -> None:
    for number in range(3):
        orders(logs, topic=f"orders-{number}")
    backups.run(logs)
    words = ("--brokers", "1,2,3", "--replication-factor", 2, "--to", tmp_path / "new")

    rows(klog("restore", backups.place, *words, "--json"))

    metadata = json.loads((tmp_path / "new" / "cluster-metadata.json").read_text())
    found: dict[str, list[dict[str, bytes]]] = {}
    for broker in (1, 2, 3):
        directory = tmp_path / "new" / f"broker-{broker}"
        assert f"broker.id={broker}\n" in (directory / "meta.properties").read_text()
        assert (directory / ".kafka_cleanshutdown").exists()
        for each in partition_directories(str(directory)):
            found.setdefault(str(each), []).append(contents(directory / str(each)))
    assert sorted(found) == ["orders-0", "orders-1", "orders-2"]
    assert all(len(replicas) == 2 and replicas[0] == replicas[1] for replicas in found.values())
    assert "orders" in json.dumps(metadata)


class KilledError(Exception):
    pass


def restore(backups: Backups, path: Path, kill_after_bytes: int | None = None) -> None:
    request = RestoreRequest()
    selected = select(backups.repository, request)
    plan = plan_of(backups.repository, request, selected)
    done = 0

    def on_bytes(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        if kill_after_bytes is not None and done >= kill_after_bytes:
            raise KilledError

    run_restore(
        backups.repository,
        plan,
        selected.manifest,
        TargetOptions(str(path), "WnrRcUjsTR6xk3yBsWKJjQ"),
        on_bytes,
    )


@pytest.mark.parametrize("kill_after_bytes", [1, 5000, 9000, 12_000, 16_000])
def test_a_killed_restore_leaves_no_directory_that_a_broker_starts_on_and_goes_on(
    backups: Backups,
    logs: Path,
    tmp_path: Path,
    kill_after_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(4):
        orders(logs, topic=f"orders-{number}")
    backups.run(logs)
    monkeypatch.setattr("klog.backup.restoring.log_directories._SYNCED_PARTITIONS", 1)
    restore(backups, tmp_path / "whole")

    with pytest.raises(KilledError):
        restore(backups, tmp_path / "killed", kill_after_bytes)

    with pytest.raises(UnknownDirectoryError):
        partition_directories(str(tmp_path / "killed"))
    restore(backups, tmp_path / "killed")
    killed, whole = contents(tmp_path / "killed"), contents(tmp_path / "whole")
    assert killed.keys() == whole.keys()
    different = {name for name in killed if killed[name] != whole[name]}
    assert different <= {"meta.properties", "klog-metadata.sqlite"}  # they have the time of their making


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "1h", "--backup", "x"), "--at and --backup: give one of both"),
        (("--at", "10 o'clock"), "is not a time"),
        (("--rename", "orders"), "a topic is renamed by OLD=NEW"),
        (("--rename", "clicks=old"), "topic clicks is not among the restored ones"),
        (("--brokers", "1,1"), "write different ids"),
        (("--controllers", "1"), "are for --kraft"),
        (("--jobs", "0"), "--jobs"),
    ],
)
@pytest.mark.usefixtures("directory")
def test_wrong_options_change_nothing(
    klog: Run, backups: Backups, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = klog("restore", backups.place, "--to", tmp_path / "new", *words)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("directory")
def test_an_unfinished_restore_goes_on_only_as_the_same_restore(
    klog: Run,
    backups: Backups,
    tmp_path: Path,
) -> None:
    with pytest.raises(KilledError):
        restore(backups, tmp_path / "new", 1)

    done = klog("restore", backups.place, "--at", FIRST_MS + 5000, "--to", tmp_path / "new")

    assert done.code == 2
    assert "holds an unfinished restore of something else" in done.err
    assert (tmp_path / "new" / restore_target.INCOMPLETE).exists()


@pytest.mark.usefixtures("directory")
def test_a_damaged_object_is_named_and_nothing_incomplete_looks_complete(
    klog: Run,
    backups: Backups,
    tmp_path: Path,
) -> None:
    piece = max(name for name in backups.objects() if name.endswith(".log"))
    path = Path(str(backups.place)) / piece
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    done = klog("restore", backups.place, "--to", tmp_path / "new")

    assert done.code == 1
    assert piece in done.err
    assert (tmp_path / "new" / restore_target.INCOMPLETE).exists()
