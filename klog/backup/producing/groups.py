"""Sets the offsets of groups in a cluster to where they were, by the new offsets of records."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.backup.moment.decisions import TRANSACTION_TOPIC
from klog.backup.producing.offset_map import OffsetMap
from klog.backup.producing.writing import NO_PARTITION
from klog.backup.restoring.batches import PieceSource, Rows, read_batches
from klog.backup.restoring.plan import PlannedPartition
from klog.backup.restoring.state_records import committed_offsets
from klog.client.cluster import Cluster
from klog.client.errors import RefusedError
from klog.client.groups import CommittedOffset, commit_offsets, commit_request
from klog.formats.constants import ENTRY_PREFIX_BYTES
from klog.formats.errors import KlogError
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.formats.packed import BATCH_HEADER_TO_LEADER_EPOCH
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.kernel.markers import build_marker
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode

_SEES_PARTITIONS_FROM: Final = 4
_WITHOUT_GROUPS: Final = (
    "have the right granted with klog acls add, or leave groups out: name the topics with --topic, without"
    " __consumer_offsets"
)
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


def old_offsets(source: PieceSource, planned: Sequence[PlannedPartition]) -> GroupOffsets:
    """The offsets that groups had for what comes back, by the new names of its topics.

    Raises `StorageError`, `FormatError`.
    """
    targets = {each.view.partition: each.target for each in planned}
    found: GroupOffsets = {}
    for each in planned:
        if each.view.partition.topic != CONSUMER_OFFSETS:
            continue
        for group_id, offsets in committed_offsets(str(each.view.partition), _rows(source, each)).items():
            for partition, committed in offsets.items():
                target = targets.get(TopicPartition(*partition))
                if target is not None and not is_of_brokers(target.topic):
                    found.setdefault(group_id, {})[target] = CommittedOffset(
                        committed.offset, metadata=committed.metadata
                    )
    return found


def translated_offsets(groups: GroupOffsets, maps: Mapping[TopicPartition, OffsetMap]) -> GroupOffsets:
    """Where groups go on: each offset by the map of its partition."""
    return {
        group_id: {
            target: committed._replace(offset=maps[target].translated(committed.offset))
            for target, committed in offsets.items()
        }
        for group_id, offsets in groups.items()
    }


def require_right_to_commit(cluster: Cluster, groups: GroupOffsets, existing: Container[str]) -> None:
    """Ask by commits for partitions that no topic has: brokers look for the rights first, and keep nothing.

    Any broker answers, as no coordinator is asked. Brokers before Kafka 2.0 look only whether the topic is
    there, so that those that are `existing` are not asked for. Raises `RefusedError`, `ChannelError`.
    """
    connection = cluster.any_connection()
    sees_partitions = connection.version_of(ApiKey.OFFSET_COMMIT) >= _SEES_PARTITIONS_FROM
    for group_id, offsets in sorted(groups.items()):
        topics = {each.topic for each in offsets if sees_partitions or each.topic not in existing}
        nowhere = {TopicPartition(topic, NO_PARTITION): CommittedOffset(0) for topic in sorted(topics)}
        if not nowhere:
            continue
        for (topic, _), code in commit_request(connection, group_id, nowhere).items():
            error = RefusedError(
                f"offsets of group {group_id} for {topic}", code, cure=_WITHOUT_GROUPS, right="Read"
            )
            if error.is_of_rights:
                raise error


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
