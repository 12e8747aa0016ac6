"""Every API that is announced, with what serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from klog.config.broker import BrokerConfig
from klog.config.group import may_have_group_configs
from klog.controller.runner import Controller
from klog.coordinator.groups.consumer_requests import ConsumerGroupRequests
from klog.coordinator.groups.coordinator import GroupCoordinator, GroupSettings
from klog.coordinator.groups.requests import GroupRequests
from klog.coordinator.groups.transactional_offsets import TransactionalCommits
from klog.metadata.cache import MetadataCache
from klog.metadata.store import MetadataStore
from klog.protocol.apis import ApiKey
from klog.replication.quota import ReplicationQuota
from klog.replication.replica_manager import ReplicaManager
from klog.security.authentication.token_store import TokenStore
from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.ip_limits import IpLimits
from klog.server.coordinators import consumer_groups
from klog.server.coordinators.groups import verify_offsets
from klog.server.coordinators.transaction_coordinator import BrokerTransactions
from klog.server.counters.request_times import RequestCounters
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.access import Access
from klog.server.handlers.answers import InBackground
from klog.server.handlers.cluster.acls import AclsHandler
from klog.server.handlers.cluster.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from klog.server.handlers.cluster.api_versions import ApiVersionsHandler
from klog.server.handlers.cluster.control import ControlHandler
from klog.server.handlers.cluster.controller_requests import ControllerRequestsHandler
from klog.server.handlers.cluster.deleted_topics import DeletedTopics
from klog.server.handlers.cluster.describe_cluster import DescribeClusterHandler
from klog.server.handlers.cluster.describe_log_dirs import DescribeLogDirsHandler, HostedDirectory
from klog.server.handlers.cluster.elect_leaders import ElectLeadersHandler
from klog.server.handlers.cluster.partition_reassignments import PartitionReassignmentsHandler
from klog.server.handlers.cluster.update_features import UpdateFeaturesHandler
from klog.server.handlers.configs.alter_configs import AlterConfigsHandler
from klog.server.handlers.configs.client_quotas import ClientQuotasHandler
from klog.server.handlers.configs.describe_configs import DescribeConfigsHandler
from klog.server.handlers.configs.list_config_resources import ListConfigResourcesHandler
from klog.server.handlers.configs.loggers import Loggers
from klog.server.handlers.data.delete_records import DeleteRecordsHandler
from klog.server.handlers.data.describe_producers import DescribeProducersHandler
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_runs import FetchRuns
from klog.server.handlers.data.fetch_sessions import FetchSessions
from klog.server.handlers.data.list_offsets import ListOffsetsHandler
from klog.server.handlers.data.offsets_for_leader_epoch import OffsetsForLeaderEpochHandler
from klog.server.handlers.data.old_fetches import BATCHES_FROM
from klog.server.handlers.data.produce import ProduceHandler
from klog.server.handlers.data.produce_runs import ProduceRuns
from klog.server.handlers.data.produce_waits import ProduceWaits
from klog.server.handlers.data.remembered_targets import RememberedTargets
from klog.server.handlers.dispatch import Route
from klog.server.handlers.groups.administration import GroupsHandler
from klog.server.handlers.groups.commit_runs import CommitRuns
from klog.server.handlers.groups.consumer_groups import ConsumerGroupsHandler
from klog.server.handlers.groups.find_coordinator import FindCoordinatorHandler
from klog.server.handlers.groups.members import MembersHandler, random_member_id
from klog.server.handlers.groups.offsets import OFFSETS_IN_GROUPS_FROM, OffsetsHandler
from klog.server.handlers.groups.transactional_offsets import TransactionalOffsetsHandler
from klog.server.handlers.groups.tree_offsets import TreeOffsets
from klog.server.handlers.guards.guarding import guard_routes
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.handlers.security import sasl
from klog.server.handlers.security.delegation_tokens import DelegationTokensHandler
from klog.server.handlers.security.scram_users import ScramUsersHandler
from klog.server.handlers.topics.auto_creation import AutoTopicCreation
from klog.server.handlers.topics.create_partitions import CreatePartitionsHandler
from klog.server.handlers.topics.create_topics import CreateTopicsHandler
from klog.server.handlers.topics.delete_topics import DeleteTopicsHandler
from klog.server.handlers.topics.describe_topic_partitions import DescribeTopicPartitionsHandler
from klog.server.handlers.topics.metadata import MetadataHandler
from klog.server.handlers.topics.partition_room import PartitionRoom
from klog.server.handlers.topics.topic_creation import TopicCreator
from klog.server.handlers.topics.topic_waits import TopicWaits
from klog.server.handlers.transactions.administration import TransactionsHandler
from klog.server.handlers.transactions.producers import ProducersHandler
from klog.server.handlers.transactions.write_markers import WriteTxnMarkersHandler
from klog.server.logs.log_dir_moves import LogDirMoves
from klog.server.logs.replica_selection import replica_selector
from klog.server.startup.authorization_opening import Authorization
from klog.server.startup.purgatories import Purgatories
from klog.storage.log.descriptors import room_for_logs


@dataclass(frozen=True, slots=True)
class HandlerServices:
    """What the handlers use of the broker.

    `check_config` raises `UsageError` for configs that the broker could not go on with; `hosted` lists the
    log directories, `broker_epoch` is the present one, `run_in_background`
    runs what a network thread must not wait for, `create_in_background` what may wait for the metadata store.
    `member_id` makes the id of a new member of a group from a prefix.
    `clock_ms` is the wall clock, by which records are stamped,
    `timer_ms` the one of what waits, `clock_ns` the one that measures how long requests take.
    """

    broker_id: int
    cluster_id: str
    store: MetadataStore
    cache: MetadataCache
    config: Callable[[], BrokerConfig]
    check_config: Callable[[BrokerConfig], None]
    client_quotas: ClientQuotas
    ip_limits: IpLimits
    replicas: ReplicaManager
    log_dir_moves: LogDirMoves
    groups: GroupCoordinator
    transactions: BrokerTransactions
    controller: Controller
    purgatories: Purgatories
    sessions: FetchSessions
    topic_stats: BrokerTopicStats
    leader_quota: ReplicationQuota
    counters: RequestCounters
    clock_ns: Callable[[], int]
    clock_ms: Callable[[], int]
    timer_ms: Callable[[], int]
    hosted: Callable[[], Iterable[HostedDirectory]]
    broker_epoch: Callable[[], int]
    api_versions: ApiVersionsHandler
    run_in_background: InBackground
    create_in_background: InBackground
    deleted_topics: DeletedTopics
    member_id: Callable[[str], str] = random_member_id
    authorization: Authorization | None = None
    tokens: TokenStore | None = None

    @property
    def access(self) -> Access | None:
        """Decides what clients may do; None if they may do everything."""
        return None if self.authorization is None else self.authorization.access


def routes(parts: HandlerServices) -> Mapping[int, Route]:
    """What serves each API, behind the guards of the authoriser if there is one."""
    access = parts.access
    if access is None:
        return _unguarded_routes(parts)
    return guard_routes(
        _unguarded_routes(parts),
        access,
        parts.cache,
        lambda: parts.controller.is_active,
        lambda: parts.config().flag("delete.topic.enable"),
        unguarded=hidden_apis(parts.config(), parts.groups.settings) & consumer_groups.APIS,
    )


def _unguarded_routes(parts: HandlerServices) -> dict[int, Route]:
    room = PartitionRoom(parts.broker_id, room_for_logs, parts.replicas.has, parts.timer_ms)
    creator = TopicCreator(parts.store, parts.cache, parts.config, room)
    creation = AutoTopicCreation(creator, parts.config)
    return {
        **_data_routes(parts),
        **_group_routes(parts, creation),
        **_transaction_routes(parts),
        **_topic_routes(parts, creator, creation),
        **_config_routes(parts),
        **_control_routes(parts),
        **_security_routes(parts),
    }


def hidden_apis(config: BrokerConfig, groups: GroupSettings) -> set[int]:
    """The APIs that are not announced."""
    hidden: set[int] = set()
    if not groups.accepts_consumer_protocol:
        hidden |= consumer_groups.APIS
    if not may_have_group_configs(config):
        hidden.add(ApiKey.LIST_CONFIG_RESOURCES)
    return hidden


def _data_routes(parts: HandlerServices) -> dict[int, Route]:
    config, timer_ms, purgatories = parts.config(), parts.timer_ms, parts.purgatories
    lookup = PartitionLookup(parts.replicas, parts.cache)
    targets = RememberedTargets(lookup)
    counter = parts.counters.by_api[ApiKey.PRODUCE]
    produce_runs = ProduceRuns(
        lookup,
        targets,
        parts.clock_ms,
        parts.topic_stats,
        counter,
        parts.clock_ns,
        ProduceWaits(lookup, purgatories.produce, timer_ms, counter, parts.clock_ns),
        parts.transactions.verification,
        parts.access,
    )
    produce = ProduceHandler(
        lookup,
        purgatories.produce,
        parts.clock_ms,
        timer_ms,
        parts.topic_stats,
        parts.transactions.verification,
        parts.access,
    )
    fetch_max_bytes = config.number("fetch.max.bytes")
    selector = replica_selector(config, parts.cache)
    fetch_runs = FetchRuns(
        lookup,
        targets,
        parts.sessions,
        fetch_max_bytes,
        parts.topic_stats,
        parts.counters.by_api[ApiKey.FETCH],
        parts.clock_ns,
        may_choose_replica=selector is not None,
        access=parts.access,
    )
    fetch = FetchHandler(
        lookup,
        parts.sessions,
        purgatories.fetch,
        timer_ms,
        fetch_max_bytes,
        parts.topic_stats,
        parts.run_in_background,
        selector,
        parts.leader_quota,
        parts.counters.conversions,
        parts.access,
    )
    return {
        ApiKey.API_VERSIONS: Route(parts.api_versions.handle, may_block=False),
        ApiKey.PRODUCE: Route(
            produce.handle, may_block=False, failed=produce.failed, run=produce_runs.handle
        ),
        ApiKey.FETCH: Route(
            fetch.handle,
            may_block=False,
            failed=fetch.failed,
            run=fetch_runs.handle,
            short_from=BATCHES_FROM,
        ),
        ApiKey.LIST_OFFSETS: Route(ListOffsetsHandler(lookup, parts.clock_ms).handle),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Route(OffsetsForLeaderEpochHandler(lookup).handle, may_block=False),
        ApiKey.DELETE_RECORDS: Route(
            DeleteRecordsHandler(lookup, purgatories.delete_records, timer_ms).handle
        ),
        ApiKey.DESCRIBE_PRODUCERS: Route(DescribeProducersHandler(lookup).handle),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Route(AlterReplicaLogDirsHandler(parts.log_dir_moves.alter).handle),
        ApiKey.DESCRIBE_LOG_DIRS: Route(DescribeLogDirsHandler(parts.replicas, parts.hosted).handle),
    }


def _group_routes(parts: HandlerServices, creation: AutoTopicCreation) -> dict[int, Route]:
    lookup = PartitionLookup(parts.replicas, parts.cache)
    requests = GroupRequests(parts.groups)
    coordinator = FindCoordinatorHandler(
        parts.cache,
        parts.groups.partition_for,
        parts.transactions.coordinator.partition_for,
        creation,
        parts.create_in_background,
    )
    members = MembersHandler(requests, parts.member_id)
    tree_offsets = TreeOffsets(parts.store, lookup.known, parts.groups.settings.max_metadata_bytes)
    offsets = OffsetsHandler(requests, tree_offsets, lookup.known, parts.clock_ms)
    commit_runs = CommitRuns(
        requests,
        parts.cache,
        parts.counters.by_api[ApiKey.OFFSET_COMMIT],
        parts.clock_ns,
        parts.access,
    )
    transactional = TransactionalOffsetsHandler(
        TransactionalCommits(requests, verify_offsets(parts.transactions.verification)),
        lookup.known,
        parts.clock_ms,
    )
    groups = GroupsHandler(requests)
    consumers = ConsumerGroupsHandler(ConsumerGroupRequests(requests), access=parts.access)
    return {
        ApiKey.FIND_COORDINATOR: Route(coordinator.handle, may_block=False, failed=coordinator.failed),
        ApiKey.JOIN_GROUP: Route(members.join, may_block=False),
        ApiKey.SYNC_GROUP: Route(members.sync, may_block=False),
        ApiKey.HEARTBEAT: Route(members.heartbeat, may_block=False),
        ApiKey.LEAVE_GROUP: Route(members.leave, may_block=False),
        # Version 0 is about offsets in the metadata store.
        ApiKey.OFFSET_COMMIT: Route(
            offsets.commit, may_block=False, run=commit_runs.handle, short_from=OFFSETS_IN_GROUPS_FROM
        ),
        ApiKey.OFFSET_FETCH: Route(offsets.fetch, may_block=False, short_from=OFFSETS_IN_GROUPS_FROM),
        ApiKey.OFFSET_DELETE: Route(offsets.delete),
        ApiKey.TXN_OFFSET_COMMIT: Route(transactional.commit, may_block=False),
        ApiKey.DESCRIBE_GROUPS: Route(groups.describe),
        ApiKey.LIST_GROUPS: Route(groups.list),
        ApiKey.DELETE_GROUPS: Route(groups.delete),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Route(consumers.heartbeat),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Route(consumers.describe),
    }


def _transaction_routes(parts: HandlerServices) -> dict[int, Route]:
    lookup = PartitionLookup(parts.replicas, parts.cache)
    requests = parts.transactions.requests
    producers = ProducersHandler(requests, lookup.known, parts.groups.partition_for)
    administration = TransactionsHandler(requests)
    markers = WriteTxnMarkersHandler(parts.transactions.marker_writing)
    return {
        # A new block of producer ids may have to be written first.
        ApiKey.INIT_PRODUCER_ID: Route(producers.init_producer, failed=producers.init_failed),
        ApiKey.ADD_PARTITIONS_TO_TXN: Route(producers.add_partitions, may_block=False),
        ApiKey.ADD_OFFSETS_TO_TXN: Route(producers.add_offsets, may_block=False),
        ApiKey.END_TXN: Route(producers.end, may_block=False),
        ApiKey.WRITE_TXN_MARKERS: Route(markers.handle, may_block=False),
        ApiKey.DESCRIBE_TRANSACTIONS: Route(administration.describe),
        ApiKey.LIST_TRANSACTIONS: Route(administration.list),
    }


def _topic_routes(
    parts: HandlerServices, creator: TopicCreator, creation: AutoTopicCreation
) -> dict[int, Route]:
    cache, store = parts.cache, parts.store

    def is_controller() -> bool:
        return parts.controller.is_active

    waits = TopicWaits(parts.purgatories.topics, parts.timer_ms)
    metadata = MetadataHandler(
        parts.cluster_id,
        cache,
        creation,
        parts.run_in_background,
        parts.create_in_background,
        parts.access,
    )
    create = CreateTopicsHandler(creator, cache, waits, parts.config, is_controller)
    delete = DeleteTopicsHandler(store, cache, waits, parts.config, is_controller)
    grow = CreatePartitionsHandler(store, cache, waits, is_controller, creator.room)
    return {
        ApiKey.METADATA: Route(metadata.handle, may_block=False),
        ApiKey.DESCRIBE_CLUSTER: Route(DescribeClusterHandler(parts.cluster_id, cache).handle),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Route(DescribeTopicPartitionsHandler(cache, parts.config).handle),
        ApiKey.CREATE_TOPICS: Route(create.handle),
        ApiKey.DELETE_TOPICS: Route(delete.handle),
        ApiKey.CREATE_PARTITIONS: Route(grow.handle),
    }


def _config_routes(parts: HandlerServices) -> dict[int, Route]:
    loggers = Loggers()
    client_quotas = ClientQuotasHandler(parts.store)
    describe = DescribeConfigsHandler(parts.broker_id, parts.store, parts.cache, parts.config, loggers.levels)
    alter = AlterConfigsHandler(
        parts.broker_id, parts.store, parts.cache, parts.config, parts.check_config, loggers
    )
    return {
        ApiKey.DESCRIBE_CONFIGS: Route(describe.handle),
        ApiKey.ALTER_CONFIGS: Route(alter.handle),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(alter.handle),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Route(client_quotas.describe),
        ApiKey.ALTER_CLIENT_QUOTAS: Route(client_quotas.alter),
        ApiKey.LIST_CONFIG_RESOURCES: Route(ListConfigResourcesHandler(parts.store, parts.cache).handle),
    }


def _security_routes(parts: HandlerServices) -> dict[int, Route]:
    users = ScramUsersHandler(parts.store, lambda: parts.controller.is_active)
    tokens = DelegationTokensHandler(parts.tokens, parts.access)
    return {
        ApiKey.CREATE_DELEGATION_TOKEN: Route(tokens.create),
        ApiKey.RENEW_DELEGATION_TOKEN: Route(tokens.renew),
        ApiKey.EXPIRE_DELEGATION_TOKEN: Route(tokens.expire),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: Route(tokens.describe),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Route(users.describe),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Route(users.alter),
        ApiKey.SASL_HANDSHAKE: Route(sasl.shake_hands, may_block=False),
        ApiKey.SASL_AUTHENTICATE: Route(sasl.authenticate, may_block=False),
    }


def _control_routes(parts: HandlerServices) -> dict[int, Route]:
    cache, purgatories, put = parts.cache, parts.purgatories, parts.controller.put
    control = ControlHandler(
        parts.replicas,
        cache,
        purgatories.topics,
        purgatories.elections,
        parts.broker_epoch,
        parts.deleted_topics.on_update,
        parts.groups.partitions_deleted,
    )
    elect = ElectLeadersHandler(cache, purgatories.elections, put, parts.timer_ms)
    reassignments = PartitionReassignmentsHandler(put)
    of_brokers = ControllerRequestsHandler(put)
    features = UpdateFeaturesHandler(lambda: parts.controller.is_active)
    acls = AclsHandler(None if parts.authorization is None else parts.authorization.acls)
    return {
        ApiKey.LEADER_AND_ISR: Route(control.leader_and_isr),
        ApiKey.STOP_REPLICA: Route(control.stop_replica),
        ApiKey.UPDATE_METADATA: Route(control.update_metadata),
        ApiKey.CONTROLLED_SHUTDOWN: Route(of_brokers.shut_down),
        ApiKey.ALTER_PARTITION: Route(of_brokers.alter_partition),
        ApiKey.ALLOCATE_PRODUCER_IDS: Route(of_brokers.allocate_producer_ids),
        ApiKey.DESCRIBE_ACLS: Route(acls.describe),
        ApiKey.CREATE_ACLS: Route(acls.create),
        ApiKey.DELETE_ACLS: Route(acls.delete),
        ApiKey.UPDATE_FEATURES: Route(features.handle),
        ApiKey.ELECT_LEADERS: Route(elect.handle),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Route(reassignments.alter),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Route(reassignments.list),
    }
