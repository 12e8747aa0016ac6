"""`klog adopt`: puts the topics of partition directories back into metadata that has lost them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands._messages import print_line, print_report
from klog.commands._offline_options import DryRun
from klog.commands._terminal import count_of

if TYPE_CHECKING:
    from klog.server.adoption import AdoptionPlan

NO_ARGS_IS_HELP = False


def adopt(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="The broker's server.properties."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="KEY=VALUE", help="A config; it takes precedence over the file."
        ),
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="Partitions that have no directory come back empty."),
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Put the topics of partition directories back into metadata that has lost them.

    The broker must be stopped. Give the same options as to `klog serve`. Each directory that the metadata
    does not know gets its topic back, with the topic's id and a leader epoch above that of its records.
    Adopted topics keep all records until you set their retention again, because their configs are lost. The
    exit code is 1 if a directory stays without an owner.

    Examples:

    klog adopt --dry-run

    klog adopt --config /etc/kafka/server.properties
    """
    from klog.server.adoption_run import run_adoption
    from klog.server.run import read_config

    found = read_config(None if config is None else str(config), tuple(options or ()))
    plan = run_adoption(found, dry_run=dry_run, allow_missing=allow_missing)
    _show(plan, dry_run=dry_run)
    if plan.left:
        raise typer.Exit(1)


def _show(plan: AdoptionPlan, *, dry_run: bool) -> None:
    from klog.server.unowned_logs import unowned_lines

    what = "would be adopted" if dry_run else "adopted"
    for each in plan.adoptions:
        topic = each.assignment
        empty = f", of them empty: {', '.join(map(str, each.empty))}" if each.empty else ""
        topic_id = "no topic id" if topic.topic_id is None else f"topic id {topic.topic_id}"
        print_line(f"{topic.topic}: {count_of(len(each.epochs), 'partition')} {what}{empty} ({topic_id})")
    for partition, state in plan.raised.items():
        print_line(
            f"{partition}: leader epoch {'would be ' if dry_run else ''}{state.leader_and_isr.leader_epoch}"
        )
    for line in unowned_lines(plan.left):
        print_report(line)
    if not (plan.adoptions or plan.raised or plan.left):
        print_report("every partition directory has an owner")
    if plan.adoptions and not dry_run:
        print_report(
            "start the broker, then set the topics' configs: they keep all records until retention.ms and"
            " retention.bytes are set"
        )
