"""Committed offsets of groups where `__consumer_offsets` may not be read, as managed Kafka often has it.

Each run asks for the offsets of all groups. They are stored as records of that topic, as a coordinator would
write them, so that a restore brings them back like any others. The log of a partition begins anew with each
run that finds other offsets: what a run has found is all that counts. The history of a group is thus that of
the runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from klog.backup.model import PartitionRef, PartitionState
from klog.backup.partition_copy import CopyRules, Outcome
from klog.backup.pieces import PieceWriter
from klog.backup.sources import Candidate
from klog.backup.wire.log import Log, Origin
from klog.client.cluster import Cluster
from klog.client.errors import RefusedError
from klog.client.groups import CommittedOffset, fetch_offsets, list_groups
from klog.coordinator.groups import values
from klog.coordinator.groups.records import offset_key, offset_value
from klog.coordinator.runtime.partitioning import partition_of
from klog.formats.checksums import Bytes
from klog.formats.errors import KlogError
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable

PARTITIONS: Final = 50
"""The default of `offsets.topic.num.partitions`."""
_RECORDS_AT_ONCE: Final = 500

Commit = tuple[str, TopicPartition, CommittedOffset]


def group_partitions(cluster: Cluster, source: str, *, is_known: bool) -> Mapping[TopicPartition, Candidate]:
    """The partitions of `__consumer_offsets` with what groups have committed now.

    Without groups there are none, unless a backup before has them (`is_known`). Raises `KlogError`.
    """
    names = [group.group_id for group in list_groups(cluster)]
    if not names and not is_known:
        return {}
    commits: dict[int, list[Commit]] = {number: [] for number in range(PARTITIONS)}
    errors: dict[int, KlogError] = {}
    for name, offsets in sorted(fetch_offsets(cluster, names).items()):
        number = partition_of(name, PARTITIONS)
        if isinstance(offsets, RefusedError) and offsets.is_of_rights:
            errors[number] = RefusedError(f"offsets of group {name}", offsets.code, right="Describe")
        elif isinstance(offsets, KlogError):
            errors[number] = offsets
        else:
            commits[number] += [(name, partition, found) for partition, found in sorted(offsets.items())]
    return {
        TopicPartition(CONSUMER_OFFSETS, number): _Groups(
            TopicPartition(CONSUMER_OFFSETS, number), source, tuple(found), errors.get(number)
        )
        for number, found in commits.items()
    }


@dataclass(frozen=True, slots=True)
class _Groups:
    """The committed offsets of the groups of one partition; `error` is why those of a group are unknown."""

    partition: TopicPartition
    source: str
    commits: tuple[Commit, ...]
    error: KlogError | None

    @property
    def fingerprint(self) -> str:
        """A hash of all offsets."""
        if self.error is not None:
            return ""
        return hashlib.blake2b(repr(self.commits).encode(), digest_size=12).hexdigest()

    def new_bytes(self, before: PartitionRef | None) -> int:  # noqa: ARG002 (of the protocol)
        """None: they are known."""
        return 0

    def copy(
        self,
        previous: PartitionState | None,
        writer: PieceWriter,
        rules: CopyRules,
        problems: list[KlogError],  # noqa: ARG002 (of the protocol)
    ) -> Outcome:
        """A log with the records of these offsets only, after the end of the one before."""
        if self.error is not None:
            raise self.error
        is_next = previous is not None and previous.source == self.source
        start = previous.end_offset if previous is not None and is_next else 0
        now_ms = rules.now_ms()
        log = Log(writer, self.partition, None, start)
        try:
            for batch in self._batches(start, now_ms):
                table = BatchTable()
                kernel.scan(batch, 0, True, table)
                log.add(memoryview(batch), table, self.source, start + len(self.commits))
                writer.on_bytes(len(batch))
            return Outcome(log.state(Origin(None, self.source, None, log.end_offset, now_ms), start))
        finally:
            log.discard()

    def readings(self, *_: object) -> Iterable[Iterable[Bytes]]:
        """None: brokers do not tell what was committed before."""
        return ()

    def _batches(self, start: int, now_ms: int) -> Iterator[bytes]:
        records = [
            RecordData(start + number, now_ms, offset_key(group, partition), _value(offset, now_ms))
            for number, (group, partition, offset) in enumerate(self.commits)
        ]
        for first in range(0, len(records), _RECORDS_AT_ONCE):
            batch = build_batch(records[first : first + _RECORDS_AT_ONCE], BatchFields(leader_epoch=0))
            yield bytes(batch)


def _value(found: CommittedOffset, now_ms: int) -> bytes:
    return offset_value(values.CommittedOffset(found.offset, found.leader_epoch, found.metadata, now_ms))
