"""Clusters of three brokers that get the loads of one broker, with three replicas and acks=all.

Every topic is led by the controller, and the other two brokers follow. CPU is that of all three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_failover import KINDS, Cluster, cluster
from benchmarks.brokers import KLOG_PROGRAM, RunningBroker

_CONFIG: dict[str, str | int] = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


@dataclass(frozen=True)
class ReplicatedBroker:
    """Three brokers of one kind, asked at the one that leads; `replicas` are those of each partition."""

    name: str
    leader: RunningBroker
    replicas: tuple[int, ...]
    brokers: Sequence[RunningBroker]

    @property
    def port(self) -> int:
        return self.leader.port

    def cpu_s(self) -> float:
        """CPU time of all brokers so far."""
        return sum(broker.cpu_s() for broker in self.brokers)


@contextmanager
def replicated(
    scratch: Path,
    config: dict[str, str | int] | None = None,
    *,
    alone: bool = False,
    checkout: bool = False,
    program: Sequence[str] = KLOG_PROGRAM,
) -> Iterator[list[ReplicatedBroker]]:
    """A cluster of klog, and (unless `alone`) one of Kafka, each with a ZooKeeper of its own.

    `program` are the options of Python that run klog.
    """
    configs = {**_CONFIG, **(config or {})}
    with ExitStack() as closing:
        found = []
        for kind in KINDS[:1] if alone else KINDS:
            work = scratch / f"cluster-{kind}"
            started = cluster(kind, work, configs, checkout=checkout, program=program)
            found.append(_led(kind, closing.enter_context(started)))
        yield found


def _led(kind: str, found: Cluster) -> ReplicatedBroker:
    controller = found.controller()
    followers = (number for number in range(len(found.brokers)) if number != controller)
    return ReplicatedBroker(kind, found.brokers[controller], (controller, *followers), found.brokers)
