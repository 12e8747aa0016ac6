"""`klog restore --bootstrap-server`: brings records and groups back into a running cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from klog.commands.offline.restore_output import (
    Planned,
    note_damage,
    row_of,
    say_what_would,
    summary,
    working,
)
from klog.commands.shared.cells import zoned_time
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_error, print_line, print_note
from klog.commands.shared.option_sets import option_set, valued
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.terminal import count_of

if TYPE_CHECKING:
    from klog.backup.producing.run import Produced, ProducingOptions
    from klog.backup.producing.topics import TargetTopic


@option_set("Connection")
class TargetConnection(ConnectionOptions):
    """The cluster to write to. Only the command line names it.

    With a variable that was set for other commands, a restore without `--to` would write into that cluster.
    """

    bootstrap_server: str | None = valued(
        "HOST:PORT",
        "A broker of the running cluster that gets the records, or several with commas. [default: the"
        " profile's]",
        "--bootstrap-server",
        "-b",
    )
    profile: str | None = valued("NAME", "The connection settings of this name (`klog profile add`).")

    @property
    def names_target(self) -> bool:
        """Whether records go into a running cluster."""
        return self.bootstrap_server is not None or self.profile is not None


def restore_into_cluster(
    planned: Planned,
    connection: TargetConnection,
    options: ProducingOptions,
    output: OutputOptions,
    *,
    dry_run: bool,
    quiet: bool,
) -> bool:
    """Produce what was planned, or only make all checks and say what would be produced.

    Whether all groups could be set.
    """
    from klog.admin import connect
    from klog.backup.producing.groups import is_of_brokers
    from klog.backup.producing.run import prepare, run_producing
    from klog.backup.restoring.request import metadata_of
    from klog.backup.restoring.selection import RepositoryPieces

    plan = planned.plan
    data = tuple(each for each in plan.partitions if not is_of_brokers(each.view.partition.topic))
    shown = replace(plan, partitions=data)
    rows = [row_of(each, text=output.for_people) for each in data]
    if output.for_people and not quiet:
        output.show(rows)
    settings = connection.settings()
    known = metadata_of(planned.repository, planned.manifest)
    if dry_run:
        with connect.cluster(settings) as cluster:
            prepared = prepare(cluster, RepositoryPieces(planned.repository), plan, known, options)
        say_what_would(shown, planned.read_s, output, rows)
        _note_topics(prepared.topics)
        return True
    with working("Restoring", shown.size_bytes, quiet=quiet) as advance:
        produced = run_producing(
            lambda: connect.cluster(settings),
            RepositoryPieces(planned.repository),
            plan,
            known,
            options,
            advance,
        )
    if not output.for_people:
        ends = {each.target: produced.maps[each.target].new_end for each in data}
        output.show(
            [{**row, "newEndOffset": ends[each.target]} for row, each in zip(rows, data, strict=True)]
        )
    note_damage(shown)
    for loss in produced.losses:
        print_note(f"not restored: {loss}")
    for failure in produced.groups.failures:
        print_error(failure)
    if output.for_people and not quiet:
        print_line(f"{summary(shown)} as of {zoned_time(plan.moment_ms)}: {_what_came(produced, options)}")
    return not produced.groups.failures


def _what_came(produced: Produced, options: ProducingOptions) -> str:
    before = f" ({produced.found_records:,} were there)" if produced.found_records else ""
    groups = count_of(produced.groups.groups, "group")
    return (
        f"{count_of(produced.records, 'record')}{before}, offsets of {groups};"
        f" {options.mapping} says which offsets records have now"
    )


def _note_topics(topics: list[TargetTopic]) -> None:
    for topic in topics:
        if topic.exists:
            print_note(f"topic {topic.name} exists, and its configs stay as they are")
        for loss in topic.losses:
            print_note(f"would not be restored: {loss}")
