"""What ZooKeeper says about a cluster: its brokers, its controller, leaders and in-sync replicas."""

from __future__ import annotations

import json
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

Partition = tuple[str, int]


class PartitionState(NamedTuple):
    """The state of a partition. `leader` is -1 if there is none."""

    leader: int
    leader_epoch: int
    isr: frozenset[int]


class Tree:
    """Reads the znodes of a cluster. Its calls wait while ZooKeeper is away."""

    def __init__(self, hosts: str) -> None:
        retry = KazooRetry(max_tries=-1, max_delay=1, deadline=60)
        self.client = KazooClient(hosts, timeout=30, connection_retry=KazooRetry(max_tries=-1, max_delay=1))
        self._retry = retry
        self.client.start(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.stop()
        self.client.close()

    def _value(self, path: str) -> Any:
        """The JSON of a znode, None if there is no such znode."""
        try:
            return json.loads(self._retry(self.client.get, path)[0])
        except NoNodeError:
            return None

    def _names(self, path: str) -> list[str]:
        try:
            return list(self._retry(self.client.get_children, path))
        except NoNodeError:
            return []

    def brokers(self) -> set[int]:
        """The brokers that are registered."""
        return {int(name) for name in self._names("/brokers/ids")}

    def controller(self) -> int | None:
        found = self._value("/controller")
        return None if found is None else int(found["brokerid"])

    def controller_epoch(self) -> int:
        return int(self._value("/controller_epoch") or 0)

    def topics(self) -> set[str]:
        return set(self._names("/brokers/topics"))

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """The assigned replicas by partition. Empty if there is no such topic."""
        found = self._value(f"/brokers/topics/{topic}")
        return {} if found is None else {int(key): ids for key, ids in found["partitions"].items()}

    def topic_id(self, topic: str) -> str:
        """The id of a topic that exists."""
        return str(self._value(f"/brokers/topics/{topic}")["topic_id"])

    def state(self, partition: Partition) -> PartitionState | None:
        """None before the controller has elected the first leader."""
        topic, number = partition
        found = self._value(f"/brokers/topics/{topic}/partitions/{number}/state")
        if found is None:
            return None
        return PartitionState(found["leader"], found["leader_epoch"], frozenset(found["isr"]))

    def reassigning(self) -> set[Partition]:
        """The partitions whose replicas are being reassigned."""
        found = set()
        for topic in self.topics():
            value = self._value(f"/brokers/topics/{topic}") or {}
            for change in ("adding_replicas", "removing_replicas"):
                found |= {(topic, int(number)) for number, ids in value.get(change, {}).items() if ids}
        return found

    def partitions(self) -> list[Partition]:
        return [(topic, number) for topic in self.topics() for number in self.replicas(topic)]

    def delete_controller(self) -> None:
        """Deletes the controller's node, so that brokers elect another one. The present one may win again."""
        with suppress(NoNodeError):
            self._retry(self.client.delete, "/controller")

    def exists(self, path: str) -> bool:
        return self._retry(self.client.exists, path) is not None

    def without_full_isr(self) -> dict[Partition, PartitionState | None]:
        """The partitions whose in-sync replicas are not all assigned ones, with their states."""
        found = {}
        for topic in self.topics():
            for number, ids in self.replicas(topic).items():
                state = self.state((topic, number))
                if state is None or state.leader not in ids or state.isr != set(ids):
                    found[topic, number] = state
        return found
