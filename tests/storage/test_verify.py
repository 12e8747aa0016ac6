"""Verification finds no errors in what brokers wrote, and at least one problem for every damage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.storage.repair.index_reports import RebuildOptions
from klog.storage.repair.problem import Problem, Severity
from klog.storage.repair.verify import scope_of, verify
from tests.corpora import Corpus, LogDirectory, PartitionDirectory, corpora, log_dirs
from tests.storage.partition_copies import KAFKA_INDEXES, NOW_MS, contents, damaged

OPTIONS = RebuildOptions(NOW_MS, KAFKA_INDEXES, check=True)
SOUND = [d for d in log_dirs([c for c in corpora() if not c.is_corrupt]) if str(d) != "k39-unclean/logs"]


def problems(*paths: Path, deep: bool = True) -> list[Problem]:
    return list(verify(scope_of(map(str, paths)), OPTIONS, deep=deep, on_bytes=lambda _: None))


def errors(*paths: Path, deep: bool = True) -> list[Problem]:
    return [problem for problem in problems(*paths, deep=deep) if problem.severity is Severity.ERROR]


@pytest.mark.parametrize("log_dir", SOUND, ids=str)
def test_what_brokers_wrote_is_free_of_errors(log_dir: LogDirectory) -> None:
    assert errors(log_dir.path) == []


SOUND_COPIES = {"c-b.intact-0"}
# 0.8 wrote neither snapshots nor time indexes, so nothing was damaged.
SOUND_AT_08 = {"c-b.bad-snapshot-0", "c-b.no-snapshots-0", "c-b.tidx-missing-0"}


@pytest.mark.parametrize("partition", damaged(), ids=str)
def test_every_corruption_is_found_and_nothing_is_changed(partition: PartitionDirectory) -> None:
    old = partition.corpus.name == "corrupt-k08"
    before = contents(partition.path)
    found = problems(partition.path)
    if old:
        found = [problem for problem in found if problem.what != ".timeindex is missing"]
    sound = SOUND_COPIES | (SOUND_AT_08 if old else set())
    assert (found == []) == (partition.name in sound)
    assert contents(partition.path) == before


def test_an_index_that_a_killed_broker_did_not_cut_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Corpus("corrupt-k39").log_dir().partition("c-b.idx-oversized-0").path
    found = problems(path)
    assert {Path(problem.file).suffix for problem in found} == {".index", ".timeindex"}
    assert {(problem.severity, problem.cure) for problem in found} == {(Severity.NOTE, "klog recover")}
    monkeypatch.setattr("klog.storage.repair.verify.holder_of", lambda _: "process 4711")
    assert problems(path) == []  # a broker that runs needs its indexes so


@pytest.mark.parametrize("partition", damaged(), ids=str)
def test_shallow_finds_the_same_bad_bytes(partition: PartitionDirectory) -> None:
    def places(found: list[Problem]) -> set[int | None]:
        return {problem.position for problem in found if "checksum" in problem.what or "size" in problem.what}

    assert places(problems(partition.path, deep=False)) == places(problems(partition.path))


Damage = Callable[[Path], object]


def _write(name: str, text: str) -> Damage:
    return lambda directory: (directory / name).write_text(text)


def _link(name: str, target: str) -> Damage:
    return lambda directory: (directory / name).symlink_to(target)


@pytest.mark.parametrize(
    ("damage", "what", "kafka"),
    [
        (lambda d: (d / "lost+found").mkdir(), "not topic-partition", "refuses to start"),
        (_write("recovery-point-offset-checkpoint", "0\n2\nb 0 1\n"), "2 entries announced", "offline"),
        (_write("log-start-offset-checkpoint", "0\n1\nb 0 100\n"), "ends at 45", "deletes all segments"),
        (_write("meta.properties", "version=1\n"), "", "refuses to start"),
        (_write("b-0/leader-epoch-checkpoint", "0\n2\n3 0\n2 5\n"), "does not ascend", "drops"),
        (_write("b-0/leader-epoch-checkpoint", "zero\n"), "", "offline"),
        (_link("b-0/00000000000000000100.log", "nowhere"), "broken link", "without them"),
        (_link("b-0/00000000000000000100.log", "00000000000000000100.log"), "broken link", "without them"),
        (_write("b-0/partition.metadata", "version: x\n"), "", "offline"),
    ],
)
def test_each_damage_of_a_log_directory_is_reported(
    damage: Damage, what: str, kafka: str, tmp_path: Path
) -> None:
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, tmp_path / "b-0")
    assert errors(tmp_path) == []
    damage(tmp_path)
    assert [p for p in errors(tmp_path) if what in p.what and kafka in p.kafka]


@pytest.mark.parametrize(
    "damage",
    [
        _write("stray.txt", "?"),
        _write("b-0/00000000000000000000.log.deleted", ""),
        _write("b-0/notes.txt", "?"),
        _write("replication-offset-checkpoint", "0\n2\nb 0 100\ngone 0 1\n"),
        _write("b-0/leader-epoch-checkpoint", "0\n1\n0 12\n"),  # as it is after delete-records
        lambda d: (d / "b-0/00000000000000000100.log").mkdir(),
        lambda d: os.mkfifo(d / "b-0/00000000000000000100.log"),
        lambda d: (d / "b-0/lost").symlink_to("nowhere"),
        lambda d: (d / f"b-1.{'0' * 32}-delete").mkdir(),
    ],
)
def test_what_kafka_repairs_itself_is_a_note(damage: Damage, tmp_path: Path) -> None:
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, tmp_path / "b-0")
    damage(tmp_path)
    found = problems(tmp_path)
    assert found
    assert {problem.severity for problem in found} == {Severity.NOTE}


def test_one_partition_in_two_log_directories_is_reported(tmp_path: Path) -> None:
    source = Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path
    for disk in ("one", "two"):
        shutil.copytree(source, tmp_path / disk / "b-0")
    found = errors(tmp_path / "one", tmp_path / "two")
    assert ["Duplicate log directories" in problem.kafka for problem in found] == [True]


def test_directories_of_two_clusters_are_reported(tmp_path: Path) -> None:
    for disk, cluster in (("one", "aaaaaaaaaaaaaaaaaaaaaA"), ("two", "bbbbbbbbbbbbbbbbbbbbbA")):
        (tmp_path / disk).mkdir()
        (tmp_path / disk / "meta.properties").write_text(f"version=0\nbroker.id=0\ncluster.id={cluster}\n")
    assert ["cluster.id" in problem.what for problem in errors(tmp_path / "one", tmp_path / "two")] == [True]


def test_a_snapshot_that_is_behind_the_batches_is_reported(tmp_path: Path) -> None:
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, tmp_path / "b-0")
    older = tmp_path / "b-0" / "00000000000000000025.snapshot"
    shutil.copy(older, tmp_path / "b-0" / "00000000000000000045.snapshot")
    assert ["its last batch ends at 44" in problem.what for problem in errors(tmp_path)] == [True]


def test_a_snapshot_need_not_know_batches_below_the_log_start(tmp_path: Path) -> None:
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, tmp_path / "b-0")
    older = tmp_path / "b-0" / "00000000000000000025.snapshot"
    shutil.copy(older, tmp_path / "b-0" / "00000000000000000045.snapshot")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nb 0 44\n")
    assert ["its last batch ends at 44" in problem.what for problem in errors(tmp_path)] == [True]
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nb 0 45\n")
    assert errors(tmp_path) == []
