"""Limits what reassignments copy in a second, and gives every config back the value that it had.

What was there before is kept in the cluster's configs, so that any later run on any machine can restore it:

* *Rates* are dynamic configs of brokers. Kafka keeps configs of brokers that it does not know, and
  DescribeConfigs tells their names, but not their values. So the former value is in a name: the request that
  sets `leader.replication.throttled.rate` to 1000, where 500 was set for this broker, also sets the config
  `klog.reassign.leader.replication.throttled.rate.was.500.is.1000`. A broker makes all changes of a request
  or none, so neither is there without the other. `was.none` means that nothing was set for this broker. The
  rate is restored only if it still is what klog has set: what somebody else has set since then is kept.
* *Lists of throttled replicas* are configs of topics, which know no other names. An entry is
  `partition:broker`, and brokers read both as numbers. klog's own entries have one zero more (`00:1`), so
  that exactly these are removed. What others have put in the list stays, and `*` has all replicas already.

Kafka 3.9 on ZooKeeper, Kafka 4 on KRaft and klog's broker do all this alike (tests/admin/reassign). Kafka's
own tool replaces the lists and removes them with the rates; then only the name of klog's config is left, and
the next `verify`, `cancel` or `execute` of klog removes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.admin.configs import Change, ConfigEntity, ConfigEntry, EntityType, Operation, alter, describe
from klog.admin.reassign.moves import Move
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, UnknownTopicError
from klog.formats.errors import KlogError

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LOG_DIR_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
RATES: Final = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

_ALL: Final = "*"
_MARK: Final = re.compile(
    r"klog\.reassign\.(?P<rate>.+)\.was\.(?P<was>none|-?\d+)\.is\.(?P<is>\d+)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class BrokerRate:
    """A rate of a broker: what is set for just this broker, and what klog has noted about it."""

    value: str | None
    mark: str | None = None
    was: str | None = None
    set_by_klog: str | None = None

    @property
    def is_klogs(self) -> bool:
        """Whether klog has set the value, and nobody has changed it."""
        return (
            self.mark is not None
            and self.value is not None
            and int(self.value) == int(self.set_by_klog or -1)
        )


def rates_of(entries: Iterable[ConfigEntry]) -> dict[str, BrokerRate]:
    """The rates of a broker by their names, from its configs."""
    values: dict[str, str] = {}
    marks: dict[str, re.Match[str]] = {}
    for entry in entries:
        for each in entry.synonyms:
            if each.name in RATES and each.source == "DYNAMIC_BROKER_CONFIG" and each.value is not None:
                values[each.name] = each.value
        found = _MARK.fullmatch(entry.name)
        if found is not None and entry.source == "DYNAMIC_BROKER_CONFIG":
            marks[found["rate"]] = found
    return {
        rate: BrokerRate(values.get(rate))
        if (mark := marks.get(rate)) is None
        else BrokerRate(values.get(rate), mark[0], None if mark["was"] == "none" else mark["was"], mark["is"])
        for rate in RATES
    }


def limiting(rates: Mapping[str, BrokerRate], wanted: Mapping[str, int]) -> list[Change]:
    """The changes that set rates of a broker and note what was there."""
    changes = []
    for name, limit in wanted.items():
        rate = rates[name]
        was = rate.was if rate.is_klogs else rate.value
        mark = f"klog.reassign.{name}.was.{'none' if was is None else int(was)}.is.{limit}"
        if rate.mark == mark and rate.is_klogs:
            continue
        if rate.mark is not None and rate.mark != mark:
            changes.append(Change(rate.mark, Operation.DELETE))
        changes.append(Change(name, Operation.SET, str(limit)))
        changes.append(Change(mark, Operation.SET, "1"))
    return changes


def restoring(rates: Mapping[str, BrokerRate]) -> list[Change]:
    """The changes that give the rates of a broker back the values they had before klog set them."""
    changes = []
    for name, rate in rates.items():
        if rate.mark is None:
            continue
        changes.append(Change(rate.mark, Operation.DELETE))
        if rate.is_klogs:
            changes.append(
                Change(name, Operation.DELETE) if rate.was is None else Change(name, Operation.SET, rate.was)
            )
    return changes


def clearing(rates: Mapping[str, BrokerRate]) -> list[Change]:
    """The changes that remove all rates of a broker, as Kafka's tool does; klog's get their former values."""
    restored = restoring(rates)
    changed = {change.name for change in restored}
    return [*restored, *(Change(name, Operation.DELETE) for name in rates if name not in changed)]


def own_entries(moves: Iterable[Move]) -> dict[str, dict[str, list[str]]]:
    """The entries of klog's own in the lists of each topic, by the list's name."""
    return {
        topic: {name: [f"0{entry}" for entry in entries] for name, entries in lists.items()}
        for topic, lists in _entries_of(moves).items()
    }


def _entries_of(moves: Iterable[Move]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for move in moves:
        topic, number = move.partition
        lists = found.setdefault(topic, {LEADER_REPLICAS: [], FOLLOWER_REPLICAS: []})
        lists[LEADER_REPLICAS] += [f"{number}:{broker}" for broker in move.sources]
        lists[FOLLOWER_REPLICAS] += [f"{number}:{broker}" for broker in move.destinations]
    return found


def with_entries(value: str | None, own: Collection[str]) -> str | None:
    """The list with klog's entries for what it has not yet; None if nothing is to be changed."""
    if (value or "").strip() == _ALL:
        return None
    entries = _entries(value)
    known = {_meant(entry) for entry in entries}
    missing = [entry for entry in own if _meant(entry) not in known]
    return ",".join((*entries, *missing)) if missing else None


def without_entries(value: str | None, partitions: Collection[int] | None = None) -> str | None:
    """The list without klog's entries, of these partitions or of all; None if nothing is to be changed."""
    entries = _entries(value)
    kept = [
        entry
        for entry in entries
        if not _is_own(entry) or (partitions is not None and _meant(entry)[0] not in partitions)
    ]
    return None if len(kept) == len(entries) else ",".join(kept)


def _entries(value: str | None) -> list[str]:
    return [entry.strip() for entry in (value or "").split(",") if entry.strip()]


def _is_own(entry: str) -> bool:
    return entry.startswith("0") and not entry.startswith("0:") and ":" in entry


def _meant(entry: str) -> tuple[int, int]:
    partition, _, broker = entry.partition(":")
    return (int(partition), int(broker)) if partition.isdigit() and broker.isdigit() else (-1, -1)


class Throttles:
    """The throttles of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def limit_brokers(self, limits: Mapping[int, Mapping[str, int]]) -> dict[int, dict[str, int]]:
        """Set rates of brokers; returns the rates that were set for just them before, which are kept noted.

        Raises ClientError, ChannelError; then some brokers may have their rates.
        """
        before: dict[int, dict[str, int]] = {}
        for broker_id, wanted in sorted(limits.items()):
            rates = self._rates(broker_id)
            changes = limiting(rates, wanted)
            self._alter_broker(broker_id, changes)
            was = {name: (rates[name].was if rates[name].is_klogs else rates[name].value) for name in wanted}
            before[broker_id] = {name: int(value) for name, value in was.items() if value is not None}
        return before

    def throttle(self, moves: Collection[Move]) -> None:
        """Put the replicas of moves into the lists of their topics. Raises ClientError, ChannelError."""
        for topic, lists in own_entries(moves).items():
            values = self._lists(topic)
            wanted = {name: with_entries(values.get(name), own) for name, own in lists.items()}
            self._set_lists(topic, wanted)

    def release(self, partitions: Mapping[str, Collection[int] | None]) -> list[str]:
        """Take klog's entries out of the lists of topics, for some partitions or for all of a topic.

        Returns the topics that had any. A topic that is gone is left out. Raises ClientError, ChannelError.
        """
        released = []
        for topic, numbers in sorted(partitions.items()):
            try:
                values = self._lists(topic)
            except UnknownTopicError:
                continue
            wanted = {
                name: without_entries(values.get(name), numbers)
                for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)
            }
            if any(value is not None for value in wanted.values()):
                self._set_lists(topic, wanted)
                released.append(topic)
        return released

    def change_each(
        self, broker_ids: Iterable[int], changes_of: Callable[[Mapping[str, BrokerRate]], list[Change]]
    ) -> tuple[list[int], dict[int, KlogError]]:
        """Change the rates of brokers: `restoring` or `clearing` says how.

        Returns the brokers that were changed, and why others could not be asked: some may not run.
        """
        changed, failures = [], {}
        for broker_id in sorted(broker_ids):
            try:
                if changes := changes_of(self._rates(broker_id)):
                    self._alter_broker(broker_id, changes)
                    changed.append(broker_id)
            except KlogError as error:
                failures[broker_id] = error
        return changed, failures

    def replace_rates(self, limits: Mapping[int, Mapping[str, int]]) -> None:
        """Set rates of brokers as Kafka's tool does, without a note of what was there. Raises ClientError."""
        for broker_id, wanted in sorted(limits.items()):
            changes = [Change(name, Operation.SET, str(value)) for name, value in wanted.items()]
            self._alter_broker(broker_id, changes)

    def replace_lists(self, moves: Iterable[Move]) -> None:
        """Replace the lists of the topics of moves as Kafka's tool does. Raises ClientError, ChannelError."""
        for topic, lists in sorted(_entries_of(moves).items()):
            self._set_lists(topic, {name: ",".join(sorted(own)) for name, own in lists.items()}, empty=True)

    def clear_topics(self, topics: Iterable[str]) -> None:
        """Remove the lists as Kafka's tool does. Raises ClientError, ChannelError."""
        for topic in sorted(topics):
            changes = [Change(name, Operation.DELETE) for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
            alter(self._cluster, ConfigEntity(EntityType.TOPICS, topic), changes)

    def _alter_broker(self, broker_id: int, changes: Sequence[Change]) -> None:
        """Make changes, and wait until the broker has them: it answers before they are in force."""
        if not changes:
            return
        alter(self._cluster, _broker(broker_id), changes)
        wanted = {change.name: change.value for change in changes}
        own = {name: value for name, value in wanted.items() if name in RATES}
        marks = {name: value is not None for name, value in wanted.items() if name not in RATES}

        def in_force() -> bool:
            rates = self._rates(broker_id)
            noted = {rate.mark for rate in rates.values()}
            return all(_number(rates[name].value) == _number(value) for name, value in own.items()) and all(
                (name in noted) == is_set for name, is_set in marks.items()
            )

        self._wait_for(in_force, f"broker {broker_id}")

    def _wait_for(self, in_force: Callable[[], bool], what: str) -> None:
        retry = self._cluster.new_retry()
        while not in_force():
            retry.failed(ClientError(f"{what} does not take over its throttles"))

    def _rates(self, broker_id: int) -> dict[str, BrokerRate]:
        return rates_of(describe(self._cluster, _broker(broker_id)))

    def _lists(self, topic: str) -> dict[str, str | None]:
        found = describe(self._cluster, ConfigEntity(EntityType.TOPICS, topic))
        return {
            entry.name: entry.value
            for entry in found
            if entry.name in (LEADER_REPLICAS, FOLLOWER_REPLICAS) and entry.is_set(EntityType.TOPICS)
        }

    def _set_lists(self, topic: str, wanted: Mapping[str, str | None], *, empty: bool = False) -> None:
        """Set lists; None leaves one as it is, and an empty one is deleted unless it may be `empty`."""
        changes = [
            Change(name, Operation.SET, value) if value or empty else Change(name, Operation.DELETE)
            for name, value in wanted.items()
            if value is not None
        ]
        if changes:
            alter(self._cluster, ConfigEntity(EntityType.TOPICS, topic), changes)
            asked = {change.name: change.value for change in changes}

            def in_force() -> bool:
                values = self._lists(topic)
                return all(values.get(name) == value for name, value in asked.items())

            self._wait_for(in_force, f"topic {topic}")


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)


def _broker(broker_id: int) -> ConfigEntity:
    return ConfigEntity(EntityType.BROKERS, str(broker_id))
