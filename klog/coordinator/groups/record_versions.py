"""Chooses the versions of the values in `__consumer_offsets` by `inter.broker.protocol.version`.

Rules: Kafka 3.9's `GroupMetadataManager.offsetCommitValue` and `groupMetadataValue`. While a cluster is being
upgraded, a broker of the older release may have to load what this one has written.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.config.kafka_versions import is_before_internal

NEWEST_VALUE_VERSION: Final = 3
# Each version is written by brokers whose protocol is older than the internal version beside it.
_OFFSETS: Final = (("2.1-IV0", 1), ("2.1-IV1", 2))
_GROUPS: Final = (("0.10.1-IV0", 0), ("2.1-IV0", 1), ("2.3-IV0", 2))


class RecordVersions(NamedTuple):
    """The versions of the values that are written: of committed offsets, and of groups."""

    offset: int = NEWEST_VALUE_VERSION
    group: int = NEWEST_VALUE_VERSION

    @property
    def has_static_members(self) -> bool:
        """Whether a group's record has room for the instance ids of static members."""
        return self.group >= NEWEST_VALUE_VERSION


NEWEST: Final = RecordVersions()


def record_versions(protocol_version: str) -> RecordVersions:
    """The versions for an `inter.broker.protocol.version`."""
    return RecordVersions(_version(protocol_version, _OFFSETS), _version(protocol_version, _GROUPS))


def _version(protocol_version: str, bounds: tuple[tuple[str, int], ...]) -> int:
    older = (version for before, version in bounds if is_before_internal(protocol_version, before))
    return next(older, NEWEST_VALUE_VERSION)
