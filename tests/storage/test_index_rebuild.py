"""Rebuilt indexes equal Kafka's byte for byte; valid ones are distinguished from damaged ones."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from klog.formats import producer_snapshot, transaction_index
from klog.storage.reading.producer_state import (
    AbortedTxn,
    ProducerEntry,
    hash_map_order,
    pack_aborted,
    pack_snapshot,
    unpack_snapshot,
)
from klog.storage.repair import segment_scan
from klog.storage.repair.index_rebuild import rebuild, tasks_of
from klog.storage.repair.index_reports import IndexReport, IndexStatus, RebuildOptions
from klog.storage.repair.producer_rebuild import rebuild_snapshots
from klog.storage.repair.segment_scan import IndexSettings
from tests.corpora import Corpus, PartitionDirectory, corpora, partitions
from tests.storage.partition_copies import KAFKA_INDEXES, NOW_MS, as_kafka_reads, contents, copied

OPTIONS = RebuildOptions(NOW_MS, KAFKA_INDEXES)
CHECK = replace(OPTIONS, check=True)
INDEXES = (".index", ".timeindex", ".txnindex")

# All segments that 3.9 itself rebuilt; k010 wrote first offsets.
REBUILT = [
    *(p for corpus in corpora("corrupt-") for p in corpus.log_dir("logs_unclean").partitions()),
    *Corpus("k39-unclean").log_dir("logs_recovered").partitions(),
]
ORIGINALS = partitions([corpus for corpus in corpora() if not corpus.is_corrupt])


def reports(directory: Path, options: RebuildOptions) -> list[IndexReport]:
    return [index for report in rebuild(tasks_of(str(directory)), options) for index in report.indexes]


def status_of(directory: Path, name: str) -> IndexStatus:
    found = {os.path.basename(report.path): report.status for report in reports(directory, CHECK)}
    return found[name]


@pytest.mark.parametrize("partition", REBUILT, ids=str)
def test_deleted_indexes_come_back_byte_for_byte(partition: PartitionDirectory, tmp_path: Path) -> None:
    before = contents(partition.path)
    directory = copied(partition, tmp_path)
    for name in before:
        if name.endswith(INDEXES):
            (directory / name).unlink()
    reports(directory, replace(OPTIONS, settings=IndexSettings(1024, 131_072)))
    after = contents(directory)
    # An empty .txnindex is equivalent to a missing one.
    wanted = {n: d for n, d in before.items() if n.endswith(INDEXES) and (d or not n.endswith(".txnindex"))}
    assert {name: after[name] for name in wanted} == wanted
    assert {n: d for n, d in after.items() if not n.endswith(INDEXES)} == {
        n: d for n, d in before.items() if not n.endswith(INDEXES)
    }


def test_a_segment_that_is_larger_than_kafka_opens_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied(REBUILT[-1], tmp_path)
    before = contents(directory)
    monkeypatch.setattr(segment_scan, "INT32_MAX", 100)
    found = list(rebuild(tasks_of(str(directory)), replace(OPTIONS, force=True)))
    assert "bytes of valid batches are more than a segment can have" in str(found[0].unreadable)
    assert contents(directory) == before


@pytest.mark.parametrize("partition", ORIGINALS, ids=str)
def test_indexes_that_brokers_wrote_are_valid(partition: PartitionDirectory) -> None:
    found = reports(partition.path, CHECK)
    # 0.8 had no time index.
    old = partition.corpus.name == "k08-codecs"
    unsound = [
        r for r in found if r.status is not IndexStatus.VALID and not (old and r.path.endswith("timeindex"))
    ]
    assert unsound == []


@pytest.mark.parametrize("corpus", corpora("corrupt-"), ids=str)
@pytest.mark.parametrize(
    ("corruption", "status"),
    [
        ("intact", IndexStatus.VALID),
        ("idx-oversized", IndexStatus.VALID),
        ("idx-garbage", IndexStatus.BROKEN),
        ("idx-odd", IndexStatus.BROKEN),
        ("idx-zero", IndexStatus.BROKEN),
        ("idx-missing", IndexStatus.MISSING),
    ],
)
def test_damaged_indexes_are_distinguished_from_valid_ones(
    corpus: Corpus, corruption: str, status: IndexStatus
) -> None:
    partition = corpus.log_dir().partition(f"c-b.{corruption}-0")
    last = "00000000000000000025.index" if corruption == "idx-oversized" else "00000000000000000000.index"
    assert status_of(partition.path, last) is status


def test_an_entry_that_points_into_a_batch_breaks_its_index(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0"), tmp_path)
    index = directory / "00000000000000000000.index"
    data = bytearray(index.read_bytes())
    data[7] += 1
    index.write_bytes(data)
    assert status_of(directory, index.name) is IndexStatus.BROKEN


def test_a_time_entry_below_the_running_maximum_breaks_its_index(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0"), tmp_path)
    index = directory / "00000000000000000000.timeindex"
    data = bytearray(index.read_bytes())
    data[7] -= 1
    index.write_bytes(data)
    assert status_of(directory, index.name) is IndexStatus.BROKEN


def test_a_lost_aborted_transaction_breaks_the_transaction_index(tmp_path: Path) -> None:
    found = 0
    for partition in Corpus("k39-txn").log_dir().partitions():
        for path in partition.files(".txnindex"):
            if path.stat().st_size:
                found += 1
                directory = copied(partition, tmp_path / str(found))
                target = directory / path.name
                original = target.read_bytes()
                target.write_bytes(original[34:])
                assert status_of(directory, path.name) is IndexStatus.BROKEN
                reports(directory, OPTIONS)
                assert target.read_bytes() == original
    assert found


def test_only_what_is_missing_or_broken_is_rebuilt(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.idx-garbage-0"), tmp_path)
    before = contents(directory)
    rebuilt = [os.path.basename(report.path) for report in reports(directory, OPTIONS) if report.rebuilt]
    assert rebuilt == ["00000000000000000000.index"]
    after = contents(directory)
    assert [name for name in after if after[name] != before[name]] == rebuilt


@pytest.mark.parametrize("missing", [".index", ".timeindex", ".txnindex"])
def test_a_broken_index_is_rebuilt_whichever_other_one_is_missing(missing: str, tmp_path: Path) -> None:
    aborts = next(
        path
        for partition in Corpus("k39-txn").log_dir().partitions()
        for path in partition.files(".txnindex")
        if path.stat().st_size
    )
    directory = tmp_path / "t-0"
    shutil.copytree(aborts.parent, directory)
    base = aborts.stem
    reports(directory, replace(OPTIONS, force=True))
    whole = contents(directory)
    (directory / f"{base}{missing}").unlink()
    broken = {f"{base}{suffix}" for suffix in INDEXES if suffix != missing}
    for name in broken:
        (directory / name).write_bytes(b"\xff" * 70)
    found = {os.path.basename(report.path): report for report in reports(directory, OPTIONS)}
    assert {found[name].status for name in broken} == {IndexStatus.BROKEN}
    assert found[f"{base}{missing}"].status is IndexStatus.MISSING
    assert contents(directory) == whole


def test_a_broken_transaction_index_is_rebuilt_where_both_others_are_missing(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0"), tmp_path)
    index = directory / "00000000000000000000.txnindex"
    index.write_bytes(b"\xff" * 70)
    for suffix in (".index", ".timeindex"):
        index.with_suffix(suffix).unlink()
    found = {os.path.basename(report.path): report for report in reports(directory, OPTIONS)}
    assert (found[index.name].status, found[index.name].rebuilt) == (IndexStatus.BROKEN, True)
    assert index.read_bytes() == b""


def test_force_rebuilds_valid_ones_too(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0"), tmp_path)
    assert all(report.rebuilt for report in reports(directory, replace(OPTIONS, force=True)))
    recovered = Corpus("corrupt-k39").log_dir("logs_unclean").partition("c-b.intact-0")
    assert contents(directory) == contents(recovered.path)


@pytest.mark.parametrize("suffix", INDEXES)
def test_force_names_what_was_broken(suffix: str, tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0"), tmp_path)
    broken = directory / f"00000000000000000000{suffix}"
    broken.write_bytes(b"\xff" * 70)
    plain = {report.path: report for report in reports(directory, replace(OPTIONS, check=True))}
    forced = {report.path: report for report in reports(directory, replace(OPTIONS, force=True))}
    assert plain[str(broken)].status is IndexStatus.BROKEN
    assert {path: (one.status, one.what, one.position_bytes) for path, one in forced.items()} == {
        path: (one.status, one.what, one.position_bytes) for path, one in plain.items()
    }
    assert all(report.rebuilt for report in forced.values())


def test_a_damaged_log_is_reported_and_not_changed(tmp_path: Path) -> None:
    partition = Corpus("corrupt-k39").log_dir().partition("c-b.flip-last-0")
    directory = copied(partition, tmp_path)
    found = list(rebuild(tasks_of(str(directory)), replace(OPTIONS, force=True)))
    assert [report.problem_bytes for report in found] == [None, 621]
    log = "00000000000000000025.log"
    assert (directory / log).read_bytes() == (partition.path / log).read_bytes()


def test_an_index_that_would_not_fit_is_refused(tmp_path: Path) -> None:
    directory = copied(Corpus("k39-unclean").log_dir("logs_recovered").partition("u-none-0"), tmp_path)
    tiny = replace(OPTIONS, force=True, settings=IndexSettings(0, 16))
    before = contents(directory)
    told = list(rebuild(tasks_of(str(directory)), tiny))
    refused = [report for report in told if "would not fit" in str(report.unreadable)]
    assert refused
    after = contents(directory)
    for report in refused:
        segment = Path(report.path).stem
        assert [n for n in before if n.startswith(segment) and after[n] != before[n]] == []


def test_a_rebuilt_index_keeps_the_mode_of_the_old_one(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.idx-garbage-0"), tmp_path)
    index = directory / "00000000000000000000.index"
    index.chmod(0o640)
    reports(directory, OPTIONS)
    assert index.stat().st_mode & 0o777 == 0o640


def test_results_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.idx-missing-0"), tmp_path)
    alone = list(rebuild(tasks_of(str(directory)), CHECK, processes=1))
    assert list(rebuild(tasks_of(str(directory)), CHECK, processes=2)) == alone


def test_snapshots_are_those_of_kafkas_recovery(tmp_path: Path) -> None:
    partition = Corpus("corrupt-k39").log_dir("logs_unclean").partition("c-b.no-snapshots-0")
    directory = copied(partition, tmp_path)
    before = contents(directory)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    rebuild_snapshots(str(directory), OPTIONS)
    assert as_kafka_reads(contents(directory)) == before


def test_the_fast_snapshot_writer_agrees_with_the_definition() -> None:
    entries = {7: ProducerEntry(7, 1, 2, 3, 4, 5, 6, -1), 99: ProducerEntry(99)}
    packed = pack_snapshot(entries)
    parsed = producer_snapshot.parse(packed)
    seven = next(entry for entry in parsed.producers if entry.producerId == 7)
    assert (seven.producerEpoch, seven.lastSequence, seven.lastOffset, seven.offsetDelta) == (1, 2, 3, 4)
    assert (seven.timestamp, seven.coordinatorEpoch, seven.currentTxnFirstOffset) == (5, 6, -1)
    assert producer_snapshot.build(parsed) == packed
    assert {entry.producer_id: entry for entry in unpack_snapshot(packed)} == entries


def test_the_fast_transaction_index_writer_agrees_with_the_definition() -> None:
    packed = pack_aborted([AbortedTxn(1, 2, 3, 4), AbortedTxn(1, 5, 6, 7)])
    assert transaction_index.build(transaction_index.parse(packed)) == packed
    assert transaction_index.parse(packed)[1].lastStableOffset == 7


@pytest.mark.parametrize(
    ("producer_ids", "order"),
    [
        ([3, 1, 2], [1, 2, 3]),
        ([17, 1, 33], [17, 1, 33]),  # one bucket of 16: in order of appearance
        ([*range(20, 32), 16], [16, *range(20, 32)]),  # 13 producers: 32 buckets
        ([2**32, 0, 1], [0, 2**32, 1]),
    ],
)
def test_snapshot_entries_have_the_order_of_kafkas_hash_map(
    producer_ids: list[int], order: list[int]
) -> None:
    assert hash_map_order(producer_ids) == order
