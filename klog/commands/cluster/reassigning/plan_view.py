"""Shows on stderr what a plan means: a line for each broker or directory, and what moves in all."""

from __future__ import annotations

import sys

from klog.admin.reassign.dirs import DirPlan
from klog.admin.reassign.plan import Plan
from klog.commands.shared.cells import human_bytes
from klog.commands.shared.messages import print_note, print_report
from klog.commands.shared.tables import show_table
from klog.commands.shared.terminal import count_of


def show_plan(plan: Plan, partitions: int) -> None:
    """Show what changes for the brokers that hold replicas before or after."""
    shown = [each for each in plan.brokers if each.is_target or each.replicas_before]
    with_racks = any(each.rack is not None for each in shown)
    rows = [
        {
            "broker": each.broker_id,
            **({"rack": each.rack} if with_racks else {}),
            "replicas": _change(each.replicas_before, each.replicas_after),
            "leaders": _change(each.leaders_before, each.leaders_after),
            "size": _size_change(each.bytes_before, each.bytes_after),
            "in": human_bytes(each.in_bytes),
            "out": human_bytes(each.out_bytes),
        }
        for each in shown
    ]
    show_table(rows, stream=sys.stderr)
    print_report(
        f"{len(plan.changes)} of {count_of(partitions, 'partition')} change, "
        f"{count_of(plan.added_replicas, 'new replica')}"
    )
    _report_movement(plan.moved_bytes, plan.least_bytes)
    print_report(
        "bytes: the fullest broker is "
        f"{plan.imbalance(lambda each: each.bytes_before):.1%} above the mean now, "
        f"{plan.imbalance(lambda each: each.bytes_after):.1%} afterwards"
    )
    print_report(
        "preferred leaders: the broker with most is "
        f"{plan.imbalance(lambda each: each.leaders_before):.1%} above the mean now, "
        f"{plan.imbalance(lambda each: each.leaders_after):.1%} afterwards"
    )
    if plan.too_few_racks:
        print_note(
            f"{count_of(plan.too_few_racks, 'partition')} on fewer racks than possible; "
            "a plan with --brokers puts that right"
        )


def show_dir_plan(plan: DirPlan) -> None:
    """Show what changes for each log directory."""
    rows = [
        {
            "broker": each.broker_id,
            "log-dir": each.log_dir,
            "replicas": _change(each.found.replicas_before, each.found.replicas_after),
            "size": _size_change(each.found.bytes_before, each.found.bytes_after),
            "in": human_bytes(each.found.in_bytes),
            "out": human_bytes(each.found.out_bytes),
        }
        for each in plan.dirs
    ]
    show_table(rows, stream=sys.stderr)
    print_report(f"{count_of(plan.moved_replicas, 'replica')} to another directory")
    _report_movement(plan.moved_bytes, plan.least_bytes)


def _report_movement(moved_bytes: int, least_bytes: int) -> None:
    if not moved_bytes:
        print_report("nothing to copy")
        return
    ratio = moved_bytes / least_bytes if least_bytes else 1.0
    print_report(
        f"{human_bytes(moved_bytes)} to copy; no plan that is as even copies less than "
        f"{human_bytes(least_bytes)} (ratio {ratio:.2f})"
    )


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} -> {after}"


def _size_change(before: int, after: int) -> str:
    return human_bytes(before) if before == after else f"{human_bytes(before)} -> {human_bytes(after)}"
