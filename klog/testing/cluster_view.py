"""What the brokers of a test cluster say about it, and waiting until they say what a test needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from klog.protocol.entity_fields import Entity
from klog.protocol.errors import ChannelError
from klog.testing.process import BrokerFailedError, BrokerProcess
from klog.testing.topics import read_metadata

WAIT_TIMEOUT_S: Final = 60.0
_ANSWER_TIMEOUT_MS: Final = 2000
_POLL_S: Final = 0.02

_Found = TypeVar("_Found")


def wait_for(look: Callable[[], _Found | None], otherwise: str, timeout_s: float = WAIT_TIMEOUT_S) -> _Found:
    """What `look` finds, as soon as that is not None. Raises BrokerFailedError after the timeout."""
    deadline_s = time.monotonic() + timeout_s
    while (found := look()) is None:
        if time.monotonic() > deadline_s:
            raise BrokerFailedError(f"{otherwise} after {timeout_s:.0f} s")
        time.sleep(_POLL_S)
    return found


class ClusterView:
    """Questions about a cluster. The brokers that run, and are not paused, are asked over the wire."""

    brokers: Mapping[int, BrokerProcess]

    def controller(self) -> int:
        """The id of the controller; waits until there is one. Raises BrokerFailedError after 60 s."""

        def now() -> int | None:
            serving = self._serving()
            return next((each.controller_id for each in self._ask() if each.controller_id in serving), None)

        return wait_for(now, "there is no controller")

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of a partition's leader; waits for one that runs. Raises BrokerFailedError after 60 s."""

        def now() -> int | None:
            found = self._latest(topic).get(partition)
            return found.leader_id if found is not None and found.leader_id in self._serving() else None

        return wait_for(now, f"{topic}-{partition} has no leader")

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The ids of a partition's in-sync replicas. Raises BrokerFailedError if it does not exist."""
        found = wait_for(lambda: self._latest(topic).get(partition), f"there is no {topic}-{partition}")
        return tuple(found.isr_nodes)

    def await_in_sync(self, topic: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until all replicas of a topic are in sync. Raises BrokerFailedError."""

        def whole() -> bool | None:
            found = self._latest(topic).values()
            in_sync = all(set(each.isr_nodes) == set(each.replica_nodes) for each in found)
            return True if found and in_sync else None

        wait_for(whole, f"not all replicas of {topic} are in sync", timeout_s)

    def await_members(self, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until each running broker knows all running brokers and the controller.

        Raises BrokerFailedError.
        """

        def known() -> bool | None:
            serving = self._serving()
            views = list(self._ask())
            agree = all(
                {each.node_id for each in view.brokers} == serving.keys() and view.controller_id in serving
                for view in views
            )
            return True if agree and len(views) == len(serving) else None

        wait_for(known, "not all brokers know each other", timeout_s)

    def _serving(self) -> dict[int, BrokerProcess]:
        return {
            broker_id: each
            for broker_id, each in self.brokers.items()
            if each.pid is not None and each.endpoints and not each.is_paused
        }

    def _ask(self, *topics: str) -> Iterator[Entity]:
        """The answers of the brokers that answer."""
        for broker in self._serving().values():
            try:
                yield read_metadata(broker.bootstrap_servers, topics, _ANSWER_TIMEOUT_MS)
            except ChannelError:
                continue

    def _latest(self, topic: str) -> dict[int, Entity]:
        """The partitions of a topic, each as the broker says that knows its newest leader epoch."""
        latest: dict[int, Entity] = {}
        for answer in self._ask(topic):
            for found in answer.topics[0].partitions:
                known = latest.get(found.partition_index)
                if known is None or found.leader_epoch > known.leader_epoch:
                    latest[found.partition_index] = found
        return latest
