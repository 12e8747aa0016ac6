"""Elects leaders on request (preferred or unclean), and preferred leaders to balance the brokers.

From Kafka's KafkaController (ElectLeaders, auto.leader.rebalance.enable).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klog.controller.leader_selection import Strategy, for_preferred
from klog.controller.state_machines import StateMachines
from klog.formats.constants import NO_LEADER
from klog.formats.names import TopicPartition
from klog.metadata.values import LeaderAndIsr
from klog.protocol.election_type import ElectionType
from klog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)


class Elections:
    """Carries out elections through the state machines."""

    def __init__(self, state_machines: StateMachines) -> None:
        self._state_machines = state_machines
        self._context = state_machines.context

    def elect(
        self, partitions: Iterable[TopicPartition] | None, election_type: ElectionType
    ) -> dict[TopicPartition, ErrorCode]:
        """Elects leaders, and returns the result for each partition.

        If `partitions` is None, all partitions are tried, and those that need no election are left out of the
        result.
        """
        asked = list(self._context.all_partitions() if partitions is None else partitions)
        results: dict[TopicPartition, ErrorCode] = {}
        wanted = []
        for partition in asked:
            refusal = self._refusal(partition, election_type)
            if refusal is None:
                wanted.append(partition)
            elif partitions is not None or refusal is not ErrorCode.ELECTION_NOT_NEEDED:
                results[partition] = refusal
        preferred = election_type is ElectionType.PREFERRED
        strategy = Strategy.PREFERRED if preferred else Strategy.UNCLEAN
        failed = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if preferred
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        elected = self._state_machines.partitions.bring_online(wanted, strategy)
        for partition in wanted:
            done = isinstance(elected.get(partition), LeaderAndIsr)
            results[partition] = ErrorCode.NONE if done else failed
        return results

    def _refusal(self, partition: TopicPartition, election_type: ElectionType) -> ErrorCode | None:
        if partition not in self._context.leadership or not self._context.assignment(partition).replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.topic in self._context.topics_to_delete:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        leader = self._context.leadership[partition].leader_and_isr.leader
        if election_type is ElectionType.PREFERRED:
            needed = leader != self._context.assignment(partition).replicas[0]
        else:
            needed = leader == NO_LEADER or not self._context.is_alive(leader)
        return None if needed else ErrorCode.ELECTION_NOT_NEEDED

    def rebalance(self, imbalance_percentage: int) -> None:
        """Elects preferred leaders for each broker that leads too few of the partitions that prefer it."""
        by_preferred: dict[int, list[TopicPartition]] = {}
        for partition in self._context.all_partitions():
            replicas = self._context.assignment(partition).replicas
            if replicas and partition.topic not in self._context.topics_to_delete:
                by_preferred.setdefault(replicas[0], []).append(partition)
        for broker_id, partitions in sorted(by_preferred.items()):
            elsewhere = [each for each in partitions if self._context.leader(each) not in (None, broker_id)]
            if len(elsewhere) * 100 > imbalance_percentage * len(partitions):
                possible = [each for each in elsewhere if self._preferred_could_lead(each)]
                self._state_machines.partitions.bring_online(possible, Strategy.PREFERRED)

    def _preferred_could_lead(self, partition: TopicPartition) -> bool:
        known = self._context.leadership[partition].leader_and_isr
        replicas = self._context.assignment(partition).replicas
        live = {each for each in replicas if self._context.is_replica_online(each, partition)}
        return for_preferred(replicas, known.isr, live.__contains__) is not None
