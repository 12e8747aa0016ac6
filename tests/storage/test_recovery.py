"""Recovery does what Kafka's own does after an unclean stop, and keeps everything that it removes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from klog.formats import message_set
from klog.formats.errors import StorageError
from klog.storage.files.disk import Disk
from klog.storage.reading.producer_state import pack_snapshot, producers_in, unpack_snapshot
from klog.storage.repair.recovery import plan_recovery
from klog.storage.repair.recovery_plan import RecoverySettings
from klog.storage.repair.recovery_run import run_recovery
from tests.corpora import Corpus, PartitionDirectory
from tests.storage.partition_copies import (
    SETTINGS,
    after_kafka,
    as_kafka_reads,
    batch_positions,
    contents,
    copied,
    damaged,
    overlong,
    refused,
    unclean,
)


def recovered(directory: Path, root: Path, settings: RecoverySettings = SETTINGS) -> dict[str, bytes]:
    run_recovery(plan_recovery(str(directory), settings), settings, str(root / "quarantine"))
    return as_kafka_reads(contents(directory))


@pytest.mark.parametrize("partition", damaged(), ids=str)
def test_every_file_is_byte_for_byte_what_kafka_leaves(partition: PartitionDirectory, tmp_path: Path) -> None:
    expected = after_kafka(partition)
    got = recovered(copied(partition, tmp_path), tmp_path)
    if expected is None:
        assert refused(partition, "unclean")
        return
    assert got.keys() == expected.keys()
    assert [name for name in got if got[name] != expected[name]] == []


@pytest.mark.parametrize("partition", damaged(), ids=str)
def test_the_plan_says_where_kafka_refuses_to_start(partition: PartitionDirectory) -> None:
    plan = plan_recovery(str(partition.path), SETTINGS)
    assert (plan.kafka_refuses is not None) == refused(partition, "unclean")


def test_the_log_is_cut_at_the_batch_that_kafka_refuses(tmp_path: Path) -> None:
    partition = Corpus("corrupt-k39").log_dir().partition("c-b.base-offset-0")
    got = recovered(copied(partition, tmp_path), tmp_path)
    position = partition.corpus.manifest["corruptions"][partition.name]["batch_pos"]
    assert len(got["00000000000000000025.log"]) == position


@pytest.mark.parametrize("partition", unclean("k39-unclean"), ids=str)
def test_a_killed_brokers_directory_ends_as_after_its_own_restart(
    partition: PartitionDirectory, tmp_path: Path
) -> None:
    assert recovered(copied(partition, tmp_path), tmp_path) == after_kafka(partition)


@pytest.mark.parametrize("partition", unclean("k010-unclean"), ids=str)
def test_an_old_brokers_directory_ends_as_kafka_3_9_would_leave_it(
    partition: PartitionDirectory, tmp_path: Path
) -> None:
    """0.10 indexed first offsets and had neither snapshots nor leader epochs."""
    expected = after_kafka(partition)
    got = recovered(copied(partition, tmp_path), tmp_path)
    assert expected is not None
    ours = {name for name in got if name.endswith(".snapshot") or name == "leader-epoch-checkpoint"}
    assert got.keys() - ours == expected.keys()
    kinds = (".log", ".timeindex")
    assert [n for n in expected if n.endswith(kinds) and got[n] != expected[n]] == []


@pytest.mark.parametrize("partition", [*damaged(), *unclean("k39-unclean")], ids=str)
def test_recovering_twice_changes_nothing_more(partition: PartitionDirectory, tmp_path: Path) -> None:
    directory = copied(partition, tmp_path)
    recovered(directory, tmp_path)
    assert plan_recovery(str(directory), SETTINGS).steps == ()


@pytest.mark.parametrize("partition", damaged(), ids=str)
def test_a_plan_changes_nothing(partition: PartitionDirectory, tmp_path: Path) -> None:
    directory = copied(partition, tmp_path)
    before = contents(directory)
    plan_recovery(str(directory), SETTINGS)
    assert contents(directory) == before


def put_back(quarantine: Path, directory: Path) -> None:
    manifest = json.loads((quarantine / "manifest.json").read_text())
    assert manifest["complete"]
    for entry in reversed(manifest["files"]):
        if entry["how"] == "renamed":
            (directory / entry["keptAs"]).rename(directory / entry["file"])
            continue
        kept = (quarantine / entry["keptAs"]).read_bytes()
        target = directory / entry["file"]
        if entry["how"] == "tail":
            assert target.stat().st_size == entry["position"]
            kept = target.read_bytes() + kept
        target.write_bytes(kept)


@pytest.mark.parametrize("partition", damaged(), ids=str)
def test_the_manifest_puts_everything_back(partition: PartitionDirectory, tmp_path: Path) -> None:
    directory = copied(partition, tmp_path)
    plan = plan_recovery(str(directory), SETTINGS)
    result = run_recovery(plan, SETTINGS, str(tmp_path / "quarantine"))
    if result.quarantine is not None:
        put_back(Path(result.quarantine), directory)
    original = contents(partition.path)
    restored = contents(directory)
    assert {name: restored[name] for name in original} == original


class FailingDisk(Disk):
    """Stops before its nth change, as a power failure would."""

    def __init__(self, changes: int) -> None:
        super().__init__()
        self.changes_left = changes

    def _step(self) -> None:
        if self.changes_left == 0:
            raise StorageError("power cut")
        self.changes_left -= 1

    def make_directories(self, path: str) -> None:
        self._step()
        super().make_directories(path)

    def move(self, source: str, target: str) -> None:
        self._step()
        super().move(source, target)

    def preserve(self, source: str, target: str) -> None:
        self._step()
        super().preserve(source, target)

    def save_tail(self, source: str, start_bytes: int, target: str) -> None:
        self._step()
        super().save_tail(source, start_bytes, target)

    def save_zeros(self, size_bytes: int, target: str) -> None:
        self._step()
        super().save_zeros(size_bytes, target)

    def truncate(self, path: str, size_bytes: int) -> None:
        self._step()
        super().truncate(path, size_bytes)

    def copy_part(self, source: str, start_bytes: int, end_bytes: int, target: str) -> None:
        self._step()
        super().copy_part(source, start_bytes, end_bytes, target)

    def replace(self, path: str, data: bytes) -> None:
        self._step()
        super().replace(path, data)


def killed_at_each_step(work: Path, fresh: Callable[[Path], Path], expected: dict[str, bytes] | None) -> int:
    """Recover new directories, each killed one change later and then recovered again; returns how many
    changes a recovery makes.
    """
    for changes in range(1000):
        root = work / str(changes)
        directory = fresh(root)
        disk = FailingDisk(changes)
        try:
            plan = plan_recovery(str(directory), SETTINGS)
            run_recovery(plan, SETTINGS, str(root / "quarantine"), disk)
        except StorageError:
            assert recovered(directory, root) == expected
        else:
            assert disk.changes_left == 0
            return changes
    raise AssertionError("a recovery of a thousand changes")


@pytest.mark.parametrize(
    "name",
    ["flip-first", "stray-cleaned", "swap", "missing-last-log", "no-snapshots", "idx-missing", "len-huge"],
)
def test_killed_at_any_step_and_run_again_it_ends_the_same(name: str, tmp_path: Path) -> None:
    partition = Corpus("corrupt-k39").log_dir().partition(f"c-b.{name}-0")
    expected = after_kafka(partition)
    assert killed_at_each_step(tmp_path, lambda root: copied(partition, root), expected) >= 4


def test_a_snapshot_that_knows_more_batches_is_left_as_it_is(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.no-snapshots-0"), tmp_path)
    recovered(directory, tmp_path)
    before = contents(directory)
    snapshots = [unpack_snapshot(data) for name, data in before.items() if name.endswith(".snapshot")]
    assert max(len(entries) - len({entry.producer_id for entry in entries}) for entries in snapshots) > 0
    assert plan_recovery(str(directory), SETTINGS).steps == ()
    recovered(directory, tmp_path)
    assert contents(directory) == before
    # Kafka's own has the last one of each producer only, and stays, too.
    for path in directory.glob("*.snapshot"):
        path.write_bytes(pack_snapshot(producers_in(path.read_bytes())))
    assert plan_recovery(str(directory), SETTINGS).steps == ()


@pytest.mark.parametrize("old_index", [b"", b"the index of a segment that went"])
def test_an_index_that_was_swapped_in_without_its_segment_is_removed(
    old_index: bytes, tmp_path: Path
) -> None:
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    (directory / "00000000000000000000.index.swap").write_bytes(b"cleaned.")
    (directory / "00000000000000000000.timeindex.swap").write_bytes(b"cleaned")
    if old_index:
        (directory / "00000000000000000000.index").write_bytes(old_index)
    got = recovered(directory, tmp_path)
    names = ("00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex")
    assert got == dict.fromkeys((*names, "leader-epoch-checkpoint"), b"")
    (quarantine,) = (tmp_path / "quarantine").rglob("*.index.swap")
    kept = contents(quarantine.parent)
    assert kept["00000000000000000000.index.swap"] == b"cleaned."
    assert kept.get("00000000000000000000.index", b"") == old_index


@pytest.mark.parametrize("damage", [b"", b"version: 0\n", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OD\0"])
def test_a_damaged_topic_id_is_reported_and_the_log_is_recovered(damage: bytes, tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.flip-last-0"), tmp_path)
    sound = plan_recovery(str(directory), SETTINGS)
    (directory / "partition.metadata").write_bytes(damage)
    plan = plan_recovery(str(directory), SETTINGS)
    assert plan.steps == sound.steps
    assert plan.kafka_refuses is not None
    assert plan.kafka_refuses.name == "partition.metadata"


def test_a_log_that_ends_before_its_start_is_empty_from_its_start_on(tmp_path: Path) -> None:
    partition = Corpus("corrupt-k39").log_dir().partition("c-b.intact-0")
    settings = replace(SETTINGS, log_start_offset=1000)
    got = recovered(copied(partition, tmp_path), tmp_path, settings)
    base = "00000000000000001000"
    assert got == {
        f"{base}.log": b"",
        f"{base}.index": b"",
        f"{base}.timeindex": b"",
        "leader-epoch-checkpoint": b"0\n0\n",
    }


def test_segments_below_the_recovery_point_are_trusted(tmp_path: Path) -> None:
    partition = Corpus("corrupt-k39").log_dir().partition("c-b.flip-first-0")
    settings = replace(SETTINGS, recovery_point=30)
    plan = plan_recovery(str(partition.path), settings)
    assert not plan.takes_away
    assert plan.log_end_offset == 45


def test_a_segment_whose_offsets_go_back_is_emptied(tmp_path: Path) -> None:
    """As Kafka does if an index entry would not ascend, even with valid checksums."""
    partition = Corpus("k39-unclean").log_dir().partition("u-none-0")
    directory = copied(partition, tmp_path)
    log = directory / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    positions = batch_positions(data)
    base = struct.unpack_from(">q", data, positions[1])[0]
    for position in positions[2:]:
        struct.pack_into(">q", data, position, base)
    log.write_bytes(data)
    plan = plan_recovery(str(directory), SETTINGS)
    got = recovered(directory, tmp_path)
    assert got["00000000000000000000.log"] == b""
    assert plan.log_end_offset == 0
    assert plan.segments == 1


def test_a_segment_too_long_for_an_index_is_split(tmp_path: Path) -> None:
    directory = overlong(tmp_path)
    before = (directory / "00000000000000000025.log").read_bytes()
    cut = batch_positions(before)[-1]
    got = recovered(directory, tmp_path)
    assert got["00000000000000000025.log"] == before[:cut]
    assert got["00000000002147483748.log"] == before[cut:]
    assert plan_recovery(str(directory), SETTINGS).steps == ()


def test_a_compressed_message_set_begins_a_segment_named_by_its_first_message(tmp_path: Path) -> None:
    directory = copied(Corpus("k010-unclean").log_dir().partition("u-gzip-0"), tmp_path)
    log = directory / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    at = batch_positions(data)[-1]
    wrapper = message_set.parse(data[at:])
    messages = len(message_set.inner(wrapper))
    assert messages > 1
    struct.pack_into(">q", data, at, wrapper.offset + 2**33)
    log.write_bytes(data)
    got = recovered(directory, tmp_path)
    assert got[log.name] == data[:at]
    assert got[f"{wrapper.offset + 2**33 - messages + 1:020}.log"] == data[at:]


def test_a_split_killed_at_any_step_and_run_again_ends_the_same(tmp_path: Path) -> None:
    expected = recovered(overlong(tmp_path / "whole"), tmp_path / "whole")
    assert killed_at_each_step(tmp_path, overlong, expected) >= 6


def test_a_part_that_would_replace_another_segment_stops_the_recovery(tmp_path: Path) -> None:
    directory = overlong(tmp_path)
    (directory / "00000000002147483748.log").write_bytes(b"something else")
    before = contents(directory)
    with pytest.raises(StorageError, match=r"part of it would replace 00000000002147483748\.log"):
        plan_recovery(str(directory), SETTINGS)
    assert contents(directory) == before


Damage = Callable[[Path], object]


def _drop(name: str) -> Damage:
    return lambda directory: (directory / name).unlink()


def _garble(name: str) -> Damage:
    return lambda directory: (directory / name).write_text("no checkpoint\n")


@pytest.mark.parametrize(
    "damage",
    [_drop("leader-epoch-checkpoint"), _garble("leader-epoch-checkpoint")],
    ids=["missing", "garbled"],
)
def test_leader_epochs_are_restored_from_the_batches(damage: Damage, tmp_path: Path) -> None:
    partition = Corpus("k39-epochs").log_dirs()[0].partitions()[0]
    before = contents(partition.path)
    directory = copied(partition, tmp_path)
    damage(directory)
    got = recovered(directory, tmp_path)
    assert got["leader-epoch-checkpoint"] == before["leader-epoch-checkpoint"]
