"""Decides the new offsets of a group by one rule, and sets them; reads and writes them as CSV.

Rules: KIP-122 and `kafka-consumer-groups --reset-offsets`. Offsets outside the log become its first or its
end offset. A group with members cannot be reset.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from klog.admin.groups import DEAD, EMPTY, led_partitions
from klog.admin.requests.group_descriptions import describe_groups
from klog.client import groups as client
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.client.groups import CommittedOffset
from klog.client.offsets import NOT_FOUND, list_offsets
from klog.formats.errors import FormatError, KlogError, UsageError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.offset_times import EARLIEST, LATEST

Offsets = Mapping[TopicPartition, int]
_COLUMNS: Final = ("group", "topic", "partition", "offset")
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


class LogRange(NamedTuple):
    """The first offset of a log, and the next to be written."""

    first: int
    end: int

    def clamp(self, offset: int) -> int:
        """The nearest offset that the log has, or its end."""
        return min(max(offset, self.first), self.end)


class Known(NamedTuple):
    """What a rule can look at: ranges of logs, what the group has committed, and offsets of times."""

    ranges: Mapping[TopicPartition, LogRange]
    committed: Offsets
    offset_at: Callable[[int], Offsets]


Rule = Callable[[TopicPartition, Known], int]
"""The new offset of a partition. Raises ClientError."""


def to_earliest(partition: TopicPartition, known: Known) -> int:
    """The first offset."""
    return known.ranges[partition].first


def to_latest(partition: TopicPartition, known: Known) -> int:
    """The end."""
    return known.ranges[partition].end


def to_current(partition: TopicPartition, known: Known) -> int:
    """The committed offset, or the end if there is none."""
    return known.ranges[partition].clamp(known.committed.get(partition, known.ranges[partition].end))


def to_offset(offset: int) -> Rule:
    """One offset for all partitions."""
    return lambda partition, known: known.ranges[partition].clamp(offset)


def shift_by(offsets: int) -> Rule:
    """So many offsets forward, or back if negative, from the committed one."""

    def rule(partition: TopicPartition, known: Known) -> int:
        if partition not in known.committed:
            raise ClientError(
                f"the group has no committed offset for {partition}, so it cannot be shifted",
                cure="--to-earliest, --to-latest or --to-offset",
            )
        return known.ranges[partition].clamp(known.committed[partition] + offsets)

    return rule


def to_time(time_ms: int) -> Rule:
    """The first record of this time or later, or the end if there is none."""

    def rule(partition: TopicPartition, known: Known) -> int:
        offset = known.offset_at(time_ms)[partition]
        return known.ranges[partition].end if offset == NOT_FOUND else offset

    return rule


def by_duration(text: str, now_ms: int) -> Rule:
    """The first record of so long ago or later; ISO 8601, like PT1H30M or P7D. Raises UsageError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groupdict().values()):
        raise UsageError(f"--by-duration {text!r} is no duration", cure="P7D, PT1H30M, P1DT2H")
    parts = {name: float(value) for name, value in found.groupdict().items() if value}
    return to_time(now_ms - int(timedelta(**parts).total_seconds() * 1000))


def parse_datetime(text: str) -> int:
    """The ms since the epoch of Kafka's `YYYY-MM-DDTHH:mm:SS.sss`; UTC without a time zone.

    Raises UsageError.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"--to-datetime {text!r} is no time", cure="2024-05-01T12:00:00.000, in UTC; or with +02:00"
        ) from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def from_file(wanted: Offsets) -> Rule:
    """The offset that a file gives for each partition."""
    return lambda partition, known: known.ranges[partition].clamp(wanted[partition])


def plan_reset(
    cluster: Cluster,
    group_id: str,
    rule: Rule,
    partitions: Sequence[TopicPartition] | None,
) -> dict[TopicPartition, int]:
    """The new offset of each partition, of all that the group has committed for None. Changes nothing.

    Raises ClientError, also if the group has members, and ChannelError.
    """
    described = describe_groups(cluster, [group_id])[group_id]
    if isinstance(described, KlogError):
        is_unknown = isinstance(described, RefusedError) and described.code is ErrorCode.GROUP_ID_NOT_FOUND
        if not is_unknown:
            raise described
    elif (state := described[0].state) not in (EMPTY, DEAD, ""):
        raise ClientError(
            f"group {group_id} has members (state {state}), its offsets cannot be set",
            cure="stop them, or wait until their session times out",
        )
    answer = client.fetch_offsets(cluster, [group_id])[group_id]
    if isinstance(answer, KlogError):
        raise answer
    committed = {partition: found.offset for partition, found in answer.items()}
    wanted = sorted(committed) if partitions is None else partitions
    led = led_partitions(cluster, wanted)
    if missing := [partition for partition in wanted if partition not in led]:
        raise UnknownTopicError(f"{missing[0]} does not exist or has no leader")
    first = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    end = list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    times: dict[int, Offsets] = {}

    def offset_at(time_ms: int) -> Offsets:
        if time_ms not in times:
            times[time_ms] = list_offsets(cluster, dict.fromkeys(wanted, max(time_ms, 0)))
        return times[time_ms]

    ranges = {partition: LogRange(first[partition], end[partition]) for partition in wanted}
    known = Known(ranges, committed, offset_at)
    return {partition: rule(partition, known) for partition in wanted}


def set_offsets(cluster: Cluster, group_id: str, offsets: Offsets) -> None:
    """Set the offsets of a group without members. Raises ClientError, ChannelError."""
    wanted = {partition: CommittedOffset(offset) for partition, offset in offsets.items()}
    if not wanted:
        return
    for partition, code in client.commit_offsets(cluster, group_id, wanted).items():
        if code is not ErrorCode.NONE:
            raise RefusedError(f"offset of group {group_id} for {partition}", code)


def to_csv(offsets: Mapping[str, Offsets]) -> str:
    """The lines `topic,partition,offset`, for several groups with the group in front, as Kafka's tool."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group_id, each in offsets.items():
        for (topic, number), offset in each.items():
            row = [topic, number, offset]
            writer.writerow(row if len(offsets) == 1 else [group_id, *row])
    return out.getvalue()


def from_csv(lines: Iterable[str], groups: Sequence[str], name: str) -> dict[str, dict[TopicPartition, int]]:
    """The offsets of each group in such lines; a single group need not be named. Raises FormatError."""
    found: dict[str, dict[TopicPartition, int]] = {group: {} for group in groups}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row or [cell.strip().lower() for cell in row] in (list(_COLUMNS), list(_COLUMNS[1:])):
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == len(_COLUMNS) - 1 and len(groups) == 1:
            cells = [groups[0], *cells]
        if len(cells) != len(_COLUMNS) or not (cells[2].isdecimal() and cells[3].isdecimal()):
            expected = ",".join(_COLUMNS if len(groups) > 1 else _COLUMNS[1:])
            raise FormatError(
                f"line {number} is not {expected}", file=name, cure="--export prints such lines"
            )
        if cells[0] in found:
            found[cells[0]][TopicPartition(cells[1], int(cells[2]))] = int(cells[3])
    return found
