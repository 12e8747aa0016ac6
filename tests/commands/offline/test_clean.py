"""`klog clean`: output, questions, and the directory afterwards."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klog.commands.main import main
from klog.formats.checkpoints import OffsetCheckpoint, OffsetEntry, build_offsets, parse_offsets
from klog.formats.names import TopicPartition
from tests import corpora
from tests.peers import KafkaPeer
from tests.peers.load_server import LoadServer
from tests.storage.cleaner.logs import BASE_MS, LogWriter
from tests.storage.cleaner.test_swap import last_values, records_of

USERS = TopicPartition("users", 0)


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    log = LogWriter(directory / str(USERS))
    for segment in range(3):
        for number in range(10):
            log.data([(b"key-%d" % key, b"%d" % number) for key in range(20)], timestamp_ms=BASE_MS + segment)
        log.roll()
    log.data([(b"active", b"v")])
    log.finish()
    (directory / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    checkpoint(directory, "replication-offset-checkpoint", 601)
    checkpoint(directory, "recovery-point-offset-checkpoint", 601)
    checkpoint(directory, "log-start-offset-checkpoint", 0)
    return directory


def checkpoint(directory: Path, name: str, offset: int) -> None:
    (directory / name).write_bytes(build_offsets(OffsetCheckpoint((OffsetEntry(USERS, offset),))))


def offset_in(directory: Path, name: str) -> int:
    return {
        entry.partition: entry.offset for entry in parse_offsets((directory / name).read_bytes()).entries
    }[USERS]


class Result:
    def __init__(self, exit_code: int, out: str, err: str) -> None:
        self.exit_code, self.out, self.err = exit_code, out, err

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def klog_clean(*args: object) -> Result:
        monkeypatch.setattr("sys.argv", ["klog", "clean", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Result(int(ended.value.code or 0), out, err)

    return klog_clean


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_status_shows_what_is_dirty_and_changes_nothing(log_directory: Path, run: Any) -> None:
    before = contents(log_directory)
    result = run("--status", "--json", log_directory)
    assert result.exit_code == 0
    (status,) = result.objects
    size = sum(path.stat().st_size for path in (log_directory / str(USERS)).glob("*.log"))
    active = (log_directory / str(USERS) / f"{600:020d}.log").stat().st_size
    assert status["cleanable"] is True
    assert status["reason"] is None
    assert (status["cleanBytes"], status["cleanableBytes"]) == (0, size - active)
    assert status["uncleanableBytes"] == active
    assert (status["firstDirtyOffset"], status["firstUncleanableOffset"]) == (0, 600)
    assert status["heldBackBy"] == "active segment"
    after = contents(log_directory)
    after.pop(str(log_directory / ".lock"), None)
    assert after == before


def test_status_gives_the_reason_if_a_log_is_not_cleanable(log_directory: Path, run: Any) -> None:
    checkpoint(log_directory, "cleaner-offset-checkpoint", 400)
    (status,) = run("--status", "--json", log_directory).objects
    assert (status["cleanable"], status["firstDirtyOffset"]) == (False, 400)
    assert "min.cleanable.dirty.ratio" in status["reason"]
    text = run("--status", log_directory).out
    assert "not compacted: dirty ratio is not above min.cleanable.dirty.ratio" in text


def test_compaction_keeps_the_last_of_every_key_and_moves_the_checkpoint(
    log_directory: Path, run: Any
) -> None:
    directory = log_directory / str(USERS)
    before = records_of(directory)
    result = run("--policy", "compact", "--yes", "--json", log_directory)
    assert result.exit_code == 0
    (done,) = result.objects
    assert (done["outcome"], done["cleaned"]["endOffset"]) == ("cleaned", 600)
    assert (done["cleaned"]["recordsRead"], done["cleaned"]["recordsWritten"]) == (600, 20)
    after = records_of(directory)
    assert last_values(after) == last_values(before)
    assert len(after) == 21
    assert offset_in(log_directory, "cleaner-offset-checkpoint") == 600
    assert not [path.name for path in directory.iterdir() if path.suffix in {".deleted", ".swap", ".cleaned"}]


def test_records_above_the_high_watermark_replace_no_others(log_directory: Path, run: Any) -> None:
    checkpoint(log_directory, "replication-offset-checkpoint", 250)
    (done,) = run("--policy", "compact", "--yes", "--json", log_directory).objects
    assert done["cleaned"]["endOffset"] == 200
    assert done["heldBackBy"] == "last stable offset"


def test_retention_by_time_deletes_whole_segments_and_moves_the_log_start(
    log_directory: Path, run: Any
) -> None:
    result = run("--policy", "delete", "--retention-ms", "1000", "--yes", "--json", log_directory)
    assert result.exit_code == 0
    (done,) = result.objects
    assert done["deletedSegments"] == [0, 200, 400, 600]
    names = sorted(path.name for path in (log_directory / str(USERS)).glob("*.log"))
    assert names == [f"{601:020d}.log"]
    assert offset_in(log_directory, "log-start-offset-checkpoint") == 601


def test_retention_removes_the_epochs_of_deleted_segments(log_directory: Path, run: Any) -> None:
    epochs = log_directory / str(USERS) / "leader-epoch-checkpoint"
    epochs.write_text("0\n3\n1 0\n2 300\n5 610\n")
    result = run("--policy", "delete", "--retention-ms", "1000", "--yes", log_directory)
    assert result.exit_code == 0
    assert epochs.read_text() == "0\n2\n2 601\n5 610\n"


def test_retention_by_size_leaves_at_least_that_much(log_directory: Path, run: Any) -> None:
    directory = log_directory / str(USERS)
    sizes = {path.name: path.stat().st_size for path in directory.glob("*.log")}
    keep = sum(sizes.values()) - sizes[f"{0:020d}.log"]
    args = ("--policy", "delete", "--retention-ms", "-1", "--retention-bytes", keep, "--yes", "--json")
    (done,) = run(*args, log_directory).objects
    assert done["deletedSegments"] == [0]
    assert offset_in(log_directory, "log-start-offset-checkpoint") == 200


def test_both_policies_compact_first_and_delete_then(log_directory: Path, run: Any) -> None:
    args = ("--policy", "compact,delete", "--retention-ms", "1000", "--yes", "--json")
    (done,) = run(*args, log_directory).objects
    assert done["cleaned"]["recordsWritten"] == 20
    assert done["deletedSegments"] == [0, 600]


def test_a_dry_run_changes_nothing(log_directory: Path, run: Any) -> None:
    before = contents(log_directory)
    result = run("--policy", "compact,delete", "--retention-ms", "1000", "--dry-run", log_directory)
    assert "to be compacted" in result.out
    assert "retention deletes 4 segments" in result.out
    after = contents(log_directory)
    after.pop(str(log_directory / ".lock"), None)
    assert after == before


def test_without_a_terminal_yes_is_required(log_directory: Path, run: Any) -> None:
    before = records_of(log_directory / str(USERS))
    result = run("--policy", "compact", log_directory)
    assert result.exit_code == 1
    assert "--yes" in result.err
    assert records_of(log_directory / str(USERS)) == before


def test_the_policy_is_required(log_directory: Path, run: Any) -> None:
    assert run("--yes", log_directory).exit_code == 2
    assert run("--policy", "shrink", "--yes", log_directory).exit_code == 2
    assert run("--policy", "compact", "--config", "nonsense", log_directory).exit_code == 2
    assert run("--policy", "compact", "--config", "no.such.config=1", log_directory).exit_code == 2


def test_a_directory_that_a_broker_has_open_is_refused(log_directory: Path, run: Any) -> None:
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(log_directory / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        result = run("--policy", "compact", "--yes", log_directory)
        assert holder.stdin is not None
        holder.stdin.close()
    assert result.exit_code == 1
    assert f"process {holder.pid} (" in result.err
    assert "holds this log directory" in result.err


def test_an_interrupted_replacement_is_recovered_first(log_directory: Path, run: Any) -> None:
    (log_directory / str(USERS) / f"{0:020d}.log.swap").touch()
    result = run("--policy", "compact", "--yes", log_directory)
    assert result.exit_code == 1
    assert "klog recover" in result.err


def test_a_damaged_log_is_reported_and_not_changed(log_directory: Path, run: Any) -> None:
    path = log_directory / str(USERS) / f"{200:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    before = contents(log_directory / str(USERS))
    result = run("--policy", "compact", "--yes", log_directory)
    assert result.exit_code == 1
    assert f"{path} at byte 0: batch fails its checksum" in result.err
    assert contents(log_directory / str(USERS)) == before


@pytest.mark.kafka
@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete"])
def test_kafka_opens_a_cleaned_directory_as_after_a_clean_stop(
    policy: str, log_directory: Path, run: Any, kafka3: KafkaPeer, tmp_path: Path
) -> None:
    directory = log_directory / str(USERS)
    assert run("--policy", policy, "--retention-ms", "1000", "--yes", log_directory).exit_code == 0
    logs = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    start = offset_in(log_directory, "log-start-offset-checkpoint")
    with LoadServer(kafka3, tmp_path / "load.log") as server:
        loaded = server.load(directory, clean=True, recovery_point=601, log_start_offset=start)
    assert (loaded.refusal, loaded.log_start_offset, loaded.log_end_offset) == ("", start, 601)
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == logs


def test_every_log_directory_of_the_corpora_is_judged(tmp_path: Path, run: Any) -> None:
    for number, log_dir in enumerate(
        corpora.log_dirs(corpora.corpora("k39-compact", "k4-compact", "k010-compact"))
    ):
        copy = tmp_path / str(number)
        shutil.copytree(log_dir.path, copy)
        statuses = run("--status", "--json", copy).objects
        assert {status["topic"] for status in statuses} >= {
            name.rsplit("-", 1)[0]
            for name in (one.name for one in log_dir.partitions())
            if name.startswith("c-")
        }
        assert all(status["cleanBytes"] for status in statuses if status["topic"].startswith("c-"))


def test_a_directory_whose_broker_was_killed_is_recovered_first(tmp_path: Path, run: Any) -> None:
    copy = tmp_path / "logs"
    shutil.copytree(corpora.Corpus("k39-unclean").log_dir("logs").path, copy)
    before = contents(copy)
    result = run("--policy", "compact", "--min-dirty-ratio", "0", "--yes", copy)
    assert result.exit_code == 1
    assert "the broker did not stop cleanly (run `klog recover` first)" in result.err
    after = {path: data for path, data in contents(copy).items() if path in before}
    refused = [line.split(": ")[1] for line in result.err.splitlines() if "klog recover` first)" in line]
    assert refused
    for path in refused:
        directory = path if Path(path).is_dir() else str(Path(path).parent)
        assert {one: data for one, data in after.items() if one.startswith(directory)} == {
            one: data for one, data in before.items() if one.startswith(directory)
        }
