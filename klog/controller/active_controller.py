"""The active controller of one epoch: reads the cluster at failover, then handles events until it resigns.

From Kafka's KafkaController (onControllerFailover). It knows only what it has read since its election. The
next controller finds in the tree what this one did not finish.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klog.controller.alter_partition import AlterPartitions
from klog.controller.broker_changes import BrokerChanges
from klog.controller.broker_request_queue import BrokerRequestQueue
from klog.controller.context import ControllerContext
from klog.controller.elections import Elections
from klog.controller.events import (
    AllocateProducerIds,
    AlterPartition,
    AlterReassignments,
    BrokerNodeChanged,
    ControlledShutdown,
    ElectLeaders,
    Event,
    ListReassignments,
    RebalanceDue,
    ResponseReceived,
    TopicNodeChanged,
    TreeChanged,
    UncleanElectionEnabled,
    WatchedNode,
)
from klog.controller.notifications import Notifications
from klog.controller.observer import ControllerObserver
from klog.controller.partition_state_machine import PartitionStateMachine
from klog.controller.reassignments import Reassignments
from klog.controller.replica_state_machine import ReplicaStateMachine
from klog.controller.request_batch import RequestBatch
from klog.controller.settings import ControllerSettings
from klog.controller.state_machines import StateMachines
from klog.controller.states import Replica
from klog.controller.topic_changes import TopicChanges
from klog.controller.topic_deletion import TopicDeletion
from klog.metadata import cluster, topics, znodes
from klog.metadata.configs import read_config
from klog.metadata.control_requests import partition_states, topic_ids
from klog.metadata.election import ControllerEpoch, FencedStore
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.fenced_writes import write_features
from klog.metadata.paths import FEATURE
from klog.metadata.producer_ids import ProducerIdsExhaustedError, allocate_producer_ids
from klog.metadata.store import MetadataStore, Watch
from klog.metadata.values import FinalizedFeatures, ProducerIdBlock
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest

_log = logging.getLogger(__name__)

_UNCLEAN = "unclean.leader.election.enable"
# What to do about errors that people cause.
_CURES = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        ": it may not be told what to do; name this broker's principal in its super.users, or allow it "
        "ClusterAction on the cluster"
    )
}


class ActiveController:
    """The state and the operations of an active controller.

    Its methods raise ControllerMovedError if another controller has been elected, and StoreError if the tree
    fails. The caller must then drop this object, because it may have stopped halfway.
    """

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        store: MetadataStore,
        epoch: ControllerEpoch,
        request_queue: BrokerRequestQueue,
        enqueue: Callable[[Event], None],
        observer: ControllerObserver,
    ) -> None:
        self.context = ControllerContext()
        self.fenced = FencedStore(store, epoch)
        self._settings = settings
        self._store = store
        self._request_queue = request_queue
        self._enqueue = enqueue
        self._topic_watches: dict[str, Watch] = {}
        self._broker_watches: dict[int, Watch] = {}
        self._node_watches: dict[WatchedNode, Watch] = {}
        present = settings()
        batch = RequestBatch(
            self.context, request_queue, present.broker_id, epoch.epoch, present.inter_broker_listener_name
        )
        self._state_machines = StateMachines(
            self.context,
            self.fenced,
            batch,
            PartitionStateMachine(self.context, self.fenced, batch, self._allows_unclean, observer),
            ReplicaStateMachine(self.context, self.fenced, batch),
        )
        self._deletion = TopicDeletion(
            self._state_machines, self._forget_topic_watch, enabled=present.delete_topic_enable
        )
        self._topics = TopicChanges(self._state_machines, self._watch_topic)
        self._elections = Elections(self._state_machines)
        self._reassignments = Reassignments(self._state_machines)
        self._brokers = BrokerChanges(
            self._state_machines, self._deletion, self._reassignments, request_queue
        )
        self._alter_partitions = AlterPartitions(self._state_machines, self._reassignments)
        self._notifications = Notifications(
            self._state_machines, self._brokers, self._elections, self._reassignments, self._watch
        )

    def start(self) -> None:
        """Failover: sets watches, reads the tree, then brings partitions and replicas up to date."""
        self._enable_features()
        self._notifications.delete_old_notifications()
        self.context.brokers = cluster.live_brokers(self._store, self._watch(WatchedNode.BROKERS))
        self._topics.read(topics.topic_names(self._store, self._watch(WatchedNode.TOPICS)))
        partitions = list(self.context.all_partitions())
        self.context.leadership = topics.read_partition_states(self._store, partitions)
        for broker in list(self.context.brokers.values()):
            self._request_queue.add_broker(broker)
            self._follow_broker(broker.broker_id)
        self._deletion.startup(topics.topics_to_delete(self._store, self._watch(WatchedNode.DELETE_TOPICS)))
        # Brokers must know each other's endpoints before LeaderAndIsr tells them which leader to follow.
        self._state_machines.send_update_metadata()
        self._state_machines.replicas.startup()
        self._state_machines.partitions.startup()
        self._reassignments.resume_all(except_for=self._notifications.reassignment())
        self._deletion.resume()
        self._notifications.preferred_election()
        _log.info(
            "controller of epoch %d: %d brokers, %d topics, %d partitions",
            self.fenced.epoch,
            len(self.context.brokers),
            len(self.context.topics),
            len(partitions),
        )

    def handle(self, event: Event) -> None:
        """Handles one event. Requests are answered before it returns."""
        match event:
            case TreeChanged():
                self._tree_changed(event.node)
            case BrokerNodeChanged():
                self._follow_broker(event.broker_id)
            case TopicNodeChanged():
                self._topics.topic_changed(event.topic)
            case ResponseReceived():
                self._response_received(event)
            case UncleanElectionEnabled():
                self._state_machines.partitions.elect_missing_leaders(event.topic)
            case RebalanceDue():
                self._elections.rebalance(self._settings().leader_imbalance_per_broker_percentage)
            case ControlledShutdown():
                event.reply(self._brokers.controlled_shutdown(event.broker_id, event.broker_epoch))
            case ElectLeaders():
                event.reply(self._elections.elect(event.partitions, event.election_type))
            case AlterPartition():
                self._alter_partitions.alter(
                    event.broker_id, event.broker_epoch, event.wanted, event.version, event.reply
                )
                self._notifications.prune_reassignment()
            case AlterReassignments():
                results = self._reassignments.request(event.targets)
                started = [each for each, result in results.items() if result.error is ErrorCode.NONE]
                self._notifications.prune_reassignment(replaced=started)
                event.reply(results)
            case ListReassignments():
                event.reply(self._reassignments.running(event.partitions))
            case AllocateProducerIds():
                self._allocate_producer_ids(event)

    def _tree_changed(self, node: WatchedNode) -> None:
        match node:
            case WatchedNode.BROKERS:
                now = cluster.live_brokers(self._store, self._watch(node))
                for broker_id in self._brokers.brokers_changed(now):
                    self._follow_broker(broker_id)
            case WatchedNode.TOPICS:
                self._topics.topics_changed(topics.topic_names(self._store, self._watch(node)))
            case WatchedNode.DELETE_TOPICS:
                self._deletion.request(topics.topics_to_delete(self._store, self._watch(node)))
            case WatchedNode.LOG_DIR_EVENTS:
                self._notifications.log_dir_events()
            case WatchedNode.ISR_CHANGES:
                self._notifications.isr_changes()
            case WatchedNode.PREFERRED_ELECTION:
                self._notifications.preferred_election()
            case WatchedNode.REASSIGN_PARTITIONS:
                self._notifications.reassignment()

    def _follow_broker(self, broker_id: int) -> None:
        """Reads a registration again and watches it. `_tree_changed` sees brokers come and go."""
        if broker_id in self.context.brokers:
            try:
                broker = cluster.read_broker(self._store, broker_id, self._watch_broker(broker_id))
            except InvalidZnodeError as error:
                _log.error("%s", error)
                return
            if broker is not None:
                self._brokers.broker_updated(broker)

    def _response_received(self, event: ResponseReceived) -> None:
        request, response = event.request, event.response
        broker = self.context.brokers.get(event.broker_id)
        current = broker is not None and broker.epoch == request.broker_epoch
        if not current or request.controller_epoch != self.fenced.epoch:
            return
        if response.error is not ErrorCode.NONE:
            _log.error(
                "broker %d answered %s with %s%s",
                event.broker_id,
                type(request).__name__,
                response.error.name,
                _CURES.get(response.error, ""),
            )
        if isinstance(request, LeaderAndIsrRequest) and response.error is ErrorCode.NONE:
            ids = topic_ids(request.topic_states)
            self._brokers.leader_and_isr_answered(event.broker_id, response.partitions, ids)
        elif isinstance(request, StopReplicaRequest):
            self._replicas_deleted(event.broker_id, request, event)

    def _replicas_deleted(self, broker_id: int, request: StopReplicaRequest, event: ResponseReceived) -> None:
        wanted = [
            partition for partition, state in partition_states(request.topic_states) if state.delete_partition
        ]
        errors = event.response.partitions
        failed = [
            partition
            for partition in wanted
            if event.response.error is not ErrorCode.NONE
            or errors.get(partition, ErrorCode.NONE) is not ErrorCode.NONE
        ]
        done = [partition for partition in wanted if partition not in failed]
        if failed:
            self._deletion.fail([Replica(partition, broker_id) for partition in failed])
        if done:
            self._deletion.complete([Replica(partition, broker_id) for partition in done])

    def _allocate_producer_ids(self, event: AllocateProducerIds) -> None:
        broker = self.context.brokers.get(event.broker_id)
        if broker is None:
            event.reply(ErrorCode.BROKER_ID_NOT_REGISTERED)
        elif broker.epoch != event.broker_epoch:
            event.reply(ErrorCode.STALE_BROKER_EPOCH)
        else:
            event.reply(self._next_producer_ids(event.broker_id))

    def _next_producer_ids(self, broker_id: int) -> ProducerIdBlock | ErrorCode:
        try:
            return allocate_producer_ids(self._store, broker_id)
        except (InvalidZnodeError, ProducerIdsExhaustedError) as error:
            # Another controller would find the same, so that this one goes on with its other work.
            _log.error("no producer ids for broker %d: %s", broker_id, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR

    def _enable_features(self) -> None:
        node = self._store.get_many([FEATURE])[0]
        if node is None:
            write_features(self.fenced, FinalizedFeatures({}))
            return
        try:
            present = znodes.decode_features(node.data)
        except InvalidZnodeError as error:
            _log.error("%s", error)
            return
        if present.status != 1 or present.version != 2:
            # Features of a node that was not enabled are void (KIP-584).
            kept = present.features if present.status == 1 else {}
            write_features(self.fenced, FinalizedFeatures(kept))

    def _allows_unclean(self, topic: str) -> bool:
        try:
            config = read_config(self._store, f"topics/{topic}")
        except InvalidZnodeError as error:
            _log.error("%s", error)
            return False
        default = self._settings().unclean_leader_election_enable
        return config.get(_UNCLEAN, str(default)).lower() == "true"

    def _watch(self, node: WatchedNode) -> Watch:
        """The same watch object each time, because a watch that is set twice on a node waits only once."""
        return self._node_watches.setdefault(node, lambda _seen: self._enqueue(TreeChanged(node)))

    def _watch_broker(self, broker_id: int) -> Watch:
        return self._broker_watches.setdefault(
            broker_id, lambda _seen: self._enqueue(BrokerNodeChanged(broker_id))
        )

    def _watch_topic(self, topic: str) -> Watch:
        return self._topic_watches.setdefault(topic, lambda _seen: self._enqueue(TopicNodeChanged(topic)))

    def _forget_topic_watch(self, topic: str) -> None:
        self._topic_watches.pop(topic, None)
