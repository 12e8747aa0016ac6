"""`rebuild-index`, `verify` and `recover`: output, exit codes, questions and locks."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.storage.files import files
from tests.commands.running import Run, runner
from tests.corpora import Corpus, LogDirectory, log_dirs
from tests.fuzz.mutated_directories import identities, touched
from tests.storage.partition_copies import contents, overlong

RUN = "from klog.commands.main import main; main()"


def klog(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *map(str, args)],
        capture_output=True,
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """A log directory with one valid and one damaged partition."""
    source = Corpus("corrupt-k39").log_dir()
    directory = tmp_path / "disk" / "logs"
    for name in ("c-b.intact-0", "c-b.flip-first-0"):
        shutil.copytree(source.partition(name).path, directory / name)
    return directory


@pytest.mark.parametrize("command", ["rebuild-index", "verify", "recover"])
def test_help_shows_examples(command: str) -> None:
    done = klog(command, "--help")
    assert done.returncode == 0
    assert f"klog {command}" in done.stdout


def test_check_lists_each_index_and_fails_on_a_broken_one(tmp_path: Path) -> None:
    directory = tmp_path / "c-b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.idx-garbage-0").path, directory)
    before = contents(directory)
    done = klog("rebuild-index", "--check", "--json", directory)
    found = {Path(line["file"]).name: line["status"] for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1
    assert found["00000000000000000000.index"] == "broken"
    assert found["00000000000000000025.index"] == "valid"
    assert contents(directory) == before


def test_rebuilding_repairs_what_check_found(tmp_path: Path) -> None:
    directory = tmp_path / "c-b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.idx-garbage-0").path, directory)
    assert klog("rebuild-index", "--index-interval-bytes", "1024", directory).returncode == 0
    assert klog("rebuild-index", "--check", directory).returncode == 0


@pytest.mark.parametrize("log_dir", log_dirs(), ids=str)
def test_no_repair_touches_a_file_that_verify_calls_valid(
    log_dir: LogDirectory, run: Run, tmp_path: Path
) -> None:
    """The brokers had other settings of indexes than the commands, and their producers have expired."""
    directory = tmp_path / "logs"
    shutil.copytree(log_dir.path, directory)
    problems = [json.loads(line) for line in run("verify", "--json", directory).out.splitlines()]
    before = {path: identities(path) for path in directory.iterdir() if path.is_dir()}
    for command in (["recover", "--yes"], ["rebuild-index"], ["rebuild-index", "--snapshots"]):
        run(*command, directory)
        for partition, then in before.items():
            said = {Path(one["file"]).name for one in problems if Path(one["file"]).parent == partition}
            assert touched(then, partition, said) == [], command


def test_a_repair_of_a_valid_directory_has_nothing_to_change(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    shutil.copytree(Corpus("k39-txn").log_dir().path, directory)
    assert run("recover", "--dry-run", directory).out == "6 partitions: 6 valid\n"


def test_one_segment_can_be_named_by_its_file(tmp_path: Path) -> None:
    directory = tmp_path / "c-b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.idx-missing-0").path, directory)
    assert klog("rebuild-index", directory / "00000000000000000025.log").returncode == 0
    assert (directory / "00000000000000000025.index").exists()
    assert not (directory / "00000000000000000000.index").exists()


def test_check_and_force_exclude_each_other(log_directory: Path) -> None:
    assert klog("rebuild-index", "--check", "--force", log_directory).returncode == 2


def test_verify_reports_nothing_for_a_valid_directory() -> None:
    done = klog("verify", Corpus("k39-codecs").log_dir().path)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1


def test_verify_reports_position_consequence_and_repair(log_directory: Path) -> None:
    done = klog("verify", "--json", log_directory)
    problems = [json.loads(line) for line in done.stdout.splitlines()]
    crc = next(problem for problem in problems if "checksum" in problem["what"])
    assert done.returncode == 1
    assert crc["file"].endswith("c-b.flip-first-0/00000000000000000000.log")
    assert (crc["position"], crc["severity"], crc["cure"]) == (646, "error", "klog recover")
    assert "cuts the log here" in crc["kafka"]


def test_verify_says_that_kafka_refuses_a_foreign_directory(log_directory: Path) -> None:
    (log_directory / "lost+found").mkdir()
    done = klog("verify", log_directory / "c-b.intact-0", log_directory)
    assert "refuses to start" in done.stdout
    assert done.returncode == 1


def test_a_missing_path_is_one_line_on_stderr(tmp_path: Path) -> None:
    for command in ("verify", "recover", "rebuild-index"):
        done = klog(command, tmp_path / "missing")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "missing" in done.stderr


def test_a_dry_run_shows_the_plan_and_changes_nothing(log_directory: Path) -> None:
    before = contents(log_directory / "c-b.flip-first-0")
    done = klog("recover", "--dry-run", log_directory)
    assert done.returncode == 0
    assert "cut     00000000000000000000.log at byte 646, 1,012 bytes removed" in done.stdout
    assert contents(log_directory / "c-b.flip-first-0") == before
    assert not (log_directory.parent / "klog-quarantine").exists()


def test_nothing_is_cut_without_a_yes(log_directory: Path) -> None:
    before = contents(log_directory / "c-b.flip-first-0")
    done = klog("recover", log_directory)
    assert done.returncode == 1
    assert "--yes" in done.stderr
    assert contents(log_directory / "c-b.flip-first-0") == before


def test_with_yes_the_log_is_cut_and_the_rest_is_kept_in_the_quarantine(log_directory: Path) -> None:
    done = klog("recover", "--yes", "--json", log_directory)
    outcomes = {
        Path(line["partitionDirectory"]).name: line for line in map(json.loads, done.stdout.splitlines())
    }
    cut = outcomes["c-b.flip-first-0"]
    assert done.returncode == 0
    assert cut["logEndOffset"] == 10
    quarantine = Path(cut["quarantine"])
    assert quarantine.parent == log_directory.parent / "klog-quarantine" / "logs" / "c-b.flip-first-0"
    assert (quarantine / "00000000000000000025.log").stat().st_size == 1599
    assert sorted(path.name for path in log_directory.iterdir()) == ["c-b.flip-first-0", "c-b.intact-0"]
    assert klog("verify", "--quiet", log_directory).returncode == 0


SPLIT_STEPS = [
    ("split", "00000000000000000025.log", "00000000002147483748.log"),
    ("setAside", "00000000000000000025.index", "of a segment that was split"),
    ("setAside", "00000000000000000025.timeindex", "of a segment that was split"),
    ("cut", "00000000000000000025.log", None),
    ("rebuild", "00000000000000000025.index", "missing"),
    ("rebuild", "00000000000000000025.timeindex", "missing"),
    ("rebuild", "00000000002147483748.index", "missing"),
    ("rebuild", "00000000002147483748.timeindex", "missing"),
]


def test_a_dry_run_shows_where_a_segment_is_split(tmp_path: Path) -> None:
    directory = overlong(tmp_path)
    before = contents(directory)
    done = klog("recover", "--dry-run", directory)
    headline, *lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert headline.startswith(f"{directory}: ")
    assert headline.endswith(" changes, 3 segments, offsets 0 to 2147483753")
    # Which producer snapshots are rewritten depends on the time at which the test runs.
    found, *steps = [line for line in lines if ".snapshot" not in line]
    why = "offset 2147483752 is too far from the segment's base for an index (KAFKA-6264)"
    assert found == f"  found   00000000000000000025.log at byte 1166: {why}"
    assert steps == [
        "  split   00000000000000000025.log, bytes 1166 to 1599 -> 00000000002147483748.log",
        "  aside   00000000000000000025.index (of a segment that was split)",
        "  aside   00000000000000000025.timeindex (of a segment that was split)",
        "  cut     00000000000000000025.log at byte 1166, 433 bytes removed",
        "  rebuild 00000000000000000025.index (missing)",
        "  rebuild 00000000000000000025.timeindex (missing)",
        "  rebuild 00000000002147483748.index (missing)",
        "  rebuild 00000000002147483748.timeindex (missing)",
        "1 partition: 0 valid",
    ]
    assert contents(directory) == before


@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
def test_a_split_is_reported_as_json_step_by_step(how: str, tmp_path: Path) -> None:
    directory = overlong(tmp_path)
    whole = (directory / "00000000000000000025.log").read_bytes()
    done = klog("recover", how, "--json", directory)
    result = json.loads(done.stdout)
    assert (done.returncode, result["outcome"]) == (0, "planned" if how == "--dry-run" else "recovered")
    assert (result["segments"], result["logEndOffset"], result["kafkaRefusesToStart"]) == (
        3,
        2147483753,
        False,
    )
    assert [(found["file"], found["position"], found["kafka"]) for found in result["findings"]] == [
        ("00000000000000000025.log", 1166, "splits the segment")
    ]
    steps = [step for step in result["steps"] if not step["file"].endswith(".snapshot")]
    assert [(step["do"], step["file"], step.get("to", step.get("why"))) for step in steps] == SPLIT_STEPS
    split, cut = steps[0], steps[3]
    assert (split["position"], split["end"], cut["position"], cut["size"]) == (1166, 1599, 1166, 1599)
    if how == "--dry-run":
        assert result["quarantine"] is None
        return
    assert (directory / "00000000000000000025.log").read_bytes() == whole[:1166]
    assert (directory / "00000000002147483748.log").read_bytes() == whole[1166:]
    assert (Path(result["quarantine"]) / "00000000000000000025.log.tail").read_bytes() == whole[1166:]
    again = klog("recover", "--dry-run", directory)
    assert again.stdout == "1 partition: 1 valid\n"


def test_dangling_links_are_skipped_as_by_kafka(log_directory: Path) -> None:
    valid = klog("recover", "--dry-run", log_directory)
    for partition in log_directory.iterdir():
        (partition / "00000000000000000001.log").symlink_to("nowhere")
        (partition / "00000000000000000002.log").symlink_to("00000000000000000002.log")
        (partition / "loop-0").symlink_to("loop-0")
    done = klog("recover", "--dry-run", log_directory)
    assert (done.returncode, done.stdout, done.stderr) == (valid.returncode, valid.stdout, valid.stderr)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.mark.parametrize("arguments", [("verify",), ("rebuild-index", "--check"), ("recover", "--dry-run")])
def test_unreadable_files_do_not_stop_the_others(
    arguments: tuple[str, ...], log_directory: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(log_directory / "c-b.intact-0", log_directory / "a-0")
    shutil.copytree(log_directory / "c-b.intact-0", log_directory / "b-0")

    # The tests may run as root, who may read everything. So the errors are simulated.
    def list_directory(path: str) -> list[os.DirEntry[str]]:
        if path.endswith("a-0"):
            raise StorageError("cannot be listed", file=path)
        return files.list_directory(path)

    class Guarded(files._PlainFile):
        def __init__(self, name: str, *rest: object, **named: object) -> None:
            if "/b-0/" in name and name.endswith(".log"):
                raise PermissionError(13, "Permission denied")
            super().__init__(name, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("klog.storage.files.partition_files.list_directory", list_directory)
    monkeypatch.setattr(files, "_PlainFile", Guarded)
    done = run(*arguments, log_directory)
    said = done.out + done.err
    assert done.code == 1
    assert "a-0: cannot be listed" in said
    assert "b-0/00000000000000000000.log: cannot be opened: Permission denied" in said
    assert "c-b.flip-first-0" in said
    assert "b-0/00000000000000000000.log: cannot be opened: Permission denied; Kafka cuts" not in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("command", [("verify",), ("recover", "--dry-run"), ("dump-segment", "-f", "jsonl")])
def test_a_full_disk_under_stdout_is_one_clear_line(command: tuple[str, ...]) -> None:
    valid = Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", RUN, *command, valid], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "klog: standard output cannot be written: No space left on device (free some space)"
    ]


def test_the_recovery_point_is_lowered_to_the_logs_end(log_directory: Path) -> None:
    checkpoint = log_directory / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n2\nc-b.flip-first 0 45\nother 3 7\n")
    assert klog("recover", "--yes", log_directory).returncode == 0
    assert checkpoint.read_text() == "0\n2\nc-b.flip-first 0 10\nother 3 7\n"


def test_a_directory_that_a_broker_has_open_is_refused(log_directory: Path) -> None:
    with (log_directory / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # what Java's FileChannel.tryLock does
        done = klog("recover", "--yes", log_directory)
    assert done.returncode == 1
    assert f"process {os.getpid()} (" in done.stderr
    assert "holds this log directory" in done.stderr


@pytest.mark.parametrize("named", ["log directory", "partition", "segment"])
def test_indexes_that_a_broker_has_open_may_be_allocated_in_full(named: str, tmp_path: Path) -> None:
    directory = tmp_path / "b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, directory)
    index = directory / "00000000000000000025.index"
    index.write_bytes(index.read_bytes() + bytes(800))
    path = {"log directory": tmp_path, "partition": directory, "segment": index.with_suffix(".log")}[named]
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert "allocated in full" not in klog("verify", path).stdout
    assert f"{index}: is allocated in full" in klog("verify", path).stdout


def test_the_quarantine_must_be_outside_of_log_directories(log_directory: Path) -> None:
    done = klog("recover", "--yes", "--quarantine", log_directory / "cut", log_directory)
    assert done.returncode == 2
    assert not (log_directory / "cut").exists()


def test_missing_snapshots_are_reported_and_are_no_error(tmp_path: Path) -> None:
    directory = tmp_path / "c-b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, directory)
    oldest, *newer = sorted(directory.glob("*.snapshot"))
    oldest.unlink()
    done = klog("rebuild-index", "--check", "--snapshots", "--json", directory)
    found = {Path(line["file"]).name: line["status"] for line in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, found[oldest.name]) == (0, "absent")
    assert not oldest.exists()
    made = klog("rebuild-index", "--snapshots", directory)
    assert (made.returncode, oldest.exists()) == (0, True)
    newer[0].write_bytes(b"no snapshot")
    assert klog("rebuild-index", "--check", "--snapshots", directory).returncode == 1


def test_verify_has_an_option_for_the_limit_of_decompression() -> None:
    partition = Corpus("k39-codecs").log_dir().partition("t-gzip-0").path
    assert klog("verify", partition).returncode == 0
    done = klog("verify", "--max-decompressed-bytes", "700", partition)
    assert done.returncode == 1
    assert "grows past 700 bytes" in done.stdout


def test_recover_ends_with_what_it_repaired(log_directory: Path) -> None:
    done = klog("recover", "--yes", log_directory)
    assert done.returncode == 0
    last = done.stdout.splitlines()[-1]
    assert last.startswith("repaired 1 partition: 1 file cut, ")
    assert last.endswith("bytes are no longer in the log")
    assert "repaired" not in klog("recover", "--yes", log_directory).stdout


def gzipped(tmp_path: Path, name: str) -> Path:
    """A directory with gzip copies of a partition's segments, and nothing else."""
    directory = tmp_path / "b-0"
    directory.mkdir()
    for log in Corpus("corrupt-k39").log_dir().partition(name).files(".log"):
        (directory / f"{log.name}.gz").write_bytes(gzip.compress(log.read_bytes()))
    return directory


def test_verify_reads_gzip_copies_of_segments_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    valid = klog("verify", gzipped(tmp_path, "c-b.intact-0"))
    assert valid.returncode == 0
    assert "1 partition, 2 segments: 0 errors, 2 notes" in valid.stdout
    assert valid.stdout.count("is a gzip copy, of which verify reads only") == 2


def test_verify_finds_damage_in_a_gzip_copy_that_is_named(tmp_path: Path) -> None:
    copy = gzipped(tmp_path, "c-b.flip-last-0") / "00000000000000000025.log.gz"
    damaged = klog("verify", copy)
    assert damaged.returncode == 1
    assert "fails its checksum" in damaged.stdout
    assert "repair: unpack it" in damaged.stdout
    copy.write_bytes(copy.read_bytes()[:-20])
    assert "the gzipped copy" in klog("verify", copy).stdout


def test_recover_begins_no_new_log_beside_gzip_copies(tmp_path: Path) -> None:
    directory = gzipped(tmp_path, "c-b.intact-0")
    before = contents(directory)
    done = klog("recover", "--yes", directory)
    assert done.returncode == 1
    assert "holds gzip copies of segments and no segments (unpack them first)" in done.stderr
    assert contents(directory) == before


@pytest.mark.parametrize("is_brokers", [True, False])
def test_a_checkpoint_that_a_killed_command_was_writing_goes(log_directory: Path, is_brokers: bool) -> None:
    half = log_directory / "recovery-point-offset-checkpoint.4711.tmp"
    half.write_text("0\n")
    if is_brokers:
        (log_directory / ".lock").touch()
    assert klog("recover", "--dry-run", log_directory).returncode == 0
    assert half.exists()
    assert klog("recover", "--yes", log_directory).returncode == 0
    assert not half.exists()


def test_an_index_that_a_killed_rebuild_was_writing_goes(log_directory: Path) -> None:
    half = log_directory / "c-b.intact-0" / "00000000000000000000.index.4711.tmp"
    half.write_bytes(b"half")
    klog("rebuild-index", "--check", log_directory)
    assert half.exists()
    klog("rebuild-index", log_directory)
    assert not half.exists()
