"""Prints consumer groups for people: a line for each group, and a table of its partitions or members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import typer

from klog.admin.groups import EMPTY, STABLE, Group, PartitionLag
from klog.commands.cluster.group_options import DescribeOptions
from klog.commands.kafka_tools.consumer_groups import assignment_text
from klog.commands.shared.messages import print_line, print_note
from klog.commands.shared.tables import show_table
from klog.commands.shared.terminal import count_of
from klog.formats.names import TopicPartition


def note_state(group: Group) -> None:
    """Say on stderr if nobody reads, or if it is just changing who reads what."""
    if group.state == EMPTY:
        print_note(f"group {group.group_id} has no active members")
    elif group.state != STABLE:
        print_note(f"group {group.group_id} is rebalancing")


def show(group: Group, shown: DescribeOptions, *, first: bool) -> None:
    """Print a group with its partitions or members."""
    if not first:
        typer.echo()
    lags = [each.lag for each in group.partitions if each.lag is not None]
    total = "" if shown.members or not lags else f"  lag {sum(lags)}"
    assignor = f"  {group.assignor}" if group.assignor else ""
    members = count_of(len(group.members), "member")
    print_line(f"{group.group_id}  {group.state}{assignor}  {members}{total}")
    if shown.members:
        show_table(list(_member_rows(group, verbose=shown.verbose)), aside="assignment")
    else:
        show_table([_offset_row(each, verbose=shown.verbose) for each in group.partitions])


def _offset_row(each: PartitionLag, *, verbose: bool) -> dict[str, object]:
    found = each.to_json()
    row = {
        "topic": found["topic"],
        "partition": found["partition"],
        "current-offset": found["currentOffset"],
        "log-end-offset": found["logEndOffset"],
        "lag": found["lag"],
        "consumer-id": found["consumerId"],
        "host": found["host"],
        "client-id": found["clientId"],
    }
    return row | {"leader-epoch": found["leaderEpoch"], "metadata": found["metadata"]} if verbose else row


def _member_rows(group: Group, *, verbose: bool) -> Iterator[dict[str, object]]:
    for member in group.members:
        row: dict[str, object] = {
            "consumer-id": member.consumer_id,
            "group-instance-id": member.instance_id,
            "host": member.host,
            "client-id": member.client_id,
            "partitions": len(member.assignment),
        }
        yield row | {"assignment": assignment_text(member.assignment)} if verbose else row


def state_row(group: Group) -> dict[str, object]:
    """The row of a group in the table of states."""
    return {
        "group": group.group_id,
        "coordinator": f"{group.coordinator} ({group.coordinator_id})",
        "assignment-strategy": group.assignor or None,
        "state": group.state,
        "members": len(group.members),
    }


def reset_rows(planned: Mapping[str, Mapping[TopicPartition, int]]) -> Iterator[dict[str, object]]:
    """A row for each new offset."""
    for group, offsets in planned.items():
        for (topic, number), offset in offsets.items():
            yield {"group": group, "topic": topic, "partition": number, "newOffset": offset}
