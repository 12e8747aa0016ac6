"""The states of partitions: NonExistent, New, Online, Offline, and the elections that lead to Online.

From Kafka's PartitionStateMachine. An election reads the state from the tree, decides, and writes it under
its version: a leader that changed its ISR meanwhile is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from klog.controller import leader_selection
from klog.controller.context import ControllerContext
from klog.controller.leader_selection import Election, Strategy
from klog.controller.observer import ControllerObserver
from klog.controller.request_batch import RequestBatch
from klog.controller.states import PARTITION_MAY_COME_FROM, PartitionState, those_that_may_become
from klog.formats.names import TopicPartition
from klog.metadata.election import FencedStore
from klog.metadata.fenced_writes import create_partition_states, update_partition_states
from klog.metadata.topics import read_partition_states
from klog.metadata.values import LeaderAndIsr, LeaderIsrAndControllerEpoch

_log = logging.getLogger(__name__)

# Whether a topic's config allows leaders that are not in sync.
AllowsUnclean = Callable[[str], bool]
# Why a partition got no leader.
Failure: TypeAlias = str


class PartitionStateMachine:
    """Moves partitions between states, and tells brokers of it. Raises ControllerMovedError."""

    def __init__(
        self,
        context: ControllerContext,
        fenced: FencedStore,
        batch: RequestBatch,
        allows_unclean: AllowsUnclean,
        observer: ControllerObserver,
    ) -> None:
        self._context = context
        self._fenced = fenced
        self._batch = batch
        self._allows_unclean = allows_unclean
        self._observer = observer

    def startup(self) -> None:
        """States as the tree has them, then an election wherever a leader is missing."""
        for where in self._context.all_partitions():
            leader = self._context.leader(where)
            if leader is None:
                state = PartitionState.NEW
            elif self._context.is_replica_online(leader, where):
                state = PartitionState.ONLINE
            else:
                state = PartitionState.OFFLINE
            self._context.partition_states[where] = state
        self.elect_where_missing()

    def elect_where_missing(self, topic: str | None = None) -> dict[TopicPartition, LeaderAndIsr | Failure]:
        """Tries to bring new and offline partitions (of one topic, or all) online."""
        waiting = [
            where
            for where, state in self._context.partition_states.items()
            if state in (PartitionState.NEW, PartitionState.OFFLINE)
            and where.topic not in self._context.topics_to_delete
            and topic in (None, where.topic)
        ]
        return self.bring_online(waiting, Strategy.OFFLINE)

    def move(self, partitions: Iterable[TopicPartition], target: PartitionState) -> None:
        """Moves partitions to a state that needs no election."""
        for where in self._valid(partitions, target):
            self._context.partition_states[where] = target

    def bring_online(
        self, partitions: Iterable[TopicPartition], strategy: Strategy
    ) -> dict[TopicPartition, LeaderAndIsr | Failure]:
        """First states for new partitions, elections for the others; each one's state, or why it got none."""
        valid = self._valid(partitions, PartitionState.ONLINE)
        new = [each for each in valid if self._context.partition_states[each] is PartitionState.NEW]
        old = [each for each in valid if self._context.partition_states[each] is not PartitionState.NEW]
        results = self._initialize(new)
        results |= self._elect(old, strategy)
        for where, result in results.items():
            if isinstance(result, LeaderAndIsr):
                self._context.partition_states[where] = PartitionState.ONLINE
            else:
                _log.error("no leader for %s (%s): %s", where, strategy.value, result)
        self._batch.send()
        return results

    def _valid(self, partitions: Iterable[TopicPartition], target: PartitionState) -> list[TopicPartition]:
        return those_that_may_become(
            partitions,
            target,
            self._context.partition_states,
            PARTITION_MAY_COME_FROM,
            PartitionState.NON_EXISTENT,
        )

    def _initialize(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderAndIsr | Failure]:
        results: dict[TopicPartition, LeaderAndIsr | Failure] = {}
        states: dict[TopicPartition, LeaderAndIsr] = {}
        for where in partitions:
            replicas = self._context.assignment(where).replicas
            live = {each for each in replicas if self._context.is_replica_online(each, where)}
            choice = leader_selection.for_new(replicas, live.__contains__)
            if choice is None:
                results[where] = "no replica is alive"
            else:
                states[where] = LeaderAndIsr(choice.leader, 0, choice.isr)
        for where, error in create_partition_states(self._fenced, states).items():
            if error is not None:
                results[where] = str(error)
                continue
            results[where] = states[where]
            leadership = self._remember(where, states[where])
            self._batch.add_leader_and_isr(states[where].isr, where, leadership, is_new=True)
        return results

    def _elect(
        self, partitions: Sequence[TopicPartition], strategy: Strategy
    ) -> dict[TopicPartition, LeaderAndIsr | Failure]:
        results: dict[TopicPartition, LeaderAndIsr | Failure] = {}
        remaining = list(partitions)
        while remaining:
            elections = self._decide(remaining, strategy, results)
            states = {where: each.state for where, each in elections.items() if each.state is not None}
            updates = update_partition_states(self._fenced, states)
            for where, state in updates.updated.items():
                results[where] = state
                leadership = self._remember(where, state)
                election = elections[where]
                self._batch.add_leader_and_isr(election.recipients, where, leadership, is_new=False)
                if election.unclean:
                    self._observer.elected_unclean()
            results |= {where: str(error) for where, error in updates.failed.items()}
            remaining = list(updates.outdated)
        return results

    def _decide(
        self,
        partitions: Sequence[TopicPartition],
        strategy: Strategy,
        results: dict[TopicPartition, LeaderAndIsr | Failure],
    ) -> dict[TopicPartition, Election]:
        present = read_partition_states(self._fenced.store, partitions)
        elections = {}
        for where in partitions:
            known = present.get(where)
            if known is None:
                results[where] = "it has no state in the tree"
            elif known.controller_epoch > self._fenced.reign.epoch:
                results[where] = f"the later controller epoch {known.controller_epoch} wrote its state"
            else:
                election = self._hold(where, known.leader_and_isr, strategy)
                if election.state is None:
                    results[where] = "no replica is eligible"
                elections[where] = election
        return elections

    def _hold(self, where: TopicPartition, current: LeaderAndIsr, strategy: Strategy) -> Election:
        election = leader_selection.elect(self._context, where, current, strategy)
        if election.state is None and strategy is Strategy.OFFLINE and self._allows_unclean(where.topic):
            return leader_selection.elect(self._context, where, current, Strategy.UNCLEAN)
        return election

    def _remember(self, where: TopicPartition, state: LeaderAndIsr) -> LeaderIsrAndControllerEpoch:
        leadership = LeaderIsrAndControllerEpoch(state, self._fenced.reign.epoch)
        self._context.leadership[where] = leadership
        return leadership
