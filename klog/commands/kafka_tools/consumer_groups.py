"""Prints consumer groups as `kafka-consumer-groups` of Kafka 3.9 does, for scripts that read its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from klog.admin.groups import Group, Member, PartitionLag
from klog.client.groups import ListedGroup
from klog.formats.names import TopicPartition, partitions_by_topic

_NONE: Final = "-"
_LEAST: Final = 15

# A width of 0 is that of the longest value, 15 at least.
_Columns = Sequence[tuple[str, int]]
_OFFSETS: Final = (
    ("GROUP", 0),
    ("TOPIC", 0),
    ("PARTITION", 10),
    ("CURRENT-OFFSET", 15),
    ("LOG-END-OFFSET", 15),
    ("LAG", 15),
    ("CONSUMER-ID", 0),
    ("HOST", 0),
    ("CLIENT-ID", -1),
)
_STATES: Final = (
    ("GROUP", 25),
    ("COORDINATOR (ID)", 25),
    ("ASSIGNMENT-STRATEGY", 20),
    ("STATE", 15),
    ("#MEMBERS", -1),
)


def _table(columns: _Columns, rows: Iterable[Sequence[object]]) -> Iterator[str]:
    texts = [[_NONE if cell is None else str(cell) for cell in row] for row in rows]
    widths = []
    for place, (title, width) in enumerate(columns):
        cells = [title, *(row[place] for row in texts)]
        widths.append(0 if width < 0 else max(width or _LEAST, *map(len, cells)))
    for row in ([title for title, _ in columns], *texts):
        yield " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


def listed(groups: Iterable[ListedGroup], *, types: bool, states: bool) -> Iterator[str]:
    """The lines of `--list`, with types and states if they are asked for."""
    found = list(groups)
    if not types and not states:
        yield from (group.group_id for group in found)
        return
    width = max([_LEAST, *(len(group.group_id) for group in found)]) + 10
    titles = ["GROUP", *(["TYPE"] if types else []), *(["STATE"] if states else [])]
    rows = [
        [
            group.group_id,
            *([group.type.title() or "Unknown"] if types else []),
            *([group.state or "Unknown"] if states else []),
        ]
        for group in found
    ]
    for row in (titles, *rows):
        yield " ".join(cell.ljust(20 if place else width) for place, cell in enumerate(row))


def offsets(group: Group) -> Iterator[str]:
    """The lines of `--describe --offsets`."""
    if group.partitions:
        yield ""
        yield from _table(_OFFSETS, [_offset_row(group, each) for each in group.partitions])


def _offset_row(group: Group, each: PartitionLag) -> list[object]:
    member = each.member
    return [
        group.group_id,
        each.partition.topic,
        each.partition.partition,
        None if each.committed is None else each.committed.offset,
        each.log_end_offset,
        each.lag,
        None if member is None else member.consumer_id,
        None if member is None else member.host,
        None if member is None else member.client_id,
    ]


def members(group: Group, *, verbose: bool) -> Iterator[str]:
    """The lines of `--describe --members`."""
    static = any(member.instance_id for member in group.members)
    columns: list[tuple[str, int]] = [("GROUP", 0), ("CONSUMER-ID", 0)]
    columns += [("GROUP-INSTANCE-ID", 17)] if static else []
    columns += [("HOST", 0), ("CLIENT-ID", 0), ("#PARTITIONS", 15)]
    columns += [("ASSIGNMENT", -1)] if verbose else []
    yield ""
    for line in _table(columns, [_member_row(group, each, static, verbose) for each in group.members]):
        yield line if verbose else f"{line} "


def _member_row(group: Group, member: Member, static: bool, verbose: bool) -> list[object]:
    return [
        group.group_id,
        member.consumer_id,
        *([member.instance_id or ""] if static else []),
        member.host,
        member.client_id,
        len(member.assignment),
        *([assignment_text(member.assignment)] if verbose else []),
    ]


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """The partitions by topic: `orders(0,1), prices(0)`."""
    found = partitions_by_topic(sorted(partitions))
    return ", ".join(f"{topic}({','.join(map(str, numbers))})" for topic, numbers in found.items()) or _NONE


def state(group: Group) -> Iterator[str]:
    """The lines of `--describe --state`."""
    coordinator = f"{group.coordinator}  ({group.coordinator_id})"
    yield ""
    yield from _table(
        _STATES, [[group.group_id, coordinator, group.assignor, group.state, len(group.members)]]
    )


def reset(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> Iterator[str]:
    """The lines of `--reset-offsets`."""
    rows: list[list[object]] = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]]
    for group, found in offsets.items():
        rows += [[group, topic, number, offset] for (topic, number), offset in found.items()]
    yield ""
    for row in rows:
        widths = (30, 30, 10, 15)
        yield " ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
