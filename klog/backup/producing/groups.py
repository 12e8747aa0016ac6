"""Sets the offsets of groups in a cluster to where they were, by the new offsets of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from klog.backup.moment.decisions import TRANSACTION_TOPIC
from klog.backup.producing.offset_map import OffsetMap
from klog.backup.restoring.batches import PieceSource, Rows, read_batches
from klog.backup.restoring.plan import PlannedPartition
from klog.backup.restoring.state_records import committed_offsets
from klog.client.cluster import Cluster
from klog.client.errors import RefusedError
from klog.client.groups import CommittedOffset, commit_offsets
from klog.formats.constants import ENTRY_PREFIX_BYTES
from klog.formats.errors import KlogError
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.formats.packed import BATCH_HEADER_TO_LEADER_EPOCH
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.kernel.markers import build_marker
from klog.protocol.error_codes import ErrorCode

_OF_BROKERS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_TOPIC, "__share_group_state"})

GroupOffsets = dict[str, dict[TopicPartition, CommittedOffset]]


def is_of_brokers(topic: str) -> bool:
    """Whether only brokers write a topic. Its records are not produced."""
    return topic in _OF_BROKERS


@dataclass(frozen=True, slots=True)
class GroupsRestored:
    """How many groups have offsets now, and the groups that could not be set."""

    groups: int
    failures: tuple[KlogError, ...] = ()


def translated_offsets(
    source: PieceSource,
    planned: Iterable[PlannedPartition],
    maps: Mapping[TopicPartition, OffsetMap],
    names: Mapping[str, str],
) -> GroupOffsets:
    """The new offsets of the groups for partitions of `maps`; `names` has the new names of topics.

    Raises `StorageError`, `FormatError`.
    """
    found: GroupOffsets = {}
    for each in planned:
        if each.view.partition.topic != CONSUMER_OFFSETS:
            continue
        for group_id, offsets in committed_offsets(str(each.view.partition), _rows(source, each)).items():
            for (topic, number), committed in offsets.items():
                target = TopicPartition(names.get(topic, topic), number)
                if topic in names and target in maps:
                    offset = maps[target].translated(committed.offset)
                    found.setdefault(group_id, {})[target] = CommittedOffset(
                        offset, metadata=committed.metadata
                    )
    return found


def commit_groups(cluster: Cluster, groups: GroupOffsets) -> GroupsRestored:
    """Set the offsets of groups. One that has members is not changed, and is among the failures.

    Raises `ChannelError`.
    """
    done, failures = 0, []
    for group_id, offsets in sorted(groups.items()):
        try:
            errors = commit_offsets(cluster, group_id, offsets)
        except RefusedError as error:
            failures.append(_naming_right(error, group_id, offsets))
            continue
        refused = {partition: code for partition, code in errors.items() if code is not ErrorCode.NONE}
        failures += [RefusedError(f"group {group_id}: {each}", code) for each, code in refused.items()]
        done += not refused
    return GroupsRestored(done, tuple(failures))


def _naming_right(error: RefusedError, group_id: str, offsets: Iterable[TopicPartition]) -> RefusedError:
    """Kafka tells neither the right that is missing nor the topics."""
    if not error.is_of_rights:
        return error
    topics = ", ".join(sorted({each.topic for each in offsets}))
    return RefusedError(f"offsets of group {group_id} for {topics}", error.code, right="Read")


def _rows(source: PieceSource, planned: PlannedPartition) -> Iterator[Rows]:
    """The batches of a partition, with the markers that the cut adds."""
    cut = planned.cut
    yield from read_batches(source, planned.view.parts, cut.end_offset, checked=True)
    for number, added in enumerate(cut.added):
        batch = build_marker(added.producer_id, added.epoch, added.marker)
        size = len(batch) - ENTRY_PREFIX_BYTES
        BATCH_HEADER_TO_LEADER_EPOCH.pack_into(batch, 0, cut.end_offset + number, size, 0)
        table = BatchTable()
        kernel.scan(batch, 0, True, table)
        yield Rows(0, memoryview(batch), table, 0, len(table))
