"""The group coordinator: owns the groups whose partition of `__consumer_offsets` this broker leads.

Rules: Kafka's `GroupCoordinator` and `GroupMetadataManager`. `ownership` says when a partition is loaded and
when it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from klog.coordinator.groups.group_partition import GroupPartition
from klog.coordinator.groups.loading import load_groups
from klog.coordinator.groups.services import GroupServices
from klog.coordinator.runtime.ownership import Loader, OwnedTopic, Ownership
from klog.coordinator.runtime.partitioning import partition_of
from klog.formats.names import CONSUMER_OFFSETS, PartitionKey
from klog.protocol.error_codes import ErrorCode
from klog.storage.log.partition_log import PartitionLog

_MOST_REMEMBERED: Final = 20_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Broker configs of groups.

    `partitions` is how many `__consumer_offsets` has, read once: if the topic grows, groups would be looked
    for in other partitions. `has_static_members` is whether all brokers of the cluster keep instance ids.
    `accepts_consumer_protocol` is whether members of the consumer protocol (KIP-848) may join.
    """

    partitions: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_metadata_bytes: int
    load_buffer_bytes: int
    retention_ms: int
    retention_check_interval_ms: int
    has_static_members: bool = True
    accepts_consumer_protocol: bool = True


class GroupCoordinator(Ownership[GroupPartition]):
    """All groups of this broker. Safe for threads.

    `log_of` gives the log of a partition of `__consumer_offsets` that this broker leads, or None. `loader`
    loads partitions, instead of a thread.
    """

    def __init__(
        self,
        settings: GroupSettings,
        services: GroupServices,
        log_of: Callable[[int], PartitionLog | None],
        loader: Loader | None = None,
    ) -> None:
        self.settings = settings
        self.services = services
        self._log_of = log_of
        # By group id, because the hash of an id takes longer than all else of a heartbeat.
        self._numbers: dict[str, int] = {}
        topic = OwnedTopic(CONSUMER_OFFSETS, "groups", self._read, services.when_replicated)
        super().__init__(topic, "klog-group-loader", loader=loader)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that the group belongs to."""
        number = self._numbers.get(group_id)
        if number is None:
            number = partition_of(group_id, self.settings.partitions)
            if len(self._numbers) >= _MOST_REMEMBERED:
                self._numbers.clear()
            self._numbers[group_id] = number
        return number

    def owner_of(self, group_id: str) -> GroupPartition | ErrorCode:
        """The partition that holds the group, or why this broker does not coordinate it now."""
        return self.owner_at(self.partition_for(group_id))

    def _read(
        self, number: int, epoch: int, still_leads: Callable[[], bool]
    ) -> Callable[[], GroupPartition] | None:
        log, services = self._log_of(number), self.services
        if log is None:
            return None
        with services.loading():
            loaded = load_groups(log, self.settings.load_buffer_bytes, still_leads, services.pause)
        if loaded is None:
            return None

        def start() -> GroupPartition:
            partition = GroupPartition(number, epoch, services)
            with services.loading():
                partition.install(loaded)
            return partition

        return start

    # -- offsets that go -------------------------------------------------------------------------------------

    def remove_expired_offsets(self) -> None:
        """Forget the offsets that are past their retention, and groups that have nothing left."""
        for partition in self.owned():
            partition.remove_expired(self.settings.retention_ms)

    def partitions_deleted(self, keys: Iterable[PartitionKey]) -> None:
        """Forget the offsets of partitions that no longer exist."""
        gone = list(keys)
        for partition in self.owned():
            partition.remove_offsets(gone)

    def transaction_ended(self, number: int, producer_id: int, *, committed: bool) -> None:
        """A transaction marker was written to a partition of `__consumer_offsets`.

        While the partition is being loaded, the marker may be behind what has been read. So it counts
        after the load.
        """
        self.when_loaded(
            number, lambda partition: partition.complete_transaction(producer_id, committed=committed)
        )
