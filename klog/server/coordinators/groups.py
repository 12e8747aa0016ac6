"""The group coordinator inside a broker: its configs, its log, its timers, and its listeners for changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klog.config.broker import BrokerConfig
from klog.coordinator.groups.classic.rebalance import GroupLimits
from klog.coordinator.groups.commit_run import CommitRun
from klog.coordinator.groups.coordinator import GroupCoordinator, GroupSettings
from klog.coordinator.groups.record_versions import record_versions
from klog.coordinator.groups.services import Append, GroupServices, OnAppended
from klog.coordinator.groups.transactional_offsets import OnVerified, VerifyOffsets
from klog.coordinator.groups.values import Now
from klog.coordinator.groups.writing import COMMIT_SEQUENCE, Writer
from klog.coordinator.transactions.values import Producer
from klog.formats.errors import StorageError
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.jobs.garbage import without_collections
from klog.metadata.cache import ClusterSnapshot
from klog.metadata.store import MetadataStore
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import InternalAppends, WrittenRun
from klog.replication.purgatory import Timer
from klog.replication.replica_manager import ReplicaManager
from klog.server.coordinators.consumer_groups import (
    LatestTopics,
    accepts_consumer_protocol,
    settings_of_groups,
)
from klog.server.coordinators.internal_topics import led_logs, partition_count, pause_loading, when_replicated
from klog.server.transactions.verification import Verification, Verified

_MS_IN_MINUTE: Final = 60_000


def open_groups(
    config: BrokerConfig,
    store: MetadataStore,
    replicas: ReplicaManager,
    appends: InternalAppends,
    timer: Timer,
    snapshot: Callable[[], ClusterSnapshot],
    overrides: Callable[[str], Mapping[str, int]],
) -> GroupCoordinator:
    """Open the group coordinator of a broker. It is notified of changed roles from now on.

    `overrides` gives the configs of a group that are not the broker's.
    """
    versions = record_versions(config.text("inter.broker.protocol.version") or "")
    services = GroupServices(
        append=_append(appends, config.number("offsets.commit.timeout.ms")),
        run_append=_RunAppend(
            appends,
            config.number("offsets.commit.required.acks"),
            config.number("offsets.commit.timeout.ms"),
        ),
        timer=timer,
        clock=lambda: Now(appends.clock_ms(), appends.timer_ms()),
        writer=Writer(config.number("offsets.topic.compression.codec"), versions),
        limits=GroupLimits(
            config.number("group.initial.rebalance.delay.ms"), config.number("group.max.size")
        ),
        commit_acks=config.number("offsets.commit.required.acks"),
        pause=pause_loading,
        when_replicated=when_replicated(appends, CONSUMER_OFFSETS),
        loading=without_collections,
        consumer_groups=settings_of_groups(config, overrides),
        topics=LatestTopics(snapshot),
    )
    settings = GroupSettings(
        partitions=partition_count(store, CONSUMER_OFFSETS, config.number("offsets.topic.num.partitions")),
        min_session_timeout_ms=config.number("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.number("group.max.session.timeout.ms"),
        max_metadata_bytes=config.number("offset.metadata.max.bytes"),
        load_buffer_bytes=config.number("offsets.load.buffer.size"),
        retention_ms=config.number("offsets.retention.minutes") * _MS_IN_MINUTE,
        retention_check_interval_ms=config.number("offsets.retention.check.interval.ms"),
        has_static_members=versions.has_static_members,
        accepts_consumer_protocol=accepts_consumer_protocol(config),
    )
    coordinator = GroupCoordinator(settings, services, led_logs(replicas, CONSUMER_OFFSETS))
    replicas.add_listener(coordinator.roles_changed)
    return coordinator


def _append(appends: InternalAppends, timeout_ms: int) -> Append:
    def append(
        partition: int,
        batch: bytearray,
        on_done: OnAppended,
        *,
        acks: int,
        leader_epoch: int,
        guard: object | None = None,
    ) -> None:
        appends.append_records(
            TopicPartition(CONSUMER_OFFSETS, partition),
            memoryview(batch),
            on_done,
            acks=acks,
            timeout_ms=timeout_ms,
            leader_epoch=leader_epoch,
            guard=guard,
        )

    return append


class _RunAppend:
    """Writes runs of commits to `__consumer_offsets` with these acks, which wait for `timeout_ms` at most."""

    def __init__(self, appends: InternalAppends, acks: int, timeout_ms: int) -> None:
        self._appends = appends
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._keys: dict[int, TopicPartition] = {}

    def _key(self, partition: int) -> TopicPartition:
        key = self._keys.get(partition)
        if key is None:
            key = self._keys[partition] = TopicPartition(CONSUMER_OFFSETS, partition)
        return key

    def write(self, partition: int, run: CommitRun, leader_epoch: int, now_ms: int) -> WrittenRun | None:
        run.stamp(self._acks, now_ms)
        try:
            return self._appends.write_run(self._key(partition), run, leader_epoch)
        except (OSError, StorageError):
            return None

    def written(self, partition: int, run: WrittenRun) -> None:
        self._appends.replicas.appended(self._key(partition), run.high_watermark_moved)

    def wait(self, partition: int, run: WrittenRun, on_done: OnAppended) -> None:
        self._appends.when_acknowledged(self._key(partition), run, on_done, timeout_ms=self._timeout_ms)


def verify_offsets(verification: Verification) -> VerifyOffsets:
    """Verifies that the partition of a group is in a producer's transaction."""

    def verify(partition: int, transactional_id: str, producer: Producer, on_done: OnVerified) -> None:
        key = (CONSUMER_OFFSETS, partition)

        def verified(found: Verified) -> None:
            on_done(found.errors.get(TopicPartition(*key), ErrorCode.NONE), found.guards.get(key))

        verification.begin(transactional_id, producer, {key: COMMIT_SEQUENCE}, verified)

    return verify
