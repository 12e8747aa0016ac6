"""Sends consumers to the nearest replica if `replica.selector.class` says so (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from klog.config.broker import BrokerConfig
from klog.metadata.cache import ClusterSnapshot, MetadataCache
from klog.replication.partition import Partition
from klog.replication.preferred_replica import candidates, in_rack
from klog.replication.reading import NO_REPLICA, Prefer


class RackAwareSelector:
    """Chooses by the racks of the brokers that the metadata cache knows as alive."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._racks: tuple[ClusterSnapshot, Mapping[int, str | None]] = (cache.snapshot, {})

    def for_rack(self, rack: str) -> Prefer | None:
        """Chooses for a consumer in this rack; None if the consumer has none."""
        if not rack:
            return None

        def prefer(partition: Partition, offset: int) -> int:
            racks = self._racks_of(self._cache.snapshot)
            leader_rack = racks.get(partition.context.broker_id)
            chosen = in_rack(rack, leader_rack, candidates(partition, offset, racks))
            return NO_REPLICA if chosen is None else chosen

        return prefer

    def _racks_of(self, snapshot: ClusterSnapshot) -> Mapping[int, str | None]:
        known, racks = self._racks
        if known is not snapshot:
            racks = {broker_id: broker.rack for broker_id, broker in snapshot.brokers.items()}
            self._racks = snapshot, racks
        return racks


def replica_selector(config: BrokerConfig, cache: MetadataCache) -> RackAwareSelector | None:
    """What `replica.selector.class` names; None if consumers read from leaders.

    `check_together` has refused other classes.
    """
    return RackAwareSelector(cache) if config.text("replica.selector.class") else None
