"""Finds what is wrong with a cluster, and says what to do about it.

`problems` decides from values, without I/O. Partitions are judged as `kafka-topics --describe` with
`--under-replicated-partitions` and its like judges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from klog.admin.requests.cluster_description import NO_BROKER, ClusterNodes, Quorum
from klog.admin.topics import Partition, Topic
from klog.formats.names import TopicPartition

CAUGHT_UP_MS: Final = 30_000
_MORE_REPLICAS: Final = (
    "add a replica (klog reassign plan --replication-factor), or lower min.insync.replicas of the topic"
)


class Severity(StrEnum):
    """ERROR: records are out of reach or on too few disks. WARNING: the next failure brings that about."""

    ERROR = "error"
    WARNING = "warning"


class Check(StrEnum):
    """What can be wrong, in the order of urgency."""

    NO_CONTROLLER = "no-controller"
    OFFLINE_PARTITION = "offline-partition"
    UNDER_MIN_ISR = "under-min-isr"
    BROKER_OFFLINE = "broker-offline"
    BROKER_UNREACHABLE = "broker-unreachable"
    BROKER_FENCED = "broker-fenced"
    LOG_DIR_OFFLINE = "log-dir-offline"
    QUORUM_BEHIND = "quorum-behind"
    UNDER_REPLICATED = "under-replicated"
    AT_MIN_ISR = "at-min-isr"
    NOT_PREFERRED_LEADER = "not-preferred-leader"

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        warnings = (Check.AT_MIN_ISR, Check.NOT_PREFERRED_LEADER)
        return Severity.WARNING if self in warnings else Severity.ERROR


class LogDirFailure(NamedTuple):
    """A log directory that a broker cannot use, and Kafka's name of the error."""

    broker_id: int
    path: str
    error: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What a cluster says of itself. `unreachable` has the brokers that did not answer, with the reason."""

    nodes: ClusterNodes
    topics: Sequence[Topic] = ()
    quorum: Quorum | None = None
    unreachable: Mapping[int, str] | None = None
    log_dir_failures: Sequence[LogDirFailure] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: of a partition, a broker, or the cluster."""

    check: Check
    cure: str
    what: str = ""
    partition: TopicPartition | None = None
    broker_id: int | None = None
    log_dir: str | None = None
    state: Partition | None = None
    min_isr: int | None = None

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        state = self.state
        return {
            "check": self.check.value,
            "severity": self.check.severity.value,
            "broker": self.broker_id,
            "logDir": self.log_dir,
            "topic": None if self.partition is None else self.partition.topic,
            "partition": None if self.partition is None else self.partition.partition,
            "leader": None if state is None or state.leader < 0 else state.leader,
            "replicas": None if state is None else list(state.replicas),
            "isr": None if state is None else list(state.isr),
            "minIsr": self.min_isr,
            "message": self.what,
            "cure": self.cure,
        }


def problems(state: ClusterState, now_ms: int) -> list[Problem]:
    """All problems, the most urgent first."""
    live = {each.broker_id for each in state.nodes.brokers if not each.is_fenced}
    found = [*_of_controller(state, now_ms), *_of_brokers(state)]
    for topic in state.topics:
        for partition in topic.partitions:
            found += _of_partition(topic, partition, live)
    order = list(Check)
    return sorted(found, key=lambda each: order.index(each.check))


def is_healthy(found: Iterable[Problem], *, strict: bool = False) -> bool:
    """Whether there is no error; with `strict`, no warning either."""
    return not any(strict or each.check.severity is Severity.ERROR for each in found)


def by_cause(found: Iterable[Problem]) -> list[list[Problem]]:
    """The problems in groups of the same check, sentence and cure: those that one thing has caused."""
    causes: dict[tuple[Check, str, str, int | None], list[Problem]] = {}
    for each in found:
        causes.setdefault((each.check, each.what, each.cure, each.broker_id), []).append(each)
    return list(causes.values())


def _of_controller(state: ClusterState, now_ms: int) -> Iterator[Problem]:
    quorum = state.quorum
    leader = state.nodes.controller_id if quorum is None else quorum.leader_id
    if leader == NO_BROKER:
        cure = "start the brokers and ZooKeeper" if quorum is None else "start a majority of the controllers"
        yield Problem(Check.NO_CONTROLLER, cure, "nobody elects leaders or creates topics")
    if quorum is None:
        return
    for each in quorum.replicas:
        behind_ms = now_ms - each.last_caught_up_ms
        if each.is_voter and each.replica_id != quorum.leader_id and behind_ms > CAUGHT_UP_MS:
            yield Problem(
                Check.QUORUM_BEHIND,
                f"start controller {each.replica_id}, or see its log",
                f"the controller is {quorum.high_watermark - each.log_end_offset} records behind"
                if each.last_caught_up_ms > 0
                else "the controller has never caught up",
                broker_id=each.replica_id,
            )


def _of_brokers(state: ClusterState) -> Iterator[Problem]:
    known = {each.broker_id for each in state.nodes.brokers}
    replicas: dict[int, int] = {}
    for topic in state.topics:
        for partition in topic.partitions:
            for broker_id in partition.replicas:
                replicas[broker_id] = replicas.get(broker_id, 0) + 1
    for broker_id in sorted(replicas.keys() - known):
        yield Problem(
            Check.BROKER_OFFLINE,
            f"start broker {broker_id}; if it is gone for good: klog reassign plan --drain {broker_id}",
            f"the broker has {replicas[broker_id]} replicas and does not run",
            broker_id=broker_id,
        )
    for each in state.nodes.brokers:
        if each.is_fenced:
            yield Problem(
                Check.BROKER_FENCED,
                f"start broker {each.broker_id}, or see in its log why it does not catch up",
                f"the broker has {replicas.get(each.broker_id, 0)} replicas and is fenced",
                broker_id=each.broker_id,
            )
    for broker_id, reason in sorted((state.unreachable or {}).items()):
        yield Problem(
            Check.BROKER_UNREACHABLE,
            "see whether it runs, and whether its advertised.listeners can be reached from here",
            reason,
            broker_id=broker_id,
        )
    for failure in sorted(state.log_dir_failures):
        yield Problem(
            Check.LOG_DIR_OFFLINE,
            f"replace the disk and restart broker {failure.broker_id}, which then copies its replicas",
            failure.error,
            broker_id=failure.broker_id,
            log_dir=failure.path,
        )


def _of_partition(topic: Topic, partition: Partition, live: set[int]) -> Iterator[Problem]:
    name = TopicPartition(topic.name, partition.partition)
    isr, replicas, min_isr = partition.isr, partition.replicas, topic.min_isr

    def problem(check: Check, what: str, cure: str) -> Problem:
        return Problem(check, cure, what, name, state=partition, min_isr=min_isr)

    missing = [each for each in replicas if each not in isr]
    if partition.leader < 0 or partition.leader not in live:
        yield problem(
            Check.OFFLINE_PARTITION,
            "no leader: nothing can be written or read",
            f"start broker {_ids(isr or replicas, ' or ')}; if it is lost, "
            "klog elect-leader --unclean TOPIC:PARTITION goes on without the records that only it has",
        )
        return
    if len(isr) < min_isr:
        yield problem(
            Check.UNDER_MIN_ISR,
            f"{len(isr)} of {min_isr} required replicas in sync: acks=all is refused",
            _bring_back(partition, live) if missing else _MORE_REPLICAS,
        )
    elif len(isr) == min_isr and len(replicas) > 1:
        yield problem(
            Check.AT_MIN_ISR,
            "acks=all is refused as soon as one more replica is out of sync"
            if len(isr) > 1
            else "the leader is the only replica in sync: the partition is offline if it fails",
            _bring_back(partition, live) if missing else _MORE_REPLICAS,
        )
    if missing:
        yield problem(
            Check.UNDER_REPLICATED,
            f"replicas on {_ids(missing, ', ')} are not in sync",
            _bring_back(partition, live),
        )
    if replicas and partition.leader != replicas[0] and replicas[0] in isr:
        yield problem(
            Check.NOT_PREFERRED_LEADER,
            "the leader is not the first replica, so the load is not as it was planned",
            "klog elect-leader --preferred --all",
        )


def _bring_back(partition: Partition, live: set[int]) -> str:
    """What brings replicas back in sync: their broker, their disk, or time."""
    missing = [each for each in partition.replicas if each not in partition.isr]
    down = [each for each in missing if each not in live]
    if down:
        return f"start broker {_ids(down, ' and ')}"
    on_bad_disk = [each for each in missing if each in partition.offline]
    if on_bad_disk:
        return f"repair the log directory of broker {_ids(on_bad_disk, ' and ')}"
    return f"wait for broker {_ids(missing, ' and ')} to catch up (klog log-dirs), or see its log"


def _ids(brokers: Iterable[int], joint: str) -> str:
    return joint.join(map(str, brokers)) or "-"
