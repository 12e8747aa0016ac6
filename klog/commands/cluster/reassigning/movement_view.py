"""Shows what moves will do before they are begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klog.admin.reassign.execution import Limits
from klog.admin.reassign.movement import movement_of, shortages
from klog.admin.reassign.moves import Move
from klog.client.cluster import Cluster
from klog.commands.cluster.reassigning.progress_view import duration
from klog.commands.shared.cells import human_bytes
from klog.commands.shared.messages import print_note, print_report
from klog.commands.shared.terminal import count_of

_SHOWN: Final = 20


def show_movement(cluster: Cluster, moves: Sequence[Move], limits: Limits, *, all_of_them: bool) -> None:
    """Say on stderr what moves, how much, how long it takes, and what gets too few replicas.

    Raises ClientError, ChannelError.
    """
    movement = movement_of(moves)
    shown = moves if all_of_them else moves[:_SHOWN]
    for move in shown:
        print_report(f"{move.partition}: {_change(move)}")
    if len(shown) < len(moves):
        print_report(f"and {len(moves) - len(shown)} more (--dry-run shows all)")
    print_report(
        f"{count_of(len(moves), 'partition')}, {movement.copies} new "
        f"{'copy' if movement.copies == 1 else 'copies'}, {human_bytes(movement.copied_bytes)} to copy"
    )
    for broker in sorted({*movement.in_bytes, *movement.out_bytes, *movement.dir_bytes}):
        parts = [
            f"{human_bytes(sizes[broker])} {way}"
            for sizes, way in (
                (movement.in_bytes, "in"),
                (movement.out_bytes, "out"),
                (movement.dir_bytes, "between its directories"),
            )
            if sizes.get(broker)
        ]
        if parts:
            print_report(f"  broker {broker}: {', '.join(parts)}")
    least_s = movement.least_s(limits.between_brokers, limits.between_log_dirs)
    if least_s is not None:
        print_report(f"  at these throttles {duration(least_s)} at least")
    elif movement.copied_bytes:
        print_note("there is no throttle: copies take all the bandwidth that there is (--throttle BYTES)")
    for each in shortages(cluster, moves):
        print_note(
            f"{each.partition} will have {count_of(each.replicas, 'replica')}, but min.insync.replicas is "
            f"{each.min_isr}: producers with acks=all will be refused"
        )


def _change(move: Move) -> str:
    now = move.current if move.running_target is None else move.sources
    text = f"{_ids(now)} -> {_ids(move.target.replicas)}"
    if move.running_target is not None:
        text += (
            " (is moving there)"
            if not move.changes_replicas
            else f" (is moving to {_ids(move.running_target)})"
        )
    for replica, path in move.dir_moves.items():
        text += f", {path} on broker {replica.broker_id}"
    return f"{text}, {human_bytes(move.copied_bytes)}"


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
