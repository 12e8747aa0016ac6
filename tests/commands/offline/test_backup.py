"""`klog backup` as it is run: exit codes, what is said to people and to programs, bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from klog.backup.model import Problem
from klog.backup.reading import open_backups
from klog.cluster_metadata import json_form
from klog.cluster_metadata.model import Cluster
from klog.commands.offline.backing.rows import problem_lines
from klog.formats.names import TopicPartition
from tests import corpora
from tests.backup.repositories import Backups
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica, write_segment
from tests.waiting import eventually

CORPUS = corpora.Corpus("k39-txn").log_dir().path


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    replica(tmp_path / "logs" / "orders-0", [batch(5 * each, 5) for each in range(8)])
    replica(tmp_path / "logs" / "payments-0", [batch(5 * each, 5) for each in range(4)])
    return tmp_path / "logs"


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def backup(klog: Run, *arguments: object) -> dict[str, Any]:
    done = klog("backup", "run", *arguments, "-o", "jsonl")
    assert (done.code, done.err) == (0, "")
    [row] = rows(done.out)
    return row


def test_a_backup_of_what_kafka_wrote(klog: Run, tmp_path: Path) -> None:
    done = klog("backup", "run", CORPUS, "--to", tmp_path / "r")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("backup 20")
    assert " partitions, " in done.out

    done = klog("backup", "verify", tmp_path / "r")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("0 problems\n")


def test_rows_for_programs(klog: Run, logs: Path, tmp_path: Path) -> None:
    made = backup(klog, logs, "--to", tmp_path / "r")
    assert (made["partitions"], made["changedPartitions"], made["problems"]) == (2, 2, [])

    [listed] = rows(klog("backup", "list", tmp_path / "r", "--json").out)
    assert (listed["id"], listed["partitions"], listed["topics"]) == (made["id"], 2, 2)

    topics = rows(klog("backup", "show", tmp_path / "r", "--json").out)
    assert [(row["topic"], row["from"], row["to"]) for row in topics] == [
        ("orders", listed["begin"], listed["begin"]),
        ("payments", listed["begin"], listed["begin"]),
    ]

    partitions = rows(klog("backup", "show", tmp_path / "r", made["id"], "--json").out)
    assert [(row["topic"], row["partition"], row["endOffset"]) for row in partitions] == [
        ("orders", 0, 40),
        ("payments", 0, 20),
    ]


def test_topics_by_patterns_and_what_was_carried_over(klog: Run, logs: Path, tmp_path: Path) -> None:
    first = backup(klog, logs, "--to", tmp_path / "r")
    write_segment(logs / "orders-0", [batch(40, 5)])
    write_segment(logs / "payments-0", [batch(20, 5)])
    second = backup(klog, logs, "--to", tmp_path / "r", "--topic", "order.*")

    partitions = rows(klog("backup", "show", tmp_path / "r", second["id"], "--json").out)
    assert [(row["topic"], row["endOffset"]) for row in partitions] == [("orders", 45), ("payments", 20)]
    begins = {row["id"]: row["begin"] for row in rows(klog("backup", "list", tmp_path / "r", "--json").out)}
    assert partitions[0]["asOf"] == begins[second["id"]]
    assert begins[first["id"]] <= partitions[1]["asOf"] < begins[second["id"]]


def test_a_mistyped_topic_is_said_and_makes_the_exit_code_1(klog: Run, logs: Path, tmp_path: Path) -> None:
    done = klog("backup", "run", logs, "--to", tmp_path / "r", "--topic", "ordres", "--topic", "pay.*")
    assert done.code == 1
    assert "klog: no topic matches ordres, neither in the sources nor in the backup" in done.err
    assert "pay" not in done.err

    # Another broker's runs may be for topics that only this one has.
    other = replica(tmp_path / "other" / "clicks-0", [batch(0, 5)]).parent
    assert klog("backup", "run", other, "--to", tmp_path / "r", "--topic", "pay.*").code == 0


def test_the_same_problem_of_many_partitions_is_one_line() -> None:
    problems = [
        Problem(TopicPartition("orders", number), f"reading orders-{number}: refused") for number in (0, 1, 2)
    ]
    other = Problem(TopicPartition("payments", 0), "reading payments-0: refused")
    assert list(problem_lines([*problems, other, Problem(None, "no metadata")])) == [
        "orders-0: reading orders-0: refused; so it is with 2 other partitions of the topic",
        "payments-0: reading payments-0: refused",
        "no metadata",
    ]


def test_damage_makes_the_exit_code_1(klog: Run, logs: Path, tmp_path: Path) -> None:
    path = logs / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)

    done = klog("backup", "run", logs, "--to", tmp_path / "r")

    assert done.code == 1
    assert f"klog: orders-0: {path} at byte 0: the batch fails its checksum" in done.err
    assert "records of orders-0 are damaged at their source, and not in the backup" in done.err
    assert "2 partitions" in done.out


def test_a_damaged_object_makes_the_exit_code_1(klog: Run, logs: Path, tmp_path: Path) -> None:
    made = backup(klog, logs, "--to", tmp_path / "r")
    path = sorted((tmp_path / "r" / "data" / "orders-0").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-1])

    done = klog("backup", "verify", tmp_path / "r", "--sample", "0")

    assert done.code == 1
    assert f"{path}: has " in done.err
    assert f"backup {made['id']} needs it" in done.err
    [row] = rows(klog("backup", "verify", tmp_path / "r", "--json").out)
    assert row["backup"] == made["id"]


def test_prune_says_what_it_will_remove(klog: Run, logs: Path, tmp_path: Path) -> None:
    first = backup(klog, logs, "--to", tmp_path / "r")
    second = backup(klog, logs, "--to", tmp_path / "r")
    prune = ("backup", "prune", tmp_path / "r", "--keep-last", 1, "--grace", "0s", "--no-runs")

    done = klog(*prune, "--dry-run")
    assert done.code == 0
    assert done.out.startswith(f"would remove backup {first['id']}\n1 backup kept; 1 backup and ")

    done = klog(*prune)
    assert done.code == 1
    assert "nothing was changed" in done.err

    would = json.loads(klog(*prune, "--dry-run", "-o", "json").out)
    done = klog(*prune, "--yes", "-o", "json")
    assert done.code == 0
    assert json.loads(done.out) == [row | {"result": "removed"} for row in would]
    assert ("backup", first["id"]) in [(row["kind"], row["name"]) for row in would]
    [left] = rows(klog("backup", "list", tmp_path / "r", "--json").out)
    assert left["id"] == second["id"]
    assert klog("backup", "verify", tmp_path / "r").code == 0


def test_young_backups_are_kept(klog: Run, logs: Path, tmp_path: Path) -> None:
    for _ in range(2):
        backup(klog, logs, "--to", tmp_path / "r")
    done = klog("backup", "prune", tmp_path / "r", "--keep-last", 1)
    assert (done.code, done.err) == (0, "")
    assert done.out == "2 backups kept, 1 of them for their age; 0 backups and 0 objects (0 B) to remove\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "{logs}", "--to", "{logs}"), 2, "the repository lies in the source"),
        (("run", "{logs}", "--to", "{logs}/backup"), 2, "the repository lies in the source"),
        (("run", "{repository}/data", "--to", "{logs}"), 2, "holds files and is no backup repository"),
        (("run", "{tmp}/nowhere", "--to", "{tmp}/r"), 1, "is no directory"),
        (("run", "{logs}", "--to", "{tmp}/r", "--topic", "("), 2, "is not a regular expression"),
        (("run", "{logs}", "--to", "{tmp}/r", "--compression", "lzo"), 2, "is not a compression"),
        (("run", "{logs}", "--to", "{tmp}/r", "--every", "soon"), 2, "is not a span of time"),
        (("run", "s3://bucket/logs", "--to", "{tmp}/r"), 2, "a backup reads log directories of local disks"),
        (("list", "{tmp}"), 1, "is no backup repository"),
        (("show", "{repository}", "20261124T100000000Z-abcd"), 1, "there is no backup"),
        (("show", "{repository}", "../x"), 2, "is not the id of a backup"),
        (("verify", "{repository}", "--backup", "x"), 2, "is not the id of a backup"),
        (("prune", "{repository}"), 2, "nothing says which backups to keep"),
        (("prune", "{repository}", "--keep-last", "1", "--grace", "1h"), 2, "may remove what a run"),
    ],
)
def test_bad_input(klog: Run, logs: Path, tmp_path: Path, arguments, code: int, said: str) -> None:
    backup(klog, logs, "--to", tmp_path / "repository")
    places = {"logs": logs, "tmp": tmp_path, "repository": tmp_path / "repository"}

    done = klog("backup", *(each.format(**places) for each in arguments))

    assert (done.code, said in done.err, done.out) == (code, True, ""), done.err


def test_a_repository_of_a_newer_klog_is_not_touched(klog: Run, logs: Path, tmp_path: Path) -> None:
    backup(klog, logs, "--to", tmp_path / "r")
    info = tmp_path / "r" / "klog-backup.json"
    info.write_text(info.read_text().replace('"version":1', '"version":2'))

    done = klog("backup", "run", logs, "--to", tmp_path / "r")

    assert done.code == 1
    assert f"{info}: has version 2 of the format (use a klog that is not older" in done.err


def test_the_metadata_is_kept_and_carried_over(klog: Run, logs: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "cluster.json"
    cluster = Cluster(cluster_id="abc", features={"kraft.version": 1})
    metadata.write_bytes(json_form.encode(cluster))
    made = [backup(klog, logs, "--to", tmp_path / "r", "--metadata", metadata)]
    made.append(backup(klog, logs, "--to", tmp_path / "r"))

    repository = open_backups(str(tmp_path / "r"))
    for each in made:
        stored = repository.manifest(each["id"]).metadata
        assert stored is not None
        assert json_form.decode(repository.read_stored(stored)) == cluster


@pytest.mark.parametrize(
    "source", [["{tmp}/nowhere"], ["{tmp}"], ["-b", "127.0.0.1:1", "--timeout-ms", "100"]]
)
def test_a_source_that_is_not_there_makes_no_repository(klog: Run, tmp_path: Path, source: list[str]) -> None:
    """Whether it is encrypted, and how it is compressed, could not be changed later."""
    words = [each.format(tmp=tmp_path) for each in source]

    done = klog("backup", "run", *words, "--to", tmp_path.parent / f"{tmp_path.name}-r")

    assert done.code == 1
    assert not (tmp_path.parent / f"{tmp_path.name}-r" / "klog-backup.json").exists()


def test_of_two_runs_at_once_the_earlier_begin_is_shown_first(klog: Run, logs: Path, tmp_path: Path) -> None:
    """The id of a backup is of its end: the one that began first may have ended last."""
    backups = Backups(tmp_path / "r")
    began = iter([1_000_000])
    backups.run(logs, now_ms=lambda: 2_000_000)
    backups.run(logs, now_ms=lambda: next(began, 3_000_000))

    rows = [json.loads(line) for line in klog("backup", "show", tmp_path / "r", "--json").out.splitlines()]

    assert {(row["from"], row["to"]) for row in rows} == {(1_000_000, 2_000_000)}


def test_times_of_backups_are_shown_with_their_zone(
    klog: Run, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "XYZ-3")
    time.tzset()
    try:
        backup(klog, logs, "--to", tmp_path / "r")
        for words in (["list", tmp_path / "r"], ["show", tmp_path / "r"]):
            assert " XYZ " in klog("backup", *words).out
    finally:
        monkeypatch.undo()
        time.tzset()


def test_metadata_that_cannot_be_read_stays_and_logs_are_backed_up(
    klog: Run, logs: Path, tmp_path: Path
) -> None:
    metadata = tmp_path / "cluster.json"
    metadata.write_bytes(json_form.encode(Cluster(cluster_id="abc", features={"kraft.version": 1})))
    backup(klog, logs, "--to", tmp_path / "r", "--metadata", metadata)
    write_segment(logs / "orders-0", [batch(40, 5)])
    metadata.write_text("{}")
    done = klog("backup", "run", logs, "--to", tmp_path / "r", "--metadata", metadata)
    assert done.code == 1
    assert "the metadata could not be read; that of the backup before stays, if there is one" in done.err
    assert "cluster.json" in done.err
    repository = open_backups(str(tmp_path / "r"))
    first, second = map(repository.manifest, repository.ids())
    assert second.metadata == first.metadata
    assert repository.partitions(second)[TopicPartition("orders", 0)].end_offset == 45


def test_runs_go_on_until_they_are_interrupted(logs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "klog", "backup", "run", str(logs), "--to", str(tmp_path / "r")]
    with subprocess.Popen(
        [*command, "--every", "100ms", "--throttle", "1g", "-o", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        made = [json.loads(process.stdout.readline()) for _ in range(2)]
        (logs / "orders-0").rename(tmp_path / "orders-0")  # a topic is deleted
        made.append(_first_with(process.stdout, removed=1))
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert [each["changedPartitions"] for each in made[:2]] in ([2, 0], [2, 2])
    assert made[2]["partitions"] == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_ends_a_run_in_the_middle_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int, jobs: int
) -> None:
    for topic in ("orders", "payments"):
        replica(tmp_path / "logs" / f"{topic}-0", [batch(each, size=100_000) for each in range(60)])
    place = tmp_path / "r"
    command = [sys.executable, "-m", "klog", "backup", "run", str(tmp_path / "logs"), "--to", str(place)]
    with subprocess.Popen(
        [*command, "--jobs", str(jobs), "--throttle", "1m"], stderr=subprocess.PIPE, text=True
    ) as process:
        info = place / "klog-backup.json"
        eventually(lambda: info.exists() and any(place.rglob("*.tmp")), 30)
        process.send_signal(number)
        _, said = process.communicate()
    assert (process.returncode, said) == (code, "")
    assert [each.name for each in place.rglob("*") if each.is_file()] == [info.name]


def test_sigterm_ends_runs_that_are_repeated(logs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "klog", "backup", "run", str(logs), "--to", str(tmp_path / "r")]
    with subprocess.Popen(
        [*command, "--every", "1h", "-o", "jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["partitions"] == 2
        process.terminate()
        _, said = process.communicate()
    assert (process.returncode, said) == (143, "")


def _first_with(lines: Iterable[str], *, removed: int) -> dict[str, Any]:
    return next(row for row in map(json.loads, lines) if row["removedPartitions"] == removed)
