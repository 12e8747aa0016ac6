"""Random histories of replicas on several brokers, whose disks runs read one by one or together: each backup
and any moment is a log that a leader had, and nothing is lost that was in a backup. `KLOG_TEST_HISTORIES`
sets how many are played.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from klog.backup.restoring.plan import PlannedPartition
from klog.backup.restoring.request import RestoreRequest
from klog.backup.verify import VerifyOptions, verify
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.markers import marker_of_batch
from klog.storage.cleaner.decoding import decode_one
from klog.storage.repair.index_reports import RebuildOptions
from klog.storage.repair.problem import Severity
from klog.storage.repair.segment_scan import IndexSettings
from klog.storage.repair.verify import scope_of
from klog.storage.repair.verify import verify as problems_of
from tests.backup.recorded import restore
from tests.backup.replica_histories import TABLE, Held, ReplicaHistory, Run, batches_of, require_one_log
from tests.backup.repositories import log_files
from tests.backup.test_histories import require_that_it_goes_on

SEED = int(os.environ.get("KLOG_TEST_SEED", "11"))
HISTORIES = int(os.environ.get("KLOG_TEST_HISTORIES", "6"))
STEPS = 150
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


@pytest.mark.parametrize("seed", range(SEED, SEED + 2 * HISTORIES))
def test_any_moment_is_a_log_that_a_leader_had(tmp_path: Path, seed: int) -> None:
    history = ReplicaHistory(tmp_path, seed, STEPS)
    check(history, tmp_path, random.Random(seed))


def check(history: ReplicaHistory, path: Path, chance: random.Random) -> None:
    repository = history.backups.repository
    assert not verify(repository, repository.ids(), VerifyOptions()).findings
    for identifier in chance.sample(sorted(history.runs), min(2, len(history.runs))):
        target = path / f"run-{identifier}"
        plan = restore(repository, RestoreRequest(backup=identifier), target)
        found = restored_logs(history, plan.partitions, target, history.runs[identifier])
        assert {partition: held.tip for partition, held in found.items()} == {
            partition: held.tip for partition, held in history.runs[identifier].items()
        }
        require_no_complaint(target, found)
    for number in range(3):
        at_ms = chance.randint(history.begin_ms, history.clock.now_ms + 1)
        target = path / f"moment-{number}"
        plan = restore(repository, RestoreRequest(at_ms), target)
        known = known_at(history, at_ms)
        found = restored_logs(history, plan.partitions, target, known)
        check_moment(known, found, at_ms)
        require_no_complaint(target, found)


def known_at(history: ReplicaHistory, at_ms: int) -> Run:
    """What the last run before a moment had."""
    earlier = [each for each, time_ms in history.times.items() if time_ms <= at_ms and each in history.runs]
    return history.runs[max(earlier)] if earlier else {}


def check_moment(known: Run, found: Run, at_ms: int) -> None:
    """What the last run before the moment had is there, and nothing that came after the moment."""
    for partition, held in found.items():
        before = known.get(partition)
        known_end = 0
        if before is not None:
            assert held.topic is before.topic
            assert {each.entry for each in before.batches} <= {each.entry for each in held.batches}
            known_end = before.batches[-1].end if before.batches else 0
        late = [each.base for each in held.batches if each.end > known_end and each.entry.at_ms > at_ms]
        assert not late, f"{partition} has records of later"
    assert known.keys() <= found.keys()


def restored_logs(
    history: ReplicaHistory, planned: tuple[PlannedPartition, ...], path: Path, known: Run
) -> Run:
    """What was restored: the logs of leaders, as readers see them, and markers for what was open."""
    found = {}
    for each in planned:
        partition, directory = each.target, path / str(each.target)
        topic = history.topics[each.view.topic_id or ""]
        data = b"".join(log_files(directory).values())
        own, added = divided(data, each.cut.end_offset)
        start = each.view.log_start_offset
        if each.cut.end_offset <= start:
            found[partition] = Held(topic, (), start, start, -1)  # all was deleted before a run read it
            continue
        batches = tuple(one for one in batches_of(topic, own) if one.end > start)
        held = Held(topic, batches, start, each.cut.end_offset, -1)
        # What came after a run, and was deleted before the next one, is in no backup.
        known_end = known[partition].end if partition in known else 0
        starts = [run[partition].log_start for run in history.runs.values() if partition in run]
        deleted = range(known_end, max(starts, default=0))
        require_that_it_goes_on(directory, partition, None)
        found[partition] = held
        if 0 < known_end <= deleted.stop:
            # All that the run before the moment knew was gone at the next one: any log may have gone on.
            earlier = tuple(each for each in batches if each.end <= known_end)
            for some, end in ((earlier, known_end), (batches[len(earlier) :], held.end)):
                begin = max(start, known_end) if end > known_end else start
                one = replace(held, batches=some, log_start=begin, end=end)
                require_one_log(one, is_compacted=partition == TABLE, deleted=deleted)
            continue
        require_one_log(held, is_compacted=partition == TABLE, deleted=deleted)
        truth = committed_values(b"".join(entry.data for entry in held.path), start)
        seen = committed_values(own + added, start, is_whole=True)
        assert seen.items() <= truth.items()
        assert partition == TABLE or all(offset in deleted for offset in truth.keys() - seen.keys())
    return found


def divided(data: bytes, end_offset: int) -> tuple[bytes, bytes]:
    """The batches below an offset, and the others, which must be markers."""
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    rows = [row for row, last in enumerate(table.last_offset) if last >= end_offset]
    assert all(table.attributes[row] & _CONTROL for row in rows)
    cut = table.position[rows[0]] if rows else len(data)
    return data[:cut], data[cut:]


def committed_values(
    data: bytes, start: int, *, is_whole: bool = False
) -> dict[int, tuple[bytes, bytes | None]]:
    """Key and value of what read_committed readers see from an offset on. If the log `is_whole`, no
    transaction is open."""
    open_ones: dict[int, dict[int, tuple[bytes, bytes | None]]] = {}
    found: dict[int, tuple[bytes, bytes | None]] = {}
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    for row in range(len(table)):
        producer_id, position = table.producer_id[row], table.position[row]
        if table.attributes[row] & _CONTROL:
            ended = open_ones.pop(producer_id, {})
            marker = marker_of_batch(data[position : position + table.size[row]])
            assert marker is not None or not ended
            found |= {} if marker is None or marker.aborted else ended
            continue
        payload = memoryview(decode_one(data, table, row, records))
        values = {}
        for number in range(len(records)):
            at, size = records.value_start[number], records.value_size[number]
            key = bytes(payload[records.key_start[number] :][: records.key_size[number]])
            values[records.offset[number]] = key, None if size < 0 else bytes(payload[at : at + size])
        into = found
        if table.attributes[row] & _TRANSACTIONAL:
            into = open_ones.setdefault(producer_id, {})
        into.update(values)
    if is_whole:
        assert not any(open_ones.values()), "a transaction is open"
    return {offset: value for offset, value in found.items() if offset >= start}


def require_no_complaint(path: Path, found: Run) -> None:
    """`klog verify` finds no error."""
    options = RebuildOptions(now_ms=0, settings=IndexSettings(), check=True)
    problems = problems_of(scope_of([str(path)]), options, on_bytes=lambda _bytes: None, processes=1)
    # A replica that began at the log start does not know of a transaction before it, which none reads.
    begins_within = {str(partition) for partition, held in found.items() if held.log_start}
    assert not [
        each
        for each in problems
        if each.severity is Severity.ERROR
        and not (each.file.endswith(".txnindex") and Path(each.file).parent.name in begins_within)
    ]
