"""Random histories of a log directory with runs and prunes among them: any moment comes back as the history
says. `KLOG_TEST_HISTORIES` is how many are played.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from klog.backup.moment.values import Basis
from klog.backup.restoring.request import RestoreRequest
from klog.backup.restoring.state_records import committed_offsets, transaction_states
from klog.backup.verify import VerifyOptions, verify
from klog.coordinator.transactions.values import TransactionState
from klog.formats.names import TopicPartition
from klog.storage.log.loading import Loaded, load_log
from klog.storage.log.partition_log import PartitionLog
from tests.backup.histories import (
    COMPACT,
    OFFSETS,
    STATE,
    Commit,
    History,
    Run,
    Seen,
    batches_in,
    values_in,
)
from tests.backup.recorded import restore, rows_of
from tests.storage.log.building import Clock, Later, config, idempotent, settings

SEED = int(os.environ.get("KLOG_TEST_SEED", "11"))
HISTORIES = int(os.environ.get("KLOG_TEST_HISTORIES", "6"))
STEPS = 120


@pytest.mark.parametrize("seed", range(SEED, SEED + HISTORIES))
def test_any_moment_comes_back_as_the_history_says(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed, STEPS)
    chance = random.Random(seed)
    for identifier in chance.sample(sorted(history.runs), min(2, len(history.runs))):
        check_run(history, identifier, tmp_path / f"run-{identifier}")
    for number in range(2):
        at_ms = chance.randint(history.begin_ms, history.clock.now_ms + 1)
        check_moment(history, at_ms, tmp_path / f"moment-{number}")
    repository = history.backups.repository
    assert not verify(repository, repository.ids(), VerifyOptions()).findings


def check_run(history: History, identifier: str, path: Path) -> None:
    """A backup gives the bytes that its run found, the markers of what was not ended, and the groups."""
    seen = history.runs[identifier]
    plan = restore(history.backups.repository, RestoreRequest(backup=identifier), path)
    assert {each.target for each in plan.partitions} == set(seen)
    at_ms = max(each.at_ms for each in seen.values())
    for planned in plan.partitions:
        found, cut = seen[planned.target], planned.cut
        directory = path / str(planned.target)
        assert cut.basis is Basis.ARRIVAL
        assert planned.view.topic_id == found.partition.topic_id
        assert planned.view.log_start_offset == found.log_start_offset
        assert cut.end_offset == cut.rule_end == found.end_offset
        rest = [each for each in batches_in(directory) if each[1] <= cut.end_offset]
        before = [each for each in found.batches if each[1] <= cut.end_offset]
        assert rest == before[len(before) - len(rest) :]
        assert {end for _, end, _ in found.batches if found.log_start_offset < end <= cut.end_offset} <= {
            end for _, end, _ in rest
        }
        if planned.target not in (OFFSETS, STATE):
            visible = found.partition.visible(at_ms)
            assert values_in(directory, found.log_start_offset) == {
                offset: value
                for offset, value in visible.items()
                if offset in found.offsets and offset >= found.log_start_offset
            }
        require_that_it_goes_on(directory, planned.target, found)
    require_no_open_transaction(path)
    kept = seen[OFFSETS].offsets
    commits = [each for each in history.commits if each.at_ms <= at_ms and each.offset in kept]
    ends = {each.target: each.cut.restored_end for each in plan.partitions}
    assert groups_in(path) == groups_of(commits, at_ms, ends)


def check_moment(history: History, at_ms: int, path: Path) -> None:
    """Between two runs: all that a run before the moment had read, and what the one after it still found of
    what came until then. Nothing that came after the moment.
    """
    plan = restore(history.backups.repository, RestoreRequest(at_ms), path)
    require_no_open_transaction(path)
    known, following = history.around(at_ms)
    known_ms = history.begin_ms - 1 if known is None else known[STATE].at_ms
    was_deleted = any(each > known_ms for each in history.deletions)
    # If decisions were compacted meanwhile, only the markers that came before the moment tell.
    is_told = not any(each > known_ms for each in history.partitions[STATE].removals)
    last_ms = known_ms if following is None else at_ms
    parts: dict[tuple[int, int], set[bool]] = {}
    for planned in plan.partitions:
        directory = path / str(planned.target)
        require_that_it_goes_on(directory, planned.target, None)
        if planned.target in (OFFSETS, STATE):
            continue
        owner = history.owner(planned.target, planned.view.topic_id)
        begin = planned.view.log_start_offset
        found = values_in(directory, begin)
        visible = owner.visible(last_ms)
        assert found.items() <= visible.items()
        assert known is None or owner is known[planned.target].partition
        if was_deleted:
            continue  # what a transaction had written into that topic since the run is lost
        kept = {each for each in kept_of(planned.target, known, following) if each >= begin}
        for number, offsets in owner.of_transactions().items():
            parts.setdefault(number, set()).update(each in found for each in offsets & kept)
        if is_told:
            assert found.keys() == visible.keys() & kept
    assert all(len(each) < 2 for each in parts.values()), "a transaction is torn"
    if is_told and not was_deleted:
        kept = kept_of(OFFSETS, known, following)
        commits = [each for each in history.commits if each.at_ms <= last_ms and each.offset in kept]
        ends = {each.target: each.cut.restored_end for each in plan.partitions}
        assert groups_in(path) == groups_of(commits, last_ms, ends)


def kept_of(partition: TopicPartition, known: Run | None, following: Run | None) -> set[int]:
    """The offsets of records that two runs have of a partition."""
    first, end = (
        (frozenset(), 0) if known is None else (known[partition].offsets, known[partition].end_offset)
    )
    rest = frozenset() if following is None else following[partition].offsets
    return {*first, *(each for each in rest if each >= end)}


def groups_of(
    commits: list[Commit], at_ms: int, ends: dict[TopicPartition, int]
) -> dict[str, dict[TopicPartition, int]]:
    """The last commits of groups by their place in the log; none is beyond the end of its partition."""
    last: dict[tuple[str, TopicPartition], Commit] = {}
    for each in sorted(commits, key=lambda commit: commit.offset):
        if each.transaction is None or each.transaction.is_committed(at_ms):
            last[each.group, each.partition] = each
    found: dict[str, dict[TopicPartition, int]] = {}
    for (group, partition), each in last.items():
        if each.committed is not None:
            found.setdefault(group, {})[partition] = min(each.committed, ends[partition])
    return found


def groups_in(path: Path) -> dict[str, dict[TopicPartition, int]]:
    found = committed_offsets(str(OFFSETS), rows_of(path / str(OFFSETS)))
    groups = {
        group: {TopicPartition(*key): each.offset for key, each in offsets.items()}
        for group, offsets in found.items()
    }
    return {group: offsets for group, offsets in groups.items() if offsets}


def require_no_open_transaction(path: Path) -> None:
    for record in transaction_states(rows_of(path / str(STATE))).values():
        assert record.state not in (
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
        )


def require_that_it_goes_on(directory: Path, partition: TopicPartition, seen: Seen | None) -> None:
    """A broker loads the log as after a clean stop, and idempotent producers go on where they were."""
    topic = config(**{name.replace(".", "_"): value for name, value in COMPACT.items()})
    loaded = load_log(str(directory), topic, settings(directory.parent, clean=True))
    assert loaded == Loaded(loaded.state)  # nothing was recovered
    log = PartitionLog(partition, str(directory), topic, loaded.state, clock_ms=Clock(), background=Later())
    if seen is not None:
        for producer_id, sequence in seen.sequences.items():
            if producer_id in (7, 8):
                with log.lock:
                    log.append_as_leader(idempotent(sequence, producer=producer_id), 99, Clock()())
    log.close()
