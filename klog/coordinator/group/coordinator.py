"""The group coordinator: owns the groups whose partition of `__consumer_offsets` this broker leads.

Rules: Kafka's `GroupCoordinator` and `GroupMetadataManager`. A partition is loaded when its leadership comes
and forgotten when it goes, each in the order of the leader epochs, on one thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from klog.coordinator.group.group_partition import GroupPartition, GroupServices
from klog.coordinator.group.loading import load_groups
from klog.coordinator.group.values import Key
from klog.coordinator.partitioning import partition_of
from klog.protocol.error_codes import ErrorCode
from klog.replication.roles import Role, RoleChange
from klog.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

CONSUMER_OFFSETS: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Broker configs of groups.

    `partitions` is how many `__consumer_offsets` has, read once: if the topic grows, groups would be looked
    for in other partitions. `has_static_members` is whether all brokers of the cluster keep instance ids.
    """

    partitions: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_metadata_bytes: int
    load_buffer_bytes: int
    retention_ms: int
    retention_check_interval_ms: int
    has_static_members: bool = True


class GroupCoordinator:
    """All groups of this broker. Safe for threads.

    `log_of` gives the log of a partition of `__consumer_offsets` that this broker leads, or None.
    """

    def __init__(
        self,
        settings: GroupSettings,
        services: GroupServices,
        log_of: Callable[[int], PartitionLog | None],
    ) -> None:
        self.settings = settings
        self._services = services
        self._log_of = log_of
        self._lock = threading.Lock()
        # By number. The newest epoch of which something is known, led or not.
        self._epochs: dict[int, int] = {}
        self._loading: dict[int, int] = {}
        self._owned: dict[int, GroupPartition] = {}
        self._loader = ThreadPoolExecutor(1, "klog-group-loader")
        self._stopped = False

    # -- which groups ----------------------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that the group belongs to."""
        return partition_of(group_id, self.settings.partitions)

    def owner_of(self, group_id: str) -> GroupPartition | ErrorCode:
        """The partition that holds the group, or why this broker does not coordinate it now."""
        number = self.partition_for(group_id)
        owned = self._owned.get(number)
        if owned is not None:
            return owned
        if self._stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if number in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    def owned(self) -> list[GroupPartition]:
        """All partitions that are loaded."""
        with self._lock:
            return list(self._owned.values())

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded."""
        return bool(self._loading)

    # -- leadership ------------------------------------------------------------------------------------------

    def roles_changed(self, changes: Sequence[RoleChange]) -> None:
        """Take note of changed roles. A listener of the replica manager: the work is left to a thread."""
        for change in changes:
            if change.partition.topic == CONSUMER_OFFSETS:
                self._role_changed(change)

    def _role_changed(self, change: RoleChange) -> None:
        number, epoch = change.partition.partition, change.leader_epoch
        leads = change.new is Role.LEADER
        with self._lock:
            if self._stopped:
                return
            if leads and epoch >= self._epochs.get(number, epoch):
                held = self._owned.get(number)
                if held is None:
                    self._loading[number] = epoch
                else:
                    held.leader_epoch = epoch
            self._epochs[number] = max(epoch, self._epochs.get(number, epoch))
        self._loader.submit(self._load if leads else self._unload, number, epoch)

    def _load(self, number: int, epoch: int) -> None:
        with self._lock:
            if self._stopped or self._epochs.get(number, epoch) > epoch:
                self._loading.pop(number, None)
                return
            if number in self._owned:
                return  # led in a newer epoch without a break: the groups stay as they are
        partition = GroupPartition(number, epoch, self._services)
        log = self._log_of(number)
        loaded = None
        if log is not None:
            loaded = load_groups(
                log, self.settings.load_buffer_bytes, lambda: self._epochs.get(number, epoch) <= epoch
            )
        with self._lock:
            if self._loading.get(number) == epoch:
                del self._loading[number]
            if loaded is None or self._stopped:
                return
        # Nobody knows the partition yet. Its timers may fire before it is known, which does no harm.
        partition.install(loaded)
        with self._lock:
            self._owned[number] = partition
        # Most of the 50 partitions of a small cluster hold no groups: they are not worth a line.
        level = logging.INFO if partition.entries else logging.DEBUG
        count = len(partition.entries)
        logger.log(level, "loaded %d groups of %s-%d in epoch %d", count, CONSUMER_OFFSETS, number, epoch)

    def _unload(self, number: int, epoch: int) -> None:
        with self._lock:
            self._loading.pop(number, None)
            held = self._owned.get(number)
            if held is None or -1 < epoch < held.leader_epoch:
                return
            del self._owned[number]
        count = len(held.entries)
        held.close()
        level = logging.INFO if count else logging.DEBUG
        logger.log(
            level, "forgot %d groups of %s-%d, which is led elsewhere", count, CONSUMER_OFFSETS, number
        )

    def stop(self) -> None:
        """Forget all groups; requests are answered COORDINATOR_NOT_AVAILABLE from now on."""
        with self._lock:
            self._stopped = True
            held = list(self._owned.values())
            self._owned.clear()
            self._loading.clear()
        self._loader.shutdown(cancel_futures=True)
        for partition in held:
            partition.close()

    # -- offsets that go -------------------------------------------------------------------------------------

    def remove_expired_offsets(self) -> None:
        """Forget the offsets that are past their retention, and groups that have nothing left."""
        for partition in self.owned():
            partition.remove_expired(self.settings.retention_ms)

    def partitions_deleted(self, keys: Iterable[Key]) -> None:
        """Forget the offsets of partitions that no longer exist."""
        gone = list(keys)
        for partition in self.owned():
            partition.remove_offsets(gone)

    def transaction_ended(self, number: int, producer_id: int, *, committed: bool) -> None:
        """A transaction marker was written to a partition of `__consumer_offsets`."""
        partition = self._owned.get(number)
        if partition is not None:
            partition.complete_transaction(producer_id, committed=committed)
