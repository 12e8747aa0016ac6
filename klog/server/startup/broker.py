"""One broker: opens everything that it consists of, in order, and closes it in the opposite order.

Rules: Kafka's `KafkaServer.startup` and `shutdown`. The broker resolves its ids and loads its logs, then
registers, then serves. The controller, which may run in this broker, sends it the partitions that it leads
and follows.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import MappingProxyType
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.broker_checks import check_together
from klog.controller.events import UncleanElectionEnabled
from klog.formats.names import TopicPartition, encode_uuid
from klog.metadata.cache import MetadataCache
from klog.metadata.cluster import create_persistent_nodes, live_brokers
from klog.metadata.store import SessionState
from klog.metadata.topics import present_topic_names
from klog.metadata.values import BrokerRegistration
from klog.protocol.primitives import Buffer
from klog.security.authentication.exchange import ApiVersionsAnswer
from klog.security.authentication.scram_configs import ScramConfigs
from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.ip_limits import IpLimits
from klog.security.quotas.quota_configs import QuotaConfigs
from klog.server.configs.live_config import LiveConfig
from klog.server.coordinators.groups import open_groups
from klog.server.coordinators.transaction_coordinator import open_transactions
from klog.server.counters.request_times import RequestCounters
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.fetching.opening import open_fetchers
from klog.server.fetching.replication_throttles import replication_quota
from klog.server.handlers.answers import InBackground
from klog.server.handlers.cluster.api_versions import ApiVersionsHandler
from klog.server.handlers.cluster.deleted_topics import DeletedTopics
from klog.server.handlers.cluster.describe_log_dirs import hosted_directories
from klog.server.handlers.configs.config_changes import ConfigChanges
from klog.server.handlers.data.fetch_sessions import FetchSessions
from klog.server.logs.cleaning import ServedLogs, open_cleaner
from klog.server.logs.log_events import LogEvents
from klog.server.logs.topic_reads import load_topic_config, load_topic_configs
from klog.server.logs.unowned_logs import report_unowned_logs
from klog.server.network.addresses import address_of
from klog.server.network.listeners import read_listeners
from klog.server.peers.broker_channel import Peers
from klog.server.peers.controller_times import ControllerTimes
from klog.server.peers.registration import Registration
from klog.server.startup.authorization_opening import open_authorization
from klog.server.startup.broker_state import BrokerState
from klog.server.startup.cluster_fit import protocol_reader, require_fit
from klog.server.startup.controlled_shutdown import ShutdownSettings, before_stop
from klog.server.startup.controller_opening import open_controller
from klog.server.startup.features import FeaturesEpoch
from klog.server.startup.first_metadata import await_first_metadata
from klog.server.startup.followed_tree import FollowedTree
from klog.server.startup.identity import require_own_endpoints, resolve_identity
from klog.server.startup.logins import Logins
from klog.server.startup.network_opening import open_network
from klog.server.startup.presence import Presence
from klog.server.startup.purgatories import new_purgatories
from klog.server.startup.reconfiguration import Reconfiguration
from klog.server.startup.replicas_opening import (
    open_appends,
    open_isr_changes,
    open_log_dir_moves,
    open_replicas,
    open_to_controller,
)
from klog.server.startup.routes import HandlerServices, hidden_apis
from klog.server.startup.settings import log_directories, quota_windows
from klog.server.startup.stores import open_store
from klog.server.startup.tokens_opening import open_tokens
from klog.server.startup.unenforced_metadata import report_unenforced_metadata
from klog.server.transactions.opening import broker_connections
from klog.server.transactions.producer_id_blocks import open_producer_ids
from klog.storage.log.earlier_records import EarlierRecords
from klog.storage.log.log_manager import LogManager
from klog.storage.log.manager_values import ManagerSettings, Progress
from klog.storage.log.scheduler import Scheduler, monotonic_ms, wall_clock_ms
from klog.storage.log.upkeep import Upkeep

_log = logging.getLogger(__name__)

# If ZooKeeper is away the controller cannot resign. Then the stop goes on, and the session's end deposes it.
_RESIGNATION_TIMEOUT_MS: Final = 5000
_IDLE_QUOTAS_CHECK_MS: Final = 60_000
_LARGEST_SESSION_ID: Final = 2**31 - 1


class Broker:
    """One broker. The constructor opens and starts everything; `stop` closes it.

    `clock_ms` is the wall clock, which may be set at any time; records, retention and znodes use it. Timeouts
    use a clock that is never set back. `on_fatal` is called if the broker cannot go on, `on_loaded` for each
    log that has been loaded, `on_state` when the broker's state changes. `is_stopping` ends a wait for
    ZooKeeper or the controller (`WaitCancelledError`). If it `is_read_only`, clients may not write, and
    nothing is deleted; `earlier` are then records that are not in its log directories.
    Raises `KlogError` if it cannot start; all is closed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        on_fatal: Callable[[str], None] = _log.critical,
        on_loaded: Callable[[Progress], None] = lambda progress: None,  # noqa: ARG005
        on_state: Callable[[BrokerState], None] = lambda state: None,  # noqa: ARG005
        is_stopping: Callable[[], bool] = lambda: False,
        is_read_only: bool = False,
        earlier: Mapping[TopicPartition, EarlierRecords] = MappingProxyType({}),
    ) -> None:
        self._static = config
        self._earlier = earlier
        self._is_read_only = is_read_only
        self._on_state = on_state
        self._clock_ms = clock_ms
        self._log_events = LogEvents(on_loaded, on_fatal)
        self._is_stopping = is_stopping
        check_together(config)
        self._logins = Logins(
            lambda listener: self._presence.sasl_of(listener),  # noqa: PLW0108 (it is made next)
            self._answer_api_versions,
            clock_ms,
            monotonic_ms,
        )
        self._directories = log_directories(config)
        self._serving = False
        self.live = LiveConfig(config, {})
        listeners = read_listeners(config, authentication=self._logins.of_listener)
        self._presence = Presence(self.live, listeners)
        self._inter_broker = listeners.inter_broker
        self.cache = MetadataCache()
        self.counters = RequestCounters()
        self.controller_times = ControllerTimes()
        self.topic_stats = BrokerTopicStats()
        slots = config.number("max.incremental.fetch.session.cache.slots")
        self.sessions = FetchSessions(slots, monotonic_ms, lambda: secrets.randbelow(_LARGEST_SESSION_ID) + 1)
        with ExitStack() as closing:
            self._open(closing)
            self._closing = closing.pop_all()

    def _open(self, closing: ExitStack) -> None:
        """Open the parts in order. What is opened later is closed earlier, which is Kafka's order at a stop:
        network, controller, coordinators, movers between log directories, fetchers, ISR changes, waiting
        requests, requests to the controller, cleaner, logs, and the metadata store last.
        """
        self._on_state(BrokerState.STARTING)
        closing.callback(self._on_state, BrokerState.NOT_RUNNING)
        closing.callback(self._logins.stop)
        self._open_tree(closing)
        self._on_state(BrokerState.RECOVERY)
        self._open_logs(closing)
        self._open_replicas(closing)
        self._open_copying(closing)
        self._open_coordinators(closing)
        self._open_controller(closing)
        self._open_network(closing)
        self._register()
        self._start()

    def _register(self) -> None:
        registered = live_brokers(self.store)
        own = self.registration()
        require_own_endpoints(own, registered)
        protocol = self._static.text("inter.broker.protocol.version") or ""
        read = protocol_reader(self._peers)
        require_fit(own, self._inter_broker, protocol, registered, read)
        self._registration.register(self._is_stopping, self._static.number("zookeeper.session.timeout.ms"))
        self._followed.follow()
        self.store.add_session_listener(self._session_changed)

    def _start(self) -> None:
        """Start the timers, the network and the controller; return when clients are served."""
        self.scheduler.start()
        check_ms = self.groups.settings.retention_check_interval_ms
        self.scheduler.every(check_ms, self.groups.remove_expired_offsets)
        self.transactions.schedule(self.scheduler)
        self.scheduler.every(_IDLE_QUOTAS_CHECK_MS, lambda: self.client_quotas.forget_idle(monotonic_ms()))
        if not self._is_read_only:
            # Topics may have their own retention, which must not take records away from readers.
            Upkeep(self.logs, self._clock_ms, self.cleaner.retention_of_others).start()
        self._serving = True
        self._log_events.begin(self.cleaner, self.store, self.identity.broker_id)
        self.cache.set_initial_brokers(live_brokers(self.store))
        self.network.start()
        self.controller.start()
        await_first_metadata(
            self.cache, self.store, self.replicas, self.identity.broker_id, self._is_stopping
        )
        self.network.open()
        self._on_state(BrokerState.RUNNING)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the last registration, -1 before."""
        return self._registration.epoch

    @property
    def uses_zookeeper(self) -> bool:
        """Whether the metadata is in ZooKeeper, not in the embedded store."""
        return bool(self._static.text("zookeeper.connect"))

    def stop(self, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Hand the leaderships over to other brokers, then close everything, clients first and the store
        last. Idempotent. When `is_urgent` becomes true, the broker stops without handing over.
        """
        if self._serving:
            before_stop(
                ShutdownSettings.of(self.live.broker()),
                self.to_controller.send,
                self._registration,
                self.identity.broker_id,
                lambda: self.cache.snapshot.brokers,
                is_urgent,
                lambda: self._on_state(BrokerState.PENDING_CONTROLLED_SHUTDOWN),
            )
            self._on_state(BrokerState.SHUTTING_DOWN)
        self._serving = False
        self._log_events.end()
        self._closing.close()

    # -- opening ---------------------------------------------------------------------------------------------

    def _open_tree(self, closing: ExitStack) -> None:
        """Lock the log directories, open the metadata store, resolve the ids."""
        self.scheduler = Scheduler()
        self.logs = LogManager(
            ManagerSettings.of(self._static, tuple(self._directories)),
            self.live.topic,
            self.scheduler,
            self._log_events,
            clock_ms=self._clock_ms,
            earlier=self._earlier.get,
        )
        self.logs.open()
        closing.callback(self.logs.release)
        # These may wait for ZooKeeper. Closing the store ends that: their threads are waited for afterwards.
        self._topic_creation = ThreadPoolExecutor(1, "klog-topic-creation")
        closing.callback(self._topic_creation.shutdown)
        self._deleted_topics = DeletedTopics(
            self.cache,
            lambda: present_topic_names(self.store),
            lambda gone: self.groups.partitions_deleted(gone),  # noqa: PLW0108 (they are opened later)
        )
        closing.callback(self._deleted_topics.join)
        self.store = open_store(self._static, self.logs.online[0], self._is_stopping)
        closing.callback(self.store.close)
        create_persistent_nodes(self.store)
        self._features = FeaturesEpoch(self.store)
        new_cluster_id = encode_uuid(secrets.token_bytes(16))
        self.identity = resolve_identity(self._static, self.logs.identities(), self.store, new_cluster_id)
        self.logs.claim(*self.identity)
        access = self._presence.access_to_brokers
        self._peers = Peers(self.identity.broker_id, self.cache, self._inter_broker, access)
        self.authorization = open_authorization(self._static, self.store, self._clock_ms)
        self._registration = Registration(self.store, self.registration)

    def _open_logs(self, closing: ExitStack) -> None:
        changes = ConfigChanges(
            self.identity.broker_id,
            self.store,
            self.live.broker,
            self._broker_config_changed,
            self._topic_config_changed,
            self.live.set_group,
            self._unclean_enabled,
        )
        changes.renew_secrets()
        changes.load(at_start=True)
        windows, mutation_windows = quota_windows(self._static)
        self.client_quotas = ClientQuotas(windows, mutation_windows)
        self.ip_limits = IpLimits(windows, address_of)
        quotas = QuotaConfigs(self.store, self.client_quotas, self.ip_limits)
        quotas.load()
        users = ScramConfigs(self.store, self._logins.credentials)
        users.load()
        self.tokens = open_tokens(
            self._static, self.store, self._clock_ms, self.scheduler, lambda: self.controller.is_active
        )
        self._logins.tokens = None if self.tokens is None else self.tokens.known
        acls = None if self.authorization is None else self.authorization.acls
        self._followed = FollowedTree(
            self.store, changes, quotas, users, self._features, acls, self.tokens, self._clock_ms
        )
        self.logs.settings = ManagerSettings.of(self.live.broker(), tuple(self._directories))
        load_topic_configs(self.store, self.live.set_topic)
        self.logs.load()
        closing.callback(self.logs.stop)
        report_unowned_logs(self.store, self.logs, self.identity.broker_id)
        report_unenforced_metadata(self.store, enforces_acls=self.authorization is not None)
        closing.callback(self.scheduler.stop)
        self.cleaner = open_cleaner(self.logs, self._directories, self.live.broker(), self._clock_ms)
        if self._static.flag("log.cleaner.enable"):
            self.cleaner.start()
            closing.callback(self.cleaner.stop)

    def _open_replicas(self, closing: ExitStack) -> None:
        broker_id = self.identity.broker_id
        self.to_controller = open_to_controller(self._static, self._peers)
        closing.callback(self.to_controller.stop)
        self.purgatories = new_purgatories(self._static, monotonic_ms)
        self.purgatories.timer.start()
        closing.callback(self.purgatories.timer.stop)
        self.replicas = open_replicas(
            self._static,
            broker_id,
            self.store,
            self.cache,
            ServedLogs(self.logs, self.cleaner, self._read_topic_config),
            self.purgatories,
            lambda key: self.isr_changes.driver.propose(key),  # noqa: PLW0108 (it is opened next)
        )
        self._log_events.replicas = self.replicas
        self.isr_changes = open_isr_changes(
            self._static,
            broker_id,
            lambda: self.broker_epoch,
            self.replicas,
            self.to_controller,
        )
        closing.callback(self.isr_changes.stop)
        self.appends = open_appends(
            self.replicas, self.cache, self.purgatories, self.topic_stats, self._clock_ms
        )

    def _open_copying(self, closing: ExitStack) -> None:
        self.fetchers = open_fetchers(
            self.live,
            self._peers,
            lambda: self.broker_epoch,
            self.replicas,
            self.topic_stats,
            self.logs,
            self.cleaner,
            self._clock_ms,
        )
        closing.callback(self.fetchers.stop)
        self.log_dir_moves = open_log_dir_moves(
            self.live.broker, self.logs, self.cleaner, self.replicas, self._directories, self._clock_ms
        )
        closing.callback(self.log_dir_moves.close)

    def _open_coordinators(self, closing: ExitStack) -> None:
        self.groups = open_groups(
            self._static,
            self.store,
            self.replicas,
            self.appends,
            self.purgatories.timer.timer,
            lambda: self.cache.snapshot,
            self.live.group,
        )
        closing.callback(self.groups.stop)
        broker_id = self.identity.broker_id
        self.transactions = open_transactions(
            self.live.broker,
            broker_id,
            open_producer_ids(self._static, broker_id, self._registration, self.store, self.to_controller),
            self.store,
            self.cache,
            self.replicas,
            self.appends,
            self.groups,
            self.purgatories.timer.timer,
            broker_connections(self._static, self._peers),
            coordinates=not self._is_read_only,
        )
        closing.callback(self.transactions.stop)

    def _open_controller(self, closing: ExitStack) -> None:
        self.controller = open_controller(
            self.live.broker,
            self._peers,
            self.store,
            self._register_again,
            self._clock_ms,
            self.controller_times,
        )
        closing.callback(self.controller.stop, _RESIGNATION_TIMEOUT_MS)

    def _open_network(self, closing: ExitStack) -> None:
        config, is_read_only = self.live.broker(), self._is_read_only
        listeners = self._presence.listeners
        self.api_versions = ApiVersionsHandler(
            lambda: self._features.value, hidden_apis(config, self.groups.settings)
        )
        self.network, settings = open_network(
            self._handler_services, self._topic_creation, config, listeners, closing, is_read_only
        )
        self._logins.prepare(listeners.sasl)
        self._presence.reconfiguration = reconfiguration = Reconfiguration(
            self.live,
            listeners,
            settings,
            self.network,
            self.logs,
            self.cleaner,
            self._registration.update,
        )
        closing.callback(reconfiguration.close)
        self._deleted_topics.start()
        closing.callback(self._deleted_topics.stop)
        closing.callback(self.controller.leave_out, self.identity.broker_id)

    def _handler_services(self, answers: InBackground, topic_creation: InBackground) -> HandlerServices:
        return HandlerServices(
            broker_id=self.identity.broker_id,
            cluster_id=self.identity.cluster_id,
            store=self.store,
            authorization=self.authorization,
            tokens=self.tokens,
            cache=self.cache,
            config=self.live.broker,
            check_config=self._presence.check,
            client_quotas=self.client_quotas,
            ip_limits=self.ip_limits,
            replicas=self.replicas,
            log_dir_moves=self.log_dir_moves,
            groups=self.groups,
            transactions=self.transactions,
            controller=self.controller,
            purgatories=self.purgatories,
            sessions=self.sessions,
            topic_stats=self.topic_stats,
            leader_quota=replication_quota("leader", self.live, self.identity.broker_id),
            counters=self.counters,
            clock_ns=time.perf_counter_ns,
            clock_ms=self._clock_ms,
            timer_ms=monotonic_ms,
            hosted=lambda: hosted_directories(self.logs, self._directories),
            broker_epoch=lambda: self.broker_epoch,
            api_versions=self.api_versions,
            run_in_background=answers,
            create_in_background=topic_creation,
            deleted_topics=self._deleted_topics,
        )

    # -- registration ----------------------------------------------------------------------------------------

    def _answer_api_versions(self, version: int, body: Buffer) -> ApiVersionsAnswer:
        return self.api_versions.answer(version, body)

    def registration(self) -> BrokerRegistration:
        """What this broker registers in the metadata store."""
        port_of, now_ms = self.network.port, self._clock_ms()
        return self._presence.registration(self.identity.broker_id, port_of, now_ms)

    def _register_again(self) -> None:
        """Register in a new session, after the last one has expired."""
        self._registration.register(lambda: self._is_stopping() or not self._serving)

    def _session_changed(self, state: SessionState) -> None:
        self._registration.session_changed(state)
        if state is SessionState.CONNECTED and self._serving:
            self._followed.follow_again()

    # -- changes of configs ----------------------------------------------------------------------------------

    def _broker_config_changed(self, config: BrokerConfig) -> None:
        """Apply the broker's dynamic configs. If it raises (`KlogError`), nothing has changed."""
        self._presence.apply(config)
        if self._presence.reconfiguration is not None:
            self.fetchers.resize(config.number("num.replica.fetchers"))

    def _topic_config_changed(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.live.set_topic(topic, overrides)
        self.logs.reconfigure(topic)

    def _read_topic_config(self, topic: str) -> None:
        load_topic_config(self.store, topic, self.live.set_topic)

    def _unclean_enabled(self, topic: str | None) -> None:
        if self._serving:
            self.controller.put(UncleanElectionEnabled(topic))
