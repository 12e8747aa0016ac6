"""The text of `klog diff` for people: for each partition its two replicas, the ranges, and the choice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from klog.commands.offline.comparing.rows import only_in, result
from klog.commands.shared.cells import human_time
from klog.commands.shared.messages import BOLD, columns_of, print_line, print_lines
from klog.commands.shared.tables import Row, show_table
from klog.commands.shared.terminal import count_of
from klog.formats.visible import visible
from klog.replicas.compare_logs import OffsetRange, RangeState
from klog.replicas.compare_partitions import DifferentRecord, PartitionDiff, PartitionPair
from klog.replicas.kept_replica import KeptReplica
from klog.replicas.replica_contents import ReplicaContents

_WORDS: Final = {
    "same": "the same batches",
    "other batches": "the same records in other batches",
    "cleaned": "the same, but for records that the cleaner removed",
    "damaged": "the same as far as they can be read",
}
_ARE_SAME: Final = ("are the same", "is the same")
_MOST_CHARACTERS: Final = 60
_LEAST_CHARACTERS: Final = 16
_LEFT_COLUMNS: Final = 31
"""The columns of offset and field, and the gaps, beside a field's two values."""


def show_one_sided(pair: PartitionPair) -> None:
    """Print that only one side has a partition."""
    print_line(f"{pair.partition}: {only_in(pair)}", word=f"{pair.partition}:", style=BOLD)


def show_diff(diff: PartitionDiff, *, details: bool) -> None:
    """Print the result for a partition; with `details` also the replicas, the ranges and the records."""
    names = dict.fromkeys(str(each.replica.partition) for _, each in _sides(diff.pair))
    name = " and ".join(names)
    print_line(f"{name}: {_headline(diff)}", word=f"{name}:", style=BOLD)
    if not details or not diff.range_count:
        return
    print_line("")
    show_table([_side(name, each) for name, each in _sides(diff.pair)], aside="directory")
    print_line("")
    show_table([_range(one) for one in diff.ranges])
    if diff.range_count > len(diff.ranges):
        print_line(f"and {count_of(diff.range_count - len(diff.ranges), 'more range')} (--limit)")
    if diff.records:
        print_line("")
        _show_records(diff)
    print_line("")
    print_lines(choice(diff))


def _headline(diff: PartitionDiff) -> str:
    found = result(diff)
    if not diff.range_count and not any(diff.damage):
        return "both are empty"
    if found == "different":
        return f"the first difference is at offset {diff.first_difference}"
    return _WORDS[found]


def _sides(pair: PartitionPair) -> list[tuple[str, ReplicaContents]]:
    return [(name, each) for name, each in (("A", pair.a), ("B", pair.b)) if each is not None]


def _side(name: str, contents: ReplicaContents) -> Row:
    return {
        "replica": name,
        "logStartOffset": contents.log_start_offset,
        "logEndOffset": contents.end_offset,
        "highWatermark": contents.replica.high_watermark,
        "leaderEpoch": contents.leader_epoch,
        "directory": contents.replica.directory,
    }


def _range(one: OffsetRange) -> Row:
    records: object = one.different_records + one.only_in_a + one.only_in_b
    why = one.reason
    if one.state is RangeState.CLEANED and one.same_records:
        why = f"{why}; {count_of(one.same_records, 'other')} between them {_ARE_SAME[one.same_records == 1]}"
    elif one.state in (RangeState.SAME, RangeState.OTHER_BATCHES):
        records = one.same_records
    return {
        "firstOffset": one.first_offset,
        "lastOffset": one.last_offset,
        "records": records,
        "state": str(one.state),
        "why": why,
    }


def choice(diff: PartitionDiff) -> Iterator[str]:
    """Sentences about the replica that Kafka would keep, and what happens to the other one."""
    kept = diff.kept
    common = kept.last_common_epoch
    epoch = (
        "they have no common leader epoch" if common is None else f"the last common leader epoch is {common}"
    )
    if kept.name is None:
        yield f"Neither is preferred: {kept.reason}; {epoch}."
    else:
        yield f"Kafka keeps {kept.name}: {kept.reason}; {epoch}."
        yield _truncation(diff, kept)
    if kept.truncation_offset is not None and (diff.first_difference or 0) < kept.truncation_offset:
        yield from _unnoticed(diff, kept.truncation_offset)


def _truncation(diff: PartitionDiff, kept: KeptReplica) -> str:
    a, b = diff.pair.a, diff.pair.b
    if a is None or b is None:
        return ""
    leader, other, name = (a, b, "B") if kept.name == "A" else (b, a, "A")
    if other.end_offset < leader.log_start_offset:
        return f"As a follower {name} deletes its log and begins at offset {leader.log_start_offset}."
    if kept.truncation_offset is None:
        return (
            f"As a follower {name} truncates its log to its high watermark, which its directory does not say."
        )
    lost = other.end_offset - kept.truncation_offset
    if not lost:
        return f"As a follower {name} truncates nothing."
    return (
        f"As a follower {name} truncates its log to offset {kept.truncation_offset}, from {other.end_offset}."
    )


def _unnoticed(diff: PartitionDiff, truncation_offset: int) -> Iterator[str]:
    """A warning if there are different records below the offset to which a follower truncates."""
    different = next((one for one in diff.ranges if one.different_records), None)
    if different is not None and different.first_offset < truncation_offset:
        yield (
            f"The records differ from offset {different.first_offset} on: a follower does not notice that, "
            "and keeps its own records there."
        )


def _show_records(diff: PartitionDiff) -> None:
    columns = columns_of(sys.stdout)
    width = _MOST_CHARACTERS if columns is None else max((columns - _LEFT_COLUMNS) // 2, _LEAST_CHARACTERS)
    show_table([row for one in diff.records for row in _fields(one, width)])
    if diff.record_count > len(diff.records):
        print_line(f"and {count_of(diff.record_count - len(diff.records), 'more record')} (--limit)")


def _fields(one: DifferentRecord, width: int) -> Iterator[Row]:
    """A row for each field that differs, as it is in both; of a record that one lacks the key and value."""
    for name in one.fields or ("key", "value"):
        a, b = (None if record is None else _shown(name, record[name]) for record in (one.a, one.b))
        if a is not None and b is not None:
            a, b = _from_difference(a, b, width)
        yield {
            "offset": one.offset,
            "field": name,
            "a": "(no record)" if a is None else _cut(a, width),
            "b": "(no record)" if b is None else _cut(b, width),
        }


def _shown(name: str, value: object) -> str:
    """The value of a field in one line: keys and values in quotes, or in base64 if they are no text."""
    if name == "timestamp":
        return human_time(int(str(value)))
    if name == "headers" and isinstance(value, list):
        return " ".join(f"{_shown('key', key)}={_shown('value', each)}" for key, each in value) or "-"
    if value is None:
        return "null"
    if isinstance(value, dict):
        return f"base64:{value['base64']}"
    if name in ("key", "value"):
        return visible(f'"{value}"')
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_difference(a: str, b: str, width: int) -> tuple[str, str]:
    """Both texts without a start that is the same in both, if that would leave no room for the difference."""
    shared = min(len(a), len(b))
    common = next((at for at in range(shared) if a[at] != b[at]), shared)
    if common < width // 2 or max(len(a), len(b)) <= width:
        return a, b
    start = common - width // 4
    return f"\u2026{a[start:]}", f"\u2026{b[start:]}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}\u2026"
