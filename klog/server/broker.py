"""One broker: opens everything that it consists of, in order, and closes it in the opposite order.

Rules: Kafka's `KafkaServer.startup` and `shutdown`. The broker resolves its ids and loads its logs, then
registers, then serves. The controller, which may run in this broker, sends it the partitions that it leads
and follows.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from threading import Thread
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.broker_checks import check_together
from klog.config.broker_protection import require_enforced
from klog.controller.broker_channels import BrokerChannels
from klog.controller.events import ResponseReceived, UncleanElectionEnabled
from klog.controller.runner import Controller
from klog.formats.names import TopicPartition, encode_uuid
from klog.metadata.cache import MetadataCache
from klog.metadata.cluster import (
    announce_log_dir_failure,
    create_persistent_nodes,
    live_brokers,
    register_broker,
    update_broker,
)
from klog.metadata.configs import ConfigChangeNotifications
from klog.metadata.errors import NoNodeError, SessionExpiredError, StoreError
from klog.metadata.store import SessionState
from klog.metadata.values import BrokerRegistration
from klog.replication.internal_append import InternalAppends
from klog.replication.partition import ReplicaContext
from klog.replication.replica_manager import ReplicaManager
from klog.server.broker_channel import ControlChannel
from klog.server.broker_state import BrokerState
from klog.server.cleaning import ServedLogs, open_cleaner
from klog.server.controller_times import ControllerTimes
from klog.server.features import FeaturesEpoch
from klog.server.first_metadata import SERVED_BEFORE, await_first_metadata
from klog.server.groups import open_groups
from klog.server.handlers.answers import InBackground
from klog.server.handlers.config_changes import ConfigChanges
from klog.server.handlers.describe_log_dirs import hosted_directories
from klog.server.handlers.dispatch import Dispatcher
from klog.server.handlers.fetch_sessions import FetchSessions
from klog.server.identity import report_other_brokers, require_own_endpoints, resolve_identity
from klog.server.listeners import Listeners, read_listeners
from klog.server.live_config import LiveConfig
from klog.server.network import SocketServer, work_on
from klog.server.purgatories import new_purgatories
from klog.server.reconfiguration import Reconfiguration
from klog.server.request_times import RequestCounters
from klog.server.routes import Collaborators, routes
from klog.server.settings import controller_settings, log_directories, network_settings, resolved
from klog.server.stores import open_store
from klog.server.topic_reads import load_topic_config, load_topic_configs, read_topic_ids
from klog.server.topic_stats import BrokerTopicStats
from klog.server.transaction_coordinator import open_transactions
from klog.server.transactions.opening import broker_connections
from klog.server.unenforced_metadata import report_unenforced_metadata
from klog.server.unowned_logs import report_unowned_logs
from klog.storage.log.log_manager import LogManager
from klog.storage.log.manager_values import ManagerSettings, Progress
from klog.storage.log.scheduler import Scheduler, monotonic_ms
from klog.storage.log.upkeep import Upkeep

logger = logging.getLogger(__name__)

# If ZooKeeper is away the controller cannot resign. Then the stop goes on, and the session's end deposes it.
_RESIGNATION_TIMEOUT_MS: Final = 5000
_LARGEST_SESSION_ID: Final = 2**31 - 1


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Broker:
    """One broker. The constructor opens and starts everything; `stop` closes it.

    `clock_ms` is the wall clock, which may be set at any time; records, retention and znodes use it. Timeouts
    use a clock that is never set back. `on_fatal` is called if the broker cannot go on, `on_loaded` for each
    log that has been loaded, `on_state` when the broker's state changes. `is_stopping` ends a wait for
    ZooKeeper or the controller (`WaitCancelledError`). Raises `KlogError` if it cannot start; all is closed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        on_fatal: Callable[[str], None] = logger.critical,
        on_loaded: Callable[[Progress], None] = lambda progress: None,  # noqa: ARG005
        on_state: Callable[[BrokerState], None] = lambda state: None,  # noqa: ARG005
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._static = config
        self._on_state = on_state
        self._clock_ms = clock_ms
        self._on_fatal = on_fatal
        self._on_loaded = on_loaded
        self._is_stopping = is_stopping
        check_together(config)
        self._listeners = read_listeners(config)
        self._directories = log_directories(config)
        self._replicas: ReplicaManager | None = None
        self._reconfiguration: Reconfiguration | None = None
        self._session_id: int | None = None
        self._serving = False
        self.broker_epoch = -1
        self.live = LiveConfig(config, {})
        self.cache = MetadataCache()
        self.counters = RequestCounters()
        self.controller_times = ControllerTimes()
        self.topic_stats = BrokerTopicStats()
        self.sessions = FetchSessions(
            config.number("max.incremental.fetch.session.cache.slots"),
            monotonic_ms,
            lambda: secrets.randbelow(_LARGEST_SESSION_ID) + 1,
        )
        with ExitStack() as closing:
            self._open(closing)
            self._closing = closing.pop_all()

    def _open(self, closing: ExitStack) -> None:
        self._on_state(BrokerState.STARTING)
        closing.callback(self._on_state, BrokerState.NOT_RUNNING)
        self._open_tree(closing)
        self._on_state(BrokerState.RECOVERY)
        self._open_logs(closing)
        self._open_replicas(closing)
        self._open_controller(closing)
        self._open_network(closing)
        registered = live_brokers(self.store)
        require_own_endpoints(self.registration(), registered)
        report_other_brokers(self.identity.broker_id, registered)
        self._register()
        self._notes = ConfigChangeNotifications(self.store, self._changes.on_change, self._clock_ms)
        self._notes.follow()
        self._features.follow()
        self.store.add_session_listener(self._session_changed)
        self.scheduler.start()
        self.scheduler.every(
            self.groups.settings.retention_check_interval_ms, self.groups.remove_expired_offsets
        )
        self.transactions.schedule(self.scheduler)
        Upkeep(self.logs, self._clock_ms, self.cleaner.retention_of_others).start()
        self._serving = True
        self.cache.set_initial_brokers(live_brokers(self.store))
        self.network.start()
        self.controller.start()
        await_first_metadata(
            self.cache, self.store, self.replicas, self.identity.broker_id, self._is_stopping
        )
        self.network.open()
        self._on_state(BrokerState.RUNNING)

    @property
    def uses_zookeeper(self) -> bool:
        """Whether the metadata is in ZooKeeper, not in the embedded store."""
        return bool(self._static.text("zookeeper.connect"))

    def stop(self) -> None:
        """Close everything, clients first and the store last. Idempotent."""
        if self._serving:
            self._on_state(BrokerState.SHUTTING_DOWN)
        self._serving = False
        self._closing.close()

    # -- opening ---------------------------------------------------------------------------------------------

    def _open_tree(self, closing: ExitStack) -> None:
        """Lock the log directories, open the metadata store, resolve the ids."""
        self.scheduler = Scheduler()
        self.logs = LogManager(
            ManagerSettings.of(self._static, tuple(self._directories)),
            self.live.topic,
            self.scheduler,
            self,
            clock_ms=self._clock_ms,
        )
        self.logs.open()
        closing.callback(self.logs.release)
        # A creation may wait for ZooKeeper. Closing the store ends it: its thread is waited for after that.
        self._topic_creation = ThreadPoolExecutor(1, "klog-topic-creation")
        closing.callback(self._topic_creation.shutdown)
        self.store = open_store(self._static, self.logs.online[0], self._is_stopping)
        closing.callback(self.store.close)
        create_persistent_nodes(self.store)
        self._features = FeaturesEpoch(self.store)
        new_cluster_id = encode_uuid(secrets.token_bytes(16))
        self.identity = resolve_identity(self._static, self.logs.identities(), self.store, new_cluster_id)
        self.logs.claim(*self.identity)

    def _open_logs(self, closing: ExitStack) -> None:
        self._changes = ConfigChanges(
            self.identity.broker_id,
            self.store,
            self.live.broker,
            self._broker_config_changed,
            self._topic_config_changed,
            self._unclean_enabled,
        )
        self._changes.renew_secrets()
        self._changes.load(at_start=True)
        self.logs.settings = ManagerSettings.of(self.live.broker(), tuple(self._directories))
        load_topic_configs(self.store, self.live.set_topic)
        self.logs.load()
        closing.callback(self.logs.stop)
        report_unowned_logs(self.store, self.logs, self.identity.broker_id)
        report_unenforced_metadata(self.store)
        closing.callback(self.scheduler.stop)
        self.cleaner = open_cleaner(self.logs, self._directories, self.live.broker(), self._clock_ms)
        if self._static.flag("log.cleaner.enable"):
            self.cleaner.start()
            closing.callback(self.cleaner.stop)

    def _open_replicas(self, closing: ExitStack) -> None:
        self.purgatories = new_purgatories(self._static, monotonic_ms)
        self.purgatories.timer.start()
        closing.callback(self.purgatories.timer.stop)
        self._replicas = ReplicaManager(
            ReplicaContext(
                self.identity.broker_id,
                monotonic_ms,
                lambda: self.cache.snapshot.brokers,
                self._static.number("replica.lag.time.max.ms"),
            ),
            ServedLogs(self.logs, self.cleaner, self._read_topic_config),
            self.purgatories.produce,
            self.purgatories.fetch,
            self.purgatories.delete_records,
            lambda topics: read_topic_ids(self.store, topics),
        )
        self.replicas = self._replicas
        self.appends = InternalAppends(
            self.replicas,
            self.purgatories.produce,
            lambda key: self.cache.snapshot.partition(TopicPartition(*key)) is not None,
            clock_ms=self._clock_ms,
            timer_ms=monotonic_ms,
            count=self.topic_stats.count_append,
        )
        self.groups = open_groups(
            self._static,
            self.store,
            self.replicas,
            self.appends,
            self.purgatories.timer.timer,
            lambda: self.cache.snapshot,
        )
        closing.callback(self.groups.stop)
        self._open_transactions(closing)

    def _open_transactions(self, closing: ExitStack) -> None:
        broker_id, listener = self.identity.broker_id, self._listeners.inter_broker
        self.transactions = open_transactions(
            self._static,
            lambda: self.live.broker().flag("transaction.partition.verification.enable"),
            broker_id,
            self.store,
            self.cache,
            self.replicas,
            self.appends,
            self.purgatories.timer.timer,
            broker_connections(self._static, self.cache, broker_id, listener, self._tls_to_brokers),
        )
        closing.callback(self.transactions.stop)

    def _open_controller(self, closing: ExitStack) -> None:
        broker_id = self.identity.broker_id
        timeout_ms = self._static.number("controller.socket.timeout.ms")
        inter_broker = self._listeners.inter_broker

        def connect(broker: BrokerRegistration) -> ControlChannel:
            name = f"klog-controller-{broker_id}"
            return ControlChannel(
                broker, inter_broker, client_id=name, timeout_ms=timeout_ms, tls=self._tls_to_brokers
            )

        def answered(event: ResponseReceived) -> None:
            self.controller.put(event)

        self.controller = Controller(
            lambda: controller_settings(broker_id, inter_broker, self.live.broker()),
            self.store,
            BrokerChannels(connect, answered),
            self._register,
            self._clock_ms,
            time.monotonic_ns,
            self.controller_times,
        )
        closing.callback(self.controller.stop, _RESIGNATION_TIMEOUT_MS)

    def _open_network(self, closing: ExitStack) -> None:
        answers = ThreadPoolExecutor(1, "klog-metadata-answers")
        closing.callback(answers.shutdown)
        closing.callback(self._topic_creation.shutdown, wait=False, cancel_futures=True)

        def background(worker: Executor) -> InBackground:
            return lambda request, work: worker.submit(work_on, request, work, dispatcher.failed)

        parts = Collaborators(
            broker_id=self.identity.broker_id,
            cluster_id=self.identity.cluster_id,
            store=self.store,
            cache=self.cache,
            config=self.live.broker,
            check_config=self._check_config,
            replicas=self.replicas,
            appends=self.appends,
            groups=self.groups,
            transactions=self.transactions,
            controller=self.controller,
            purgatories=self.purgatories,
            sessions=self.sessions,
            topic_stats=self.topic_stats,
            counters=self.counters,
            clock_ns=time.perf_counter_ns,
            clock_ms=self._clock_ms,
            timer_ms=monotonic_ms,
            hosted=lambda: hosted_directories(self.logs, self._directories),
            broker_epoch=lambda: self.broker_epoch,
            features_epoch=lambda: self._features.value,
            run_in_background=background(answers),
            create_in_background=background(self._topic_creation),
        )
        dispatcher = Dispatcher(routes(parts), self.counters, time.perf_counter_ns)
        settings = resolved(network_settings(self.live.broker(), self._listeners))
        self.network = SocketServer(
            self._listeners.bound,
            settings,
            dispatcher,
            clock_ms=monotonic_ms,
            served_before_open=SERVED_BEFORE,
        )
        closing.callback(self.network.stop)
        self.network.bind()
        self._reconfiguration = Reconfiguration(
            self.live,
            self._listeners,
            settings,
            self.network,
            self.logs,
            self.cleaner,
            self._endpoints_changed,
        )
        closing.callback(self._reconfiguration.close)

    # -- registration ----------------------------------------------------------------------------------------

    @property
    def _present_listeners(self) -> Listeners:
        return self._listeners if self._reconfiguration is None else self._reconfiguration.listeners

    def _tls_to_brokers(self) -> ssl.SSLContext | None:
        tls = self._present_listeners.tls.get(self._listeners.inter_broker)
        return None if tls is None else tls.to_brokers

    def registration(self) -> BrokerRegistration:
        """What this broker registers in the metadata store."""
        listeners = self._present_listeners
        ports = {each.name: self.network.port(each.name) for each in listeners.bound}
        return BrokerRegistration(
            self.identity.broker_id,
            listeners.endpoints(ports),
            self._static.text("broker.rack"),
            timestamp_ms=self._clock_ms(),
        )

    def _register(self) -> None:
        self.broker_epoch = register_broker(self.store, self.registration(), self._session_id)
        self._session_id = self.store.session_id

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._serving:
            self._changes.load()
            self._notes.follow()
            self._features.follow()

    # -- changes of configs ----------------------------------------------------------------------------------

    def _check_config(self, config: BrokerConfig) -> None:
        """Raises `UsageError` if the broker could not work with these configs."""
        if self._reconfiguration is not None:
            self._reconfiguration.check(config)

    def _broker_config_changed(self, config: BrokerConfig) -> None:
        """Apply the broker's dynamic configs. If it raises (`KlogError`), nothing has changed."""
        if self._reconfiguration is not None:
            self._reconfiguration.apply(config)
            return
        require_enforced(config)
        listeners = read_listeners(config)
        network_settings(config, listeners)
        self._listeners = listeners
        self.live.set_broker(config)

    def _endpoints_changed(self) -> None:
        # Without a session there is no registration to update; the next one has the present endpoints.
        with suppress(NoNodeError, SessionExpiredError):
            update_broker(self.store, self.registration())

    def _topic_config_changed(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.live.set_topic(topic, overrides)
        self.logs.reconfigure(topic)

    def _read_topic_config(self, topic: str) -> None:
        load_topic_config(self.store, topic, self.live.set_topic)

    def _unclean_enabled(self, topic: str | None) -> None:
        if self._serving:
            self.controller.put(UncleanElectionEnabled(topic))

    # -- the log manager's listener --------------------------------------------------------------------------

    def loaded(self, progress: Progress) -> None:
        """One more log has been loaded."""
        self._on_loaded(progress)

    def directory_failed(self, directory: str, partitions: tuple[TopicPartition, ...], why: str) -> None:  # noqa: ARG002
        """A log directory has gone offline; the log manager has logged it."""
        if self._serving:
            self.cleaner.directory_failed(directory)
        if self._replicas is not None:
            self._replicas.directory_failed(partitions)
        if self._serving:
            # In a thread of its own, because it waits while ZooKeeper is away.
            Thread(target=self._announce_failure, name="klog-log-dir-failure", daemon=True).start()

    def _announce_failure(self) -> None:
        try:
            announce_log_dir_failure(self.store, self.identity.broker_id)
        except SessionExpiredError:
            pass  # the controller asks for all replicas of a broker that comes back
        except StoreError as error:
            logger.error("the failure of a log directory could not be announced: %s", error)

    def all_directories_failed(self) -> None:
        """No log directory is left."""
        self._on_fatal("all log directories have failed")
