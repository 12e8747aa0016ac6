"""The transaction coordinator: owns the transactional ids whose partition of `__transaction_state` this
broker leads.

Rules: Kafka's `TransactionCoordinator` and `TransactionStateManager`. `ownership` says when a partition is
loaded and when it is forgotten. The leader epoch of the partition is the coordinator epoch in markers, so a
partition is loaded again in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klog.coordinator.runtime.ownership import Loader, OwnedTopic, Ownership
from klog.coordinator.runtime.partitioning import partition_of
from klog.coordinator.transactions.loading import load_transactions
from klog.coordinator.transactions.transaction_partition import TransactionPartition, TransactionServices
from klog.protocol.error_codes import ErrorCode
from klog.storage.log.partition_log import PartitionLog

TRANSACTION_STATE: Final = "__transaction_state"


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Broker configs of transactions.

    `partitions` is how many `__transaction_state` has, read once: if the topic grows, ids would be looked for
    in other partitions.
    """

    partitions: int  # transaction.state.log.num.partitions, or what the topic has
    max_timeout_ms: int  # transaction.max.timeout.ms
    id_expiration_ms: int  # transactional.id.expiration.ms
    load_buffer_bytes: int  # transaction.state.log.load.buffer.size
    abort_check_interval_ms: int  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    removal_check_interval_ms: int  # transaction.remove.expired.transaction.cleanup.interval.ms
    request_timeout_ms: int  # request.timeout.ms
    max_batch_bytes: int  # message.max.bytes


class TransactionCoordinator(Ownership[TransactionPartition]):
    """All transactional ids of this broker. Safe for threads.

    `log_of` gives the log of a partition of `__transaction_state` that this broker leads, or None. `loader`
    loads partitions, instead of a thread.
    `roles_changed` is to be a listener of the replica manager. `abort_timed_out` and `remove_expired` are to
    be called in the intervals of the settings.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        services: TransactionServices,
        log_of: Callable[[int], PartitionLog | None],
        loader: Loader | None = None,
    ) -> None:
        self.settings = settings
        self.services = services
        self._log_of = log_of
        topic = OwnedTopic(
            TRANSACTION_STATE, "transactional ids", self._read, services.when_replicated, reloads=True
        )
        super().__init__(topic, "klog-transaction-loader", loader=loader)

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that the id belongs to."""
        return partition_of(transactional_id, self.settings.partitions)

    def owner_of(self, transactional_id: str) -> TransactionPartition | ErrorCode:
        """The partition that holds the id, or why this broker does not coordinate it now."""
        return self.owner_at(self.partition_for(transactional_id))

    def _read(
        self, number: int, epoch: int, still_leads: Callable[[], bool]
    ) -> Callable[[], TransactionPartition] | None:
        log = self._log_of(number)
        buffer_bytes, pause = self.settings.load_buffer_bytes, self.services.pause
        loaded = None if log is None else load_transactions(log, buffer_bytes, still_leads, pause)
        if loaded is None:
            return None

        def start() -> TransactionPartition:
            partition = TransactionPartition(number, epoch, self.services)
            partition.install(loaded)
            return partition

        return start

    def abort_timed_out(self) -> None:
        """Abort the transactions that have been open for longer than their timeout."""
        for partition in self.owned():
            partition.abort_timed_out()

    def remove_expired(self) -> None:
        """Remove the ids that were not used for longer than `transactional.id.expiration.ms`."""
        settings = self.settings
        for partition in self.owned():
            partition.remove_expired(
                settings.id_expiration_ms, settings.max_batch_bytes, settings.request_timeout_ms
            )
