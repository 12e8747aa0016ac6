"""Each partition comes back as of a moment, also if the first run after it did not read all partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klog.backup import scanning
from klog.backup.model import Problem
from klog.backup.moment.view import CHECKPOINT_AGE_MS
from klog.backup.names import time_of_id
from klog.backup.restoring.request import RestoreRequest, Selected, plan_of, select
from klog.backup.restoring.selection import known_ms, manifests_around, newest_backup
from klog.backup.run import Result
from klog.backup.scanning import Listed, LogDirectory, list_replica
from klog.formats.errors import StorageError
from klog.formats.names import DirectoryName, TopicPartition
from tests.backup.repositories import Backups
from tests.export.logs import Log, batch

ORDERS, PAYMENTS, NEW = TopicPartition("orders", 0), TopicPartition("payments", 0), TopicPartition("new", 0)
STEP_MS = 10_000


class Cluster:
    """Two brokers with a partition each, that are backed up by runs of their own. Each step takes 10 s."""

    def __init__(self, root: Path, backups: Backups) -> None:
        self._backups = backups
        self._path = root
        self._logs: dict[TopicPartition, Log] = {}
        for number, partition in enumerate((ORDERS, PAYMENTS), 1):
            self.write(number, partition)
            properties = root / f"broker{number}" / "meta.properties"
            properties.write_text(f"version=0\nbroker.id={number}\ncluster.id=abc\n")

    def write(self, broker: int, partition: TopicPartition) -> None:
        """Append a record that has the time now."""
        path = self._path / f"broker{broker}" / str(partition)
        log = self._logs.setdefault(partition, Log(path))
        log.append(batch(len(log.segments[0]), at=self.now()))
        log.write()

    def back_up(self, *brokers: int, patterns: tuple[str, ...] = ()) -> str:
        """The id of the backup."""
        return self.run(*brokers, patterns=patterns).manifest.id

    def run(self, *brokers: int, partition: TopicPartition | None = None, **options: Any) -> Result:
        """Back up the brokers, or only their directories of a partition."""
        self.now()
        paths = [self._path / f"broker{broker}" / str(partition or "") for broker in brokers]
        return self._backups.run(*paths, **options)

    def looked_at_ms(self, partition: TopicPartition) -> int:
        """When the newest backup says that a partition was last known to be as it is there."""
        repository = self._backups.repository
        manifest = newest_backup(repository)
        return known_ms(manifest, partition, repository.partitions(manifest)[partition])

    def now(self) -> int:
        """The time, a step later."""
        self._backups.now_ms += STEP_MS
        return self._backups.now_ms

    def ends_at(self, at_ms: int) -> dict[TopicPartition, int]:
        """Where each partition ends in a restore to a moment."""
        plan = plan_of(self._backups.repository, RestoreRequest(at_ms), self.selected(at_ms))
        return {each.target: each.cut.end_offset for each in plan.partitions}

    def selected(self, at_ms: int) -> Selected:
        """What a restore to a moment is about."""
        return select(self._backups.repository, RestoreRequest(at_ms))

    def read_for(self, at_ms: int) -> list[str]:
        """The backups that a restore to a moment reads."""
        return [each.id for each in manifests_around(self._backups.repository, at_ms)]


@pytest.fixture
def cluster(tmp_path: Path, backups: Backups) -> Cluster:
    return Cluster(tmp_path, backups)


def test_a_later_run_of_another_broker_has_what_came_before_the_moment(cluster: Cluster) -> None:
    before = [cluster.back_up(1), cluster.back_up(2)]
    cluster.write(1, ORDERS)
    cluster.write(2, PAYMENTS)
    cluster.write(2, NEW)
    at_ms = cluster.now()
    cluster.write(1, ORDERS)
    cluster.write(2, PAYMENTS)
    after = [cluster.back_up(1), cluster.back_up(1), cluster.back_up(2)]
    cluster.write(2, PAYMENTS)
    cluster.back_up(2)

    assert cluster.ends_at(at_ms) == {ORDERS: 2, PAYMENTS: 2, NEW: 1}
    assert cluster.read_for(at_ms) == [*before, after[0], after[2]]


def test_a_later_run_for_other_topics_has_what_came_before_the_moment(cluster: Cluster) -> None:
    cluster.back_up(1, 2)
    cluster.write(2, PAYMENTS)
    at_ms = cluster.now()
    cluster.write(2, PAYMENTS)
    cluster.back_up(1, 2, patterns=("orders",))
    cluster.back_up(1, 2, patterns=("payments",))

    assert cluster.ends_at(at_ms) == {ORDERS: 1, PAYMENTS: 2}


def test_a_run_for_some_topics_does_not_hide_a_topic_that_the_next_whole_run_finds(cluster: Cluster) -> None:
    before = cluster.back_up(1, 2)
    cluster.write(2, NEW)
    at_ms = cluster.now()
    some = [cluster.back_up(1, 2, patterns=("orders",)) for _ in range(3)]
    whole = cluster.back_up(1, 2)
    cluster.back_up(1, 2)

    assert cluster.ends_at(at_ms) == {ORDERS: 1, PAYMENTS: 1, NEW: 1}
    assert cluster.read_for(at_ms) == [before, some[0], whole]


def test_no_whole_run_is_looked_for_if_no_topic_is_new(cluster: Cluster) -> None:
    before = cluster.back_up(1, 2)
    at_ms = cluster.now()
    some = [cluster.back_up(1, 2, patterns=("orders",)) for _ in range(3)]

    assert cluster.read_for(at_ms) == [before, some[0]]


@pytest.mark.parametrize("what", ["the metadata could not be read", "no topic matches clicks"])
def test_a_problem_of_no_partition_leaves_all_of_them_looked_at(cluster: Cluster, what: str) -> None:
    cluster.back_up(1, 2)
    result = cluster.run(1, 2, problems=(Problem(None, what),))

    assert not result.is_clean
    assert cluster.looked_at_ms(ORDERS) == cluster.looked_at_ms(PAYMENTS) == result.manifest.begin_ms


def test_what_a_source_does_not_show_is_not_looked_at(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that cannot be listed is one of its partition only; the others were read."""
    cluster.write(2, NEW)
    cluster.back_up(1, 2)
    before = cluster.looked_at_ms(PAYMENTS)

    def listed(name: DirectoryName, path: str, directory: LogDirectory) -> Listed | StorageError | None:
        if name.partition == PAYMENTS:
            return StorageError("cannot be listed", file=path)
        return list_replica(name, path, directory)

    monkeypatch.setattr(scanning, "list_replica", listed)
    result = cluster.run(1, 2)

    assert [each.partition for each in result.manifest.problems] == [None]
    assert result.manifest.unseen == {PAYMENTS}
    assert cluster.looked_at_ms(PAYMENTS) <= before
    assert cluster.looked_at_ms(ORDERS) == cluster.looked_at_ms(NEW) == result.manifest.begin_ms


def test_a_partition_directory_that_is_backed_up_alone_says_nothing_of_the_others(cluster: Cluster) -> None:
    cluster.write(2, NEW)
    before = cluster.run(1, 2)
    after = cluster.run(2, partition=NEW)

    assert cluster.looked_at_ms(PAYMENTS) == before.manifest.begin_ms
    assert cluster.looked_at_ms(NEW) == after.manifest.begin_ms


def test_a_run_for_some_topics_has_looked_at_those_only(cluster: Cluster) -> None:
    whole = cluster.back_up(1, 2)
    some = cluster.back_up(1, 2, patterns=("orders",))

    complete_ms = {each.partition: each.complete_ms for each in cluster.selected(cluster.now()).views}

    assert complete_ms[ORDERS] == time_of_id(some) - CHECKPOINT_AGE_MS
    assert complete_ms[PAYMENTS] == time_of_id(whole) - CHECKPOINT_AGE_MS


def test_what_no_later_run_has_read_is_not_looked_for(cluster: Cluster) -> None:
    before = [cluster.back_up(2), cluster.back_up(1)]
    cluster.write(1, ORDERS)
    at_ms = cluster.now()
    after = [cluster.back_up(1) for _ in range(4)]

    assert cluster.ends_at(at_ms) == {ORDERS: 2, PAYMENTS: 1}
    assert cluster.read_for(at_ms) == [*before, after[0]]


def test_a_run_that_found_nothing_new_has_looked_at_a_partition(cluster: Cluster) -> None:
    cluster.back_up(1)
    second = cluster.back_up(1)
    cluster.back_up(2)

    views = {each.partition: each for each in cluster.selected(cluster.now()).views}

    assert views[ORDERS].complete_ms == time_of_id(second) - CHECKPOINT_AGE_MS
