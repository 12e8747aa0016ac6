"""Handles the nodes that others create for the controller: failed log directories, changed ISRs, and the
legacy nodes that old tools write.

Each node is read, acted on and deleted. The watch is set before the node is read, so that none is missed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from klog.controller.broker_changes import BrokerChanges
from klog.controller.elections import Elections
from klog.controller.events import WatchedNode
from klog.controller.reassignments import Reassignments
from klog.controller.state_machines import StateMachines
from klog.formats.names import TopicPartition
from klog.metadata import paths, znodes
from klog.metadata.errors import InvalidZnodeError, NoNodeError
from klog.metadata.fenced_writes import delete_nodes
from klog.metadata.store import SetData, Watch
from klog.metadata.topics import read_partition_states
from klog.protocol.election_type import ElectionType
from klog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Notifications:
    """Reads and deletes the nodes for one active controller."""

    state_machines: StateMachines
    brokers: BrokerChanges
    elections: Elections
    reassignments: Reassignments
    watch: Callable[[WatchedNode], Watch]
    _legacy_reassignment: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._store = self.state_machines.fenced.store

    def delete_old_notifications(self) -> None:
        """Deletes the notifications from before this election, because failover reads everything anyway."""
        for node in (WatchedNode.LOG_DIR_EVENTS, WatchedNode.ISR_CHANGES):
            delete_nodes(self.state_machines.fenced, self._notification_paths(node))

    def _notification_paths(self, node: WatchedNode) -> list[str]:
        names = self._store.children(node.value, self.watch(node))
        return [f"{node.value}/{name}" for name in names]

    def log_dir_events(self) -> None:
        """Asks brokers that have lost a directory for the state of all their replicas."""
        notification_paths = self._notification_paths(WatchedNode.LOG_DIR_EVENTS)
        broker_ids = set()
        for path, node in zip(notification_paths, self._store.get_many(notification_paths), strict=True):
            if node is not None:
                try:
                    broker_ids.add(znodes.decode_log_dir_event(path, node.data))
                except InvalidZnodeError as error:
                    _log.error("%s", error)
        self.brokers.log_dirs_failed(broker_ids)
        delete_nodes(self.state_machines.fenced, notification_paths)

    def isr_changes(self) -> None:
        """Reads partition states that leaders have written themselves.

        Leaders before 2.7 did, without AlterPartition.
        """
        notification_paths = self._notification_paths(WatchedNode.ISR_CHANGES)
        partitions: set[TopicPartition] = set()
        for path, node in zip(notification_paths, self._store.get_many(notification_paths), strict=True):
            if node is not None:
                partitions.update(self._partitions(path, node.data))
        known = [each for each in sorted(partitions) if each in self.state_machines.context.leadership]
        self.state_machines.context.leadership.update(read_partition_states(self._store, known))
        self.state_machines.send_update_metadata(known)
        self.reassignments.isr_changed(known)
        delete_nodes(self.state_machines.fenced, notification_paths)

    def _partitions(self, path: str, data: bytes | None) -> list[TopicPartition]:
        try:
            return znodes.decode_partitions(path, data)
        except InvalidZnodeError as error:
            _log.error("%s", error)
            return []

    def preferred_election(self) -> None:
        """Handles the legacy node for preferred leader elections. The node stays until they are done."""
        path = paths.PREFERRED_REPLICA_ELECTION
        if self._store.exists(path, self.watch(WatchedNode.PREFERRED_ELECTION)) is None:
            return
        try:
            data = self._store.get(path).data
        except NoNodeError:
            return
        self.elections.elect(self._partitions(path, data), ElectionType.PREFERRED)
        delete_nodes(self.state_machines.fenced, [path])

    def reassignment(self) -> set[TopicPartition]:
        """Handles the legacy node for reassignments, and returns the partitions whose reassignment it has
        started.

        Partitions are removed from the node when they are done or refused.
        """
        path = paths.REASSIGN_PARTITIONS
        if self._store.exists(path, self.watch(WatchedNode.REASSIGN_PARTITIONS)) is None:
            self._legacy_reassignment = False
            return set()
        self._legacy_reassignment = True
        wanted = self._reassignment_node()
        context = self.state_machines.context
        new = {
            partition: target
            for partition, target in wanted.items()
            if partition not in context.being_reassigned or context.assignment(partition).target != target
        }
        # The tool that wrote the node has checked that the brokers are alive. They may be away for a while by
        # now.
        results = self.reassignments.request(new, require_live_targets=False)
        for partition, result in results.items():
            if result.error is not ErrorCode.NONE:
                _log.warning("%s is not reassigned as %s asks: %s", partition, path, result.error.name)
        self.prune_reassignment()
        return {partition for partition, result in results.items() if result.error is ErrorCode.NONE}

    def _reassignment_node(self) -> dict[TopicPartition, tuple[int, ...]]:
        try:
            return znodes.decode_reassignments(self._store.get(paths.REASSIGN_PARTITIONS).data)
        except (InvalidZnodeError, NoNodeError) as error:
            _log.error("%s", error)
            return {}

    def prune_reassignment(self, replaced: Collection[TopicPartition] = ()) -> None:
        """Removes finished reassignments from the legacy node, and deletes the node when it is empty.

        `replaced` are partitions whose reassignment a request has started or cancelled: what the node asks
        for them is void, and the next controller must not start it again.
        """
        if not self._legacy_reassignment:
            return
        wanted = self._reassignment_node()
        running = self.state_machines.context.being_reassigned
        rest = {
            partition: target
            for partition, target in wanted.items()
            if partition in running and partition not in replaced
        }
        if not rest:
            self._legacy_reassignment = False
            delete_nodes(self.state_machines.fenced, [paths.REASSIGN_PARTITIONS])
        elif rest != wanted:
            data = znodes.encode_reassignments(rest)
            self.state_machines.fenced.write(SetData(paths.REASSIGN_PARTITIONS, data))
