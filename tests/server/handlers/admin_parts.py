"""A cluster of three brokers behind the administrative handlers of broker 1: a real controller on a tree in
memory, brokers that obey at once, and time that a test moves.

Everything happens in the test's thread: `settle` lets the controller work until nothing is left to do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

from klog.config.broker import BrokerConfig
from klog.controller.core import ControllerCore
from klog.controller.events import AlterPartition, Event, ResponseReceived, Startup, preempt
from klog.controller.settings import ControllerSettings
from klog.formats.names import TopicPartition
from klog.metadata import cluster
from klog.metadata.cache import MetadataCache, Partitions
from klog.metadata.configs import config_change_notifications
from klog.metadata.control_requests import ControlRequest, ControlResponse, partition_states
from klog.metadata.local import SharedTree, TreeSession
from klog.metadata.topics import create_topic, new_topic_id
from klog.metadata.values import BrokerRegistration, Endpoint, LeaderAndIsr, TopicIdPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest
from klog.protocol.messages import encode_request
from klog.replication.purgatory import Purgatory, Timer
from klog.security.quotas.client_quotas import ClientLimits
from klog.server.handlers.cluster.control import ControlHandler
from klog.server.handlers.cluster.controller_requests import (
    ControllerRequestsHandler,
)
from klog.server.handlers.cluster.describe_cluster import DescribeClusterHandler
from klog.server.handlers.cluster.elect_leaders import ElectLeadersHandler
from klog.server.handlers.cluster.partition_reassignments import PartitionReassignmentsHandler
from klog.server.handlers.cluster.update_features import UpdateFeaturesHandler
from klog.server.handlers.configs.alter_configs import AlterConfigsHandler
from klog.server.handlers.configs.client_quotas import ClientQuotasHandler
from klog.server.handlers.configs.config_changes import ConfigChanges
from klog.server.handlers.configs.describe_configs import DescribeConfigsHandler
from klog.server.handlers.configs.list_config_resources import ListConfigResourcesHandler
from klog.server.handlers.configs.loggers import Loggers
from klog.server.handlers.request_charge import RequestCharge
from klog.server.handlers.security.scram_users import ScramUsersHandler
from klog.server.handlers.topics.auto_creation import AutoTopicCreation
from klog.server.handlers.topics.create_partitions import CreatePartitionsHandler
from klog.server.handlers.topics.create_topics import CreateTopicsHandler
from klog.server.handlers.topics.delete_topics import DeleteTopicsHandler
from klog.server.handlers.topics.describe_topic_partitions import DescribeTopicPartitionsHandler
from klog.server.handlers.topics.metadata import MetadataHandler
from klog.server.handlers.topics.topic_creation import TopicCreator
from klog.server.handlers.topics.topic_waits import TopicWaits
from klog.server.network.listeners import read_listeners
from klog.server.peers.controller_times import ControllerTimes
from klog.server.startup.reconfiguration import plan
from tests.metadata.memory_tree import NoJournal
from tests.server.handlers.parts import Clock, FakeRequest, answer_of, request_of

CLUSTER_ID = "c1uster0AAAAAAAAAAAAAA"
LISTENER = "PLAINTEXT"
INNER_LISTENER = "REPLICATION"
ME = 1


def done(request: ControlRequest) -> ControlResponse:
    """Every partition of the request without an error."""
    partitions = [partition for partition, _ in partition_states(request.topic_states)]
    return ControlResponse(partitions=dict.fromkeys(partitions, ErrorCode.NONE))


class ObedientReplicas:
    """A replica manager that does what it is told, and remembers it."""

    def __init__(self) -> None:
        self.controller_epoch = 0
        self.led: dict[TopicPartition, int] = {}

    def accepts(self, controller_epoch: int) -> bool:
        self.controller_epoch = max(self.controller_epoch, controller_epoch)
        return controller_epoch >= self.controller_epoch

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> ControlResponse:
        if not self.accepts(request.controller_epoch):
            return ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.led |= {where: state.leader for where, state in partition_states(request.topic_states)}
        return done(request)

    def stop_replicas(self, request: StopReplicaRequest) -> ControlResponse:
        if not self.accepts(request.controller_epoch):
            return ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
        for partition, _ in partition_states(request.topic_states):
            self.led.pop(partition, None)
        return done(request)


class BrokerRequestQueue:
    """The controller's, into a queue."""

    def __init__(self, queue: deque[tuple[int, ControlRequest]]) -> None:
        self._queue = queue

    def add_broker(self, broker: BrokerRegistration) -> None: ...

    def remove_broker(self, broker_id: int) -> None:
        kept = [each for each in self._queue if each[0] != broker_id]
        self._queue.clear()
        self._queue.extend(kept)

    def send(self, broker_id: int, request: ControlRequest) -> None:
        self._queue.append((broker_id, request))

    def close(self) -> None:
        self._queue.clear()


class AdminCluster:
    """Broker 1 is controller, unless `elected` is False. `racks` are those of the brokers, 1 and up.

    `limits` are the quotas of the client that sends requests; None if it has none.
    """

    def __init__(
        self,
        properties: dict[str, str] | None = None,
        racks: tuple[str | None, ...] = (None, None, None),
        *,
        elected: bool = True,
    ) -> None:
        self.clock = Clock()
        self.limits: ClientLimits | None = None
        self.config = BrokerConfig({"broker.id": str(ME), "zookeeper.connect": "x", **(properties or {})})
        shared = SharedTree(NoJournal(), self.clock)
        self.store = TreeSession(shared, lambda deliveries: [each() for each in deliveries])
        self.cache = MetadataCache()
        self.replicas = ObedientReplicas()
        self.timer = Timer(self.clock, lambda: None)
        self.topic_purgatory = Purgatory("topic", self.timer)
        self.election_purgatory = Purgatory("elect-leader", self.timer)
        self.holding_back = False
        # With the topics that were known before.
        self.updates: list[tuple[UpdateMetadataRequest, Mapping[str, Partitions]]] = []
        self._events: deque[Event] = deque()
        self.outgoing: deque[tuple[int, ControlRequest]] = deque()
        cluster.create_persistent_nodes(self.store)
        self.epochs = {
            number: cluster.register_broker(self.store, registration(number, rack))
            for number, rack in enumerate(racks, 1)
        }
        self.core = ControllerCore(
            lambda: ControllerSettings(ME, INNER_LISTENER),
            self.store,
            BrokerRequestQueue(self.outgoing),
            self._events.append,
            lambda: None,
            self.clock,
            ControllerTimes(),
        )
        self._make_handlers()
        if elected:
            self._events.append(Startup())
            self.settle()

    def _make_handlers(self) -> None:
        def config() -> BrokerConfig:
            return self.config

        def is_controller() -> bool:
            return self.core.is_active

        store, cache = self.store, self.cache
        waits = TopicWaits(self.topic_purgatory, self.clock)
        self.creator = TopicCreator(store, cache, config, random_below=lambda _: 0)
        self.control = ControlHandler(
            self.replicas,
            cache,
            self.topic_purgatory,
            self.election_purgatory,
            lambda: self.epochs[ME],
            lambda update, known: self.updates.append((update, known)),
        )
        loggers = Loggers("klog.made.for.tests")
        listeners = read_listeners(self.config)
        reassignments = PartitionReassignmentsHandler(self._put)
        users = ScramUsersHandler(store, is_controller)
        alter = AlterConfigsHandler(
            ME, store, cache, config, lambda changed: plan(changed, listeners) and None, loggers
        )
        loggers = Loggers("klog.made.for.tests").levels
        client_quotas = ClientQuotasHandler(store)
        of_brokers = ControllerRequestsHandler(self._put)
        self.handlers = {
            ApiKey.METADATA: MetadataHandler(CLUSTER_ID, cache, AutoTopicCreation(self.creator, config)),
            ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(CLUSTER_ID, cache),
            ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesHandler(store, cache),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsHandler(cache, config),
            ApiKey.CREATE_TOPICS: CreateTopicsHandler(self.creator, cache, waits, config, is_controller),
            ApiKey.DELETE_TOPICS: DeleteTopicsHandler(store, cache, waits, config, is_controller),
            ApiKey.CREATE_PARTITIONS: CreatePartitionsHandler(
                store, cache, waits, is_controller, random_below=lambda _: 0
            ),
            ApiKey.DESCRIBE_CONFIGS: DescribeConfigsHandler(ME, store, cache, config, loggers),
            ApiKey.DESCRIBE_CLIENT_QUOTAS: SimpleNamespace(handle=client_quotas.describe),
            ApiKey.ALTER_CLIENT_QUOTAS: SimpleNamespace(handle=client_quotas.alter),
            ApiKey.ALTER_CONFIGS: alter,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: alter,
            ApiKey.ELECT_LEADERS: ElectLeadersHandler(cache, self.election_purgatory, self._put, self.clock),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: SimpleNamespace(handle=reassignments.alter),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: SimpleNamespace(handle=reassignments.list),
            ApiKey.ALTER_PARTITION: SimpleNamespace(handle=of_brokers.alter_partition),
            ApiKey.UPDATE_FEATURES: UpdateFeaturesHandler(is_controller),
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: SimpleNamespace(handle=users.describe),
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: SimpleNamespace(handle=users.alter),
            ApiKey.CONTROLLED_SHUTDOWN: SimpleNamespace(handle=of_brokers.shut_down),
            ApiKey.ALLOCATE_PRODUCER_IDS: SimpleNamespace(handle=of_brokers.allocate_producer_ids),
        }
        self.topic_changes: list[tuple[str, dict[str, str]]] = []
        self.group_changes: list[tuple[str, dict[str, str]]] = []
        self.unclean: list[str | None] = []
        self.config_changes = ConfigChanges(
            ME,
            store,
            config,
            self._replace_config,
            lambda topic, overrides: self.topic_changes.append((topic, dict(overrides))),
            lambda group_id, overrides: self.group_changes.append((group_id, dict(overrides))),
            self.unclean.append,
        )
        config_change_notifications(store, self.config_changes.on_change, self.clock).follow()

    def _replace_config(self, config: BrokerConfig) -> None:
        self.config = config

    def _put(self, event: Event) -> None:
        if self.core.is_active:
            self._events.append(event)
        else:
            preempt(event)

    # -- requests ----------------------------------------------------------------------------------------

    def send(self, api: ApiKey, version: int, /, *, listener: str = LISTENER, **values) -> FakeRequest:
        """Has a request handled; its answer may still be to come."""
        request = request_of(api, version, **values)
        request.listener = listener
        if self.limits is not None:
            request.charge = RequestCharge(self.limits, 0, lambda: 0, self.clock)
            request.before_answer = request.charge.apply
        self.handlers[api].handle(request)
        return request

    def ask(self, api: ApiKey, version: int, /, *, listener: str = LISTENER, **values):
        """The answer to a request, when the controller has done its work."""
        request = self.send(api, version, listener=listener, **values)
        self.settle()
        return answer_of(request)

    # -- the cluster -------------------------------------------------------------------------------------

    def create(self, topic: str, *replicas: tuple[int, ...], configs: dict[str, str] | None = None) -> str:
        """A topic with these replicas, one tuple a partition; its id."""
        topic_id = new_topic_id(os.urandom)
        create_topic(self.store, topic, topic_id, dict(enumerate(replicas)), configs or {}, list(self.epochs))
        self.settle()
        return topic_id

    def join_isr(self, topic: str, number: int, isr: tuple[int, ...]) -> None:
        """The leader has the partition's in-sync replicas changed."""
        where = TopicIdPartition(self.cache.snapshot.topic_ids[topic], number)
        now = self.cache.snapshot.topics[topic][number]
        state = LeaderAndIsr(now.leader, now.leader_epoch, isr, partition_epoch=now.zk_version)
        results = []
        self._events.append(
            AlterPartition(now.leader, self.epochs[now.leader], {where: state}, 3, results.append)
        )
        self.settle()
        assert results[0][where].isr == isr

    def kill(self, broker_id: int) -> None:
        """A broker's registration is gone."""
        self.store.delete(f"/brokers/ids/{broker_id}")
        self.settle()

    def register(self, broker: BrokerRegistration) -> None:
        """A broker is there (again)."""
        self.epochs[broker.broker_id] = cluster.register_broker(self.store, broker)
        self.settle()

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.timer.advance()

    def settle(self) -> None:
        """Everything that is to be done, unless requests to brokers are held back."""
        while self._events or (self.outgoing and not self.holding_back):
            if self._events:
                self.core.handle(self._events.popleft())
            else:
                broker_id, request = self.outgoing.popleft()
                response = self._obey(broker_id, request)
                self._events.append(ResponseReceived(broker_id, request, response))

    def _obey(self, broker_id: int, request: ControlRequest) -> ControlResponse:
        if broker_id != ME:
            return done(request)
        sent = FakeRequest(request.__api_key__, request.__version__, memoryview(encode_request(request)))
        handle = {
            ApiKey.LEADER_AND_ISR: self.control.leader_and_isr,
            ApiKey.STOP_REPLICA: self.control.stop_replica,
            ApiKey.UPDATE_METADATA: self.control.update_metadata,
        }[ApiKey(request.__api_key__)]
        handle(sent)
        answer = answer_of(sent)
        assert answer.error_code == ErrorCode.NONE, answer
        return done(request)


def registration(broker_id: int, rack: str | None = None, *listeners: str) -> BrokerRegistration:
    """A broker with these listeners, by default both."""
    endpoints = tuple(
        Endpoint(name, "PLAINTEXT", f"host{broker_id}", 9092 + index)
        for index, name in enumerate(listeners or (LISTENER, INNER_LISTENER))
    )
    return replace(BrokerRegistration(broker_id, endpoints), rack=rack)
