"""PATH arguments become files in Kafka's order; arguments that give no file are reported."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from klog.formats.errors import KlogError, StorageError
from klog.formats.names import FileKind, FileState
from klog.storage.files import files, kafka_files
from klog.storage.files.kafka_files import expand, identify


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def below(root: Path, found: list[kafka_files.KafkaFile]) -> list[str]:
    return [Path(file.path).relative_to(root).as_posix() for file in found]


def test_partitions_come_by_number_and_segments_by_offset(tmp_path: Path) -> None:
    make(tmp_path, f"a-10/{0:020d}.log", f"a-2/{100:020d}.log", f"a-2/{7:020d}.log", f"a-2/{7:020d}.index")
    assert below(tmp_path, expand([str(tmp_path)])) == [
        f"a-2/{7:020d}.log",
        f"a-2/{100:020d}.log",
        f"a-10/{0:020d}.log",
    ]


def test_in_a_directory_only_live_segments_are_taken_unless_all_are_requested(tmp_path: Path) -> None:
    names = [f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.snapshot", f"{5:020d}.log.deleted"]
    make(tmp_path / "a-0", *names, "leader-epoch-checkpoint", "notes.md", ".lock")
    assert below(tmp_path / "a-0", expand([str(tmp_path / "a-0")])) == [names[0]]
    everything = expand([str(tmp_path / "a-0")], all_kinds=True)
    assert below(tmp_path / "a-0", everything) == ["leader-epoch-checkpoint", *names]
    assert everything[-1].state is FileState.DELETED


def test_a_file_met_twice_is_taken_once(tmp_path: Path) -> None:
    make(tmp_path, f"a-0/{0:020d}.log")
    path = str(tmp_path / "a-0" / f"{0:020d}.log")
    assert len(expand([path, str(tmp_path), str(tmp_path / "a-*" / "*.log")])) == 1


@pytest.mark.parametrize(
    ("name", "kind", "base_offset"),
    [
        ("a-0/00000000000000000042.log", FileKind.LOG, 42),
        ("a-0/00000000000000000042.log.gz", FileKind.LOG, 42),
        ("a-0/saved.log", FileKind.LOG, None),
        ("a-0/copy.timeindex", FileKind.TIME_INDEX, None),
        ("a-0/partition.metadata", FileKind.PARTITION_METADATA, None),
    ],
)
def test_a_name_gives_kind_offset_and_partition(name: str, kind: FileKind, base_offset: int | None) -> None:
    file = identify(name)
    assert file is not None
    assert (file.kind, file.base_offset, file.topic, file.partition) == (kind, base_offset, "a", 0)


def test_arguments_without_files_are_reported_and_the_others_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, f"a-0/{0:020d}.log", f"a-1/{0:020d}.log", f"a-2/{0:020d}.log", "letter.txt")

    def refuse(path: str) -> list[os.DirEntry[str]]:
        # The tests may run as root, to whom nothing is denied.
        if path.endswith("a-1"):
            raise files.storage_error("cannot be listed", path, PermissionError(errno.EACCES, "denied"))
        return files.list_directory(path)

    monkeypatch.setattr(kafka_files, "list_directory", refuse)
    problems: list[KlogError] = []
    found = expand([str(tmp_path / "letter.txt"), str(tmp_path)], on_problem=problems.append)
    assert below(tmp_path, found) == [f"a-0/{0:020d}.log", f"a-2/{0:020d}.log"]
    assert [problem.file for problem in problems] == [str(tmp_path / "letter.txt"), str(tmp_path / "a-1")]
    with pytest.raises(StorageError):
        expand([str(tmp_path / "letter.txt")])


def test_a_directory_in_a_loop_of_links_is_visited_once(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020}.log").touch()
    (partition / "t-1").symlink_to(partition)
    (partition / "t-2").symlink_to(tmp_path)
    problems: list[KlogError] = []
    found = expand([str(tmp_path)], on_problem=problems.append)
    assert [file.path for file in found] == [str(partition / f"{0:020}.log")]
    assert problems == []
