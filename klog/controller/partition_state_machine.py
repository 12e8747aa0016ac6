"""Moves partitions between NonExistent, New, Online and Offline, and elects the leaders for Online.

From Kafka's PartitionStateMachine. An election decides from the state that the controller knows, and writes
the new state with the version of that one. If somebody else has changed it, or if it has no candidate, the
state is read from the tree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from klog.controller import leader_selection
from klog.controller.context import ControllerContext
from klog.controller.leader_selection import Election, Strategy
from klog.controller.observer import ControllerObserver
from klog.controller.request_batch import RequestBatch
from klog.controller.states import VALID_PREVIOUS_PARTITION_STATES, PartitionState, valid_transitions
from klog.formats.names import TopicPartition
from klog.metadata.election import FencedStore
from klog.metadata.fenced_writes import create_partition_states, update_partition_states
from klog.metadata.topics import read_partition_states
from klog.metadata.values import INITIAL_LEADER_EPOCH, LeaderAndIsr, LeaderIsrAndControllerEpoch

_log = logging.getLogger(__name__)

# Whether the config of a topic allows leaders that are not in sync.
AllowsUnclean = Callable[[str], bool]
# The reason why a partition got no leader.
Failure: TypeAlias = str

# Elections that somebody asks for. If one gives no leader, nothing is worse than before.
_ANSWERED: Final = (Strategy.CONTROLLED_SHUTDOWN, Strategy.PREFERRED, Strategy.UNCLEAN)


@dataclass(frozen=True, slots=True)
class PartitionStateMachine:
    """Moves partitions between states and sends the requests that follow. Raises ControllerMovedError."""

    context: ControllerContext
    fenced: FencedStore
    batch: RequestBatch
    allows_unclean: AllowsUnclean
    observer: ControllerObserver

    def startup(self) -> None:
        """Takes the states from the context, then elects missing leaders."""
        for partition in self.context.all_partitions():
            leader = self.context.leader(partition)
            if leader is None:
                state = PartitionState.NEW
            elif self.context.is_replica_online(leader, partition):
                state = PartitionState.ONLINE
            else:
                state = PartitionState.OFFLINE
            self.context.partition_states[partition] = state
        self.elect_missing_leaders()

    def elect_missing_leaders(self, topic: str | None = None) -> dict[TopicPartition, LeaderAndIsr | Failure]:
        """Tries to bring new and offline partitions online: those of one topic, or all."""
        waiting = [
            partition
            for partition, state in self.context.partition_states.items()
            if state in (PartitionState.NEW, PartitionState.OFFLINE)
            and partition.topic not in self.context.topics_to_delete
            and topic in (None, partition.topic)
        ]
        return self.bring_online(waiting, Strategy.OFFLINE)

    def move(self, partitions: Iterable[TopicPartition], target: PartitionState) -> None:
        """Moves partitions to a state that needs no election."""
        for partition in self._valid(partitions, target):
            self.context.partition_states[partition] = target

    def bring_online(
        self, partitions: Iterable[TopicPartition], strategy: Strategy
    ) -> dict[TopicPartition, LeaderAndIsr | Failure]:
        """Writes the first state of new partitions and elects leaders for the others.

        Returns each partition's state, or why it got no leader.
        """
        valid = self._valid(partitions, PartitionState.ONLINE)
        new = [each for each in valid if self.context.partition_states[each] is PartitionState.NEW]
        old = [each for each in valid if self.context.partition_states[each] is not PartitionState.NEW]
        results = self._initialize(new)
        results |= self._elect(old, strategy)
        for partition, result in results.items():
            if isinstance(result, LeaderAndIsr):
                self.context.partition_states[partition] = PartitionState.ONLINE
            else:
                # A broker that shuts down keeps what nobody can take over, and says so itself. Who asks for
                # an election gets the reason as the answer.
                level = logging.INFO if strategy in _ANSWERED else logging.ERROR
                _log.log(level, "no leader for %s (%s): %s", partition, strategy.value, result)
        self.batch.send()
        return results

    def _valid(self, partitions: Iterable[TopicPartition], target: PartitionState) -> list[TopicPartition]:
        return valid_transitions(
            partitions,
            target,
            self.context.partition_states,
            VALID_PREVIOUS_PARTITION_STATES,
            PartitionState.NON_EXISTENT,
        )

    def _initialize(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderAndIsr | Failure]:
        results: dict[TopicPartition, LeaderAndIsr | Failure] = {}
        states: dict[TopicPartition, LeaderAndIsr] = {}
        for partition in partitions:
            replicas = self.context.assignment(partition).replicas
            live = {each for each in replicas if self.context.is_replica_online(each, partition)}
            choice = leader_selection.for_new(replicas, live.__contains__)
            if choice is None:
                results[partition] = "no replica is alive"
            else:
                states[partition] = LeaderAndIsr(choice.leader, INITIAL_LEADER_EPOCH, choice.isr)
        for partition, error in create_partition_states(self.fenced, states).items():
            if error is not None:
                results[partition] = str(error)
                continue
            results[partition] = states[partition]
            leadership = self.context.set_leadership(partition, states[partition], self.fenced.epoch)
            self.batch.add_leader_and_isr(states[partition].isr, partition, leadership, is_new=True)
        return results

    def _elect(
        self, partitions: Sequence[TopicPartition], strategy: Strategy
    ) -> dict[TopicPartition, LeaderAndIsr | Failure]:
        results: dict[TopicPartition, LeaderAndIsr | Failure] = {}
        remaining = list(partitions)
        # The controller knows what it has read or written last. If that is outdated, the write fails.
        present: Mapping[TopicPartition, LeaderIsrAndControllerEpoch] = self.context.leadership
        is_read = False
        while remaining:
            elections, refusals = self._decide(remaining, present, strategy)
            states = {
                partition: each.state for partition, each in elections.items() if each.state is not None
            }
            updates = update_partition_states(self.fenced, states)
            for partition, state in updates.updated.items():
                results[partition] = state
                leadership = self.context.set_leadership(partition, state, self.fenced.epoch)
                election = elections[partition]
                self.batch.add_leader_and_isr(election.recipients, partition, leadership, is_new=False)
                if election.unclean:
                    self.observer.elected_unclean()
            results |= {partition: str(error) for partition, error in updates.failed.items()}
            remaining = list(updates.outdated)
            if is_read:
                results |= refusals
            else:
                # Somebody may have changed the tree so that there is a candidate.
                remaining += refusals
            present = read_partition_states(self.fenced.store, remaining)
            is_read = True
        return results

    def _decide(
        self,
        partitions: Sequence[TopicPartition],
        present: Mapping[TopicPartition, LeaderIsrAndControllerEpoch],
        strategy: Strategy,
    ) -> tuple[dict[TopicPartition, Election], dict[TopicPartition, Failure]]:
        """The elections that give a leader, and why the other partitions get none."""
        elections: dict[TopicPartition, Election] = {}
        refusals: dict[TopicPartition, Failure] = {}
        for partition in partitions:
            known = present.get(partition)
            if known is None:
                refusals[partition] = "it has no state in the tree"
            elif known.controller_epoch > self.fenced.epoch:
                refusals[partition] = f"the later controller epoch {known.controller_epoch} wrote its state"
            else:
                election = self._elect_one(partition, known.leader_and_isr, strategy)
                if election.state is None:
                    refusals[partition] = "no replica is eligible"
                else:
                    elections[partition] = election
        return elections, refusals

    def _elect_one(self, partition: TopicPartition, current: LeaderAndIsr, strategy: Strategy) -> Election:
        election = leader_selection.elect(self.context, partition, current, strategy)
        if election.state is None and strategy is Strategy.OFFLINE and self.allows_unclean(partition.topic):
            return leader_selection.elect(self.context, partition, current, Strategy.UNCLEAN)
        return election
