"""`klog metadata`: shows, compares, checks and converts a cluster's metadata, without a broker."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands.offline.metadata_convert import convert
from klog.commands.offline.metadata_properties import properties
from klog.commands.offline.metadata_reading import SOURCE_HELP, ReadOptions, Source
from klog.commands.shared.messages import print_line
from klog.commands.shared.option_sets import CommandGroup, flag, optional, valued
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.terminal import count_of
from klog.formats.errors import UsageError
from klog.jobs.garbage import without_collections

if TYPE_CHECKING:
    from klog.cluster_metadata.comparison import Difference
    from klog.cluster_metadata.consistency import Problem

app = CommandGroup(
    name="metadata",
    help=(
        "Show, compare, check and convert a cluster's metadata: ZooKeeper, klog's own tree, KRaft, JSON.\n\n"
        "    Needs no broker. A source is recognised by looking at it, and is not changed.\n\n"
        "    Examples:\n\n"
        "    klog metadata show zk1:2181/kafka\n\n"
        "    klog metadata show /var/lib/kafka -o json --secrets > cluster.json\n\n"
        "    klog metadata diff cluster.json /var/lib/kafka\n\n"
        "    klog metadata check /var/lib/kafka\n\n"
        "    klog metadata properties server.properties --write kraft.properties\n\n"
        "    klog metadata convert zk1:2181 --to kraft --config server.properties"
    ),
    add_completion=False,
    rich_markup_mode=None,
)


class ShowFormat(StrEnum):
    """How `show` prints."""

    TABLE = "table"
    JSON = "json"


@app.command("show")
@without_collections()
def show(
    source: Source,
    read: ReadOptions,
    output: ShowFormat = optional(
        ShowFormat.TABLE,
        "table: for people. json: all of it, stable, for version control and `diff`.",
        "--output",
        "-o",
    ),
    secrets: bool = flag("Write passwords and credentials into the JSON, too."),
) -> None:
    """Show a cluster's metadata: topics and partitions, configs, ACLs, users, quotas, brokers.

    Passwords and credentials are hidden. The metadata of a KRaft directory is its latest whole snapshot and
    the log after it. Of several KRaft directories, the one counts that would win the quorum's election.

    Examples:

    klog metadata show zk1:2181/kafka
    klog metadata show /var/lib/kafka -o json --secrets > cluster.json
    klog metadata show /c1/meta,/c2/meta,/c3/meta
    """
    from klog.cluster_metadata import json_form
    from klog.commands.offline.metadata_tables import show_cluster

    if secrets and output is not ShowFormat.JSON:
        raise UsageError("--secrets is for -o json only")
    reading = read.read(source)
    if output is ShowFormat.JSON:
        sys.stdout.write(json_form.encode(reading.cluster, secrets=secrets).decode())
    else:
        show_cluster(reading)


@app.command("diff")
@without_collections()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=SOURCE_HELP, show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    read: ReadOptions,
    output: OutputOptions,
    only: str | None = valued("KIND,...", "Compare only these kinds: topic, partition, config, acl, ..."),
) -> None:
    """Compare two clusters' metadata, item by item. The exit code is 0 if they are the same, else 1.

    The two may have different forms. A secret that one of them lacks is no difference.

    Examples:

    klog metadata diff cluster.json zk1:2181
    klog metadata diff /backup/kafka /var/lib/kafka --only topic,config -o jsonl
    """
    from klog.cluster_metadata.comparison import differences

    wanted = _kinds(only)
    found = [
        each for each in differences(read.read(a).cluster, read.read(b).cluster) if each.item.kind in wanted
    ]
    output.show([_difference(each) for each in found])
    if output.for_people:
        print_line(f"{count_of(len(found), 'difference')}" if found else "the metadata is the same")
    if found:
        raise typer.Exit(1)


def _kinds(text: str | None) -> frozenset[str]:
    from klog.cluster_metadata.comparison import KINDS

    named = frozenset(KINDS if text is None else text.split(","))
    unknown = sorted(named.difference(KINDS))
    if unknown:
        raise UsageError(f"--only {unknown[0]} is unknown", cure=f"one of {', '.join(KINDS)}")
    return named


def _difference(found: Difference) -> dict[str, object]:
    kind, name, member = found.item
    return {"kind": kind, "name": name, "member": member, "a": found.a, "b": found.b}


@app.command("check")
@without_collections()
def check(
    source: Source,
    read: ReadOptions,
    output: OutputOptions,
    log_dirs: str | None = valued(
        "DIR,...", "All log directories of one broker, to compare with; SOURCE itself if that is one."
    ),
    broker: int | None = valued("ID", "The broker's id, if meta.properties has none."),
) -> None:
    """Say what in the metadata would keep a broker from starting, and what differs from its log directories.

    Finds partitions without a directory, directories without an owner, topic ids that differ, ISRs and
    leaders that contradict the replicas, and invalid configs. The exit code is 1 if there are problems.

    Examples:

    klog metadata check /var/lib/kafka
    klog metadata check zk1:2181 --log-dirs /data1/kafka,/data2/kafka
    """
    from klog.cluster_metadata.consistency import problems_of
    from klog.cluster_metadata.directory_check import directory_problems, has_partitions

    cluster = read.read(source).cluster
    directories = log_dirs.split(",") if log_dirs else [source] if has_partitions(source) else []
    found = list(problems_of(cluster))
    if directories:
        found += directory_problems(cluster, directories, broker)
    output.show([_problem(each) for each in found])
    if output.for_people:
        compared = f", compared with {', '.join(directories)}" if directories else ""
        problems = count_of(len(found), "problem") if found else "no problems"
        topics = count_of(len(cluster.topics), "topic")
        print_line(f"{topics}, {count_of(len(list(cluster.partitions)), 'partition')}{compared}: {problems}")
    if found:
        raise typer.Exit(1)


def _problem(found: Problem) -> dict[str, object]:
    return {"where": found.where, "problem": found.what}


app.command("properties")(properties)
app.command("convert")(convert)
