"""Transactions inside a broker: their coordinator, its log, and the requests to other brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klog.config.broker import BrokerConfig
from klog.coordinator.transactions.coordinator import (
    TRANSACTION_STATE,
    TransactionCoordinator,
    TransactionSettings,
)
from klog.coordinator.transactions.end_waits import WAIT_MS, EndWaits
from klog.coordinator.transactions.requests import TransactionRequests
from klog.coordinator.transactions.transaction_partition import Append, OnAppended, TransactionServices
from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache
from klog.metadata.producer_ids import ProducerIds
from klog.metadata.store import MetadataStore
from klog.replication.internal_append import InternalAppends
from klog.replication.purgatory import Timer
from klog.replication.replica_manager import ReplicaManager
from klog.server.coordinators.internal_topics import led_logs, partition_count, pause_loading, when_replicated
from klog.server.transactions.broker_threads import Connect
from klog.server.transactions.marker_sending import MarkerSending
from klog.server.transactions.marker_writing import Groups, MarkerWriting
from klog.server.transactions.opening import open_marker_sender, open_verifier
from klog.server.transactions.verification import Verification
from klog.server.transactions.verifying import Verifying
from klog.storage.log.built_batch import BuiltBatch
from klog.storage.log.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class BrokerTransactions:
    """What a broker has for transactions. `requests` are those of clients and of other brokers."""

    coordinator: TransactionCoordinator
    requests: TransactionRequests
    verification: Verification
    markers: MarkerSending
    marker_writing: MarkerWriting
    verifier: Verifying

    def schedule(self, scheduler: Scheduler) -> None:
        """Let transactions that take too long be aborted, and ids that are not used be forgotten."""
        settings = self.coordinator.settings
        scheduler.every(settings.abort_check_interval_ms, self.coordinator.abort_timed_out)
        scheduler.every(settings.removal_check_interval_ms, self.coordinator.remove_expired)

    def stop(self) -> None:
        """Forget all ids, and end the threads. What is decided is completed after the next start."""
        self.verifier.stop()
        self.coordinator.stop()
        self.markers.stop()


def open_transactions(
    configs: Callable[[], BrokerConfig],
    broker_id: int,
    producer_ids: ProducerIds,
    store: MetadataStore,
    cache: MetadataCache,
    replicas: ReplicaManager,
    appends: InternalAppends,
    groups: Groups,
    timer: Timer,
    connect: Connect,
    *,
    coordinates: bool = True,
) -> BrokerTransactions:
    """Open the transactions of a broker. Their coordinator is notified of changed roles from now on.

    Unless it `coordinates`, it takes over no transactional ids, and what they have open stays open.

    `configs` gives the present configs: `transaction.partition.verification.enable` may change at any time.
    """

    def is_verified() -> bool:
        return configs().flag("transaction.partition.verification.enable")

    writing = MarkerWriting(appends, groups, timeout_ms=configs().number("request.timeout.ms"))
    markers = open_marker_sender(broker_id, writing.write, cache, store, connect)
    services = TransactionServices(
        append=_append(appends),
        timer=timer,
        clock_ms=appends.clock_ms,
        timer_ms=appends.timer_ms,
        markers=markers,
        next_producer_id=producer_ids.next_id,
        waits=EndWaits(timer, appends.timer_ms, WAIT_MS),
        pause=pause_loading,
        when_replicated=when_replicated(appends, TRANSACTION_STATE),
    )
    coordinator = TransactionCoordinator(
        _settings(configs(), store), services, led_logs(replicas, TRANSACTION_STATE)
    )
    requests = TransactionRequests(coordinator)
    verifier = open_verifier(broker_id, cache, requests.verify_partitions, connect)
    if coordinates:
        replicas.add_listener(coordinator.roles_changed)
    return BrokerTransactions(
        coordinator,
        requests,
        Verification(replicas, verifier, is_verified, appends.clock_ms),
        markers,
        writing,
        verifier,
    )


def _settings(config: BrokerConfig, store: MetadataStore) -> TransactionSettings:
    new_partitions = config.number("transaction.state.log.num.partitions")
    return TransactionSettings(
        partitions=partition_count(store, TRANSACTION_STATE, new_partitions),
        max_timeout_ms=config.number("transaction.max.timeout.ms"),
        id_expiration_ms=config.number("transactional.id.expiration.ms"),
        load_buffer_bytes=config.number("transaction.state.log.load.buffer.size"),
        abort_check_interval_ms=config.number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        removal_check_interval_ms=config.number("transaction.remove.expired.transaction.cleanup.interval.ms"),
        request_timeout_ms=config.number("request.timeout.ms"),
        max_batch_bytes=config.number("message.max.bytes"),
    )


def _append(appends: InternalAppends) -> Append:
    def append(
        partition: int, batch: BuiltBatch, on_done: OnAppended, *, leader_epoch: int, timeout_ms: int
    ) -> None:
        key = TopicPartition(TRANSACTION_STATE, partition)
        appends.append_built(key, batch, on_done, timeout_ms=timeout_ms, leader_epoch=leader_epoch)

    return append
