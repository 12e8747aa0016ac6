"""`klog metadata convert`: writes a cluster's metadata in another form, after a plan that says all of it."""

from __future__ import annotations

import os
import time
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from klog.commands.offline.metadata_reading import SOURCE_HELP, ReadOptions
from klog.commands.shared.changing import ChangeOptions
from klog.commands.shared.option_sets import argument, flag, optional, valued
from klog.commands.shared.terminal import confirmed, count_of
from klog.formats.errors import StorageError, UsageError
from klog.jobs.garbage import without_collections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klog.cluster_metadata.consistency import Problem
    from klog.cluster_metadata.conversion_plan import Plan
    from klog.commands.offline.old_segments import Conversion


class ToForm(StrEnum):
    """A form to write; a test holds it equal to those that can be written."""

    KRAFT = "kraft"
    JSON = "json"
    TREE = "tree"
    ZOOKEEPER = "zookeeper"


@without_collections()
def convert(
    read: ReadOptions,
    change: ChangeOptions,
    source: str | None = argument("SOURCE", SOURCE_HELP),
    target: str | None = argument(
        "[TARGET]",
        "Where to write: a new file (json), the first of log.dirs (tree), host:port/chroot (zookeeper).",
    ),
    from_source: str | None = valued("SOURCE", "The source, in place of the first argument.", "--from"),
    to: ToForm = optional(
        ToForm.KRAFT,
        "kraft: directories of Kafka 3.9 or 4. json: a file. tree: klog's own tree in a log directory."
        " zookeeper: an empty one.",
        "--to",
    ),
    config: list[str] | None = valued(
        "FILE",
        "The properties file of a node whose directories are here; again for each node. One for ZooKeeper is"
        " translated into FILE.kraft; with --to zookeeper or tree, one of KRaft is translated back.",
        "--config",
        "-c",
    ),
    metadata_version: str | None = valued(
        "VERSION",
        "Of the Kafka that will start: 4.1, 4.0, 3.9, or a level's name (4.0-IV3). [default: 4.1]",
        show_default=False,
    ),
    feature: list[str] | None = valued("NAME=LEVEL", "Another feature's level, as for kafka-storage."),
    roles: str | None = valued(
        "ROLE,...", "For a file of a broker with ZooKeeper: broker, controller or both."
    ),
    node_id: int | None = valued("ID", "The node's id, if such a file has none.", least=0),
    voters: str | None = optional(
        None, "For such a file: all controllers, as controller.quorum.voters has them."
    ),
    convert_segments: bool = flag(
        "Convert partitions with segments in message format 0 or 1 first, as klog convert --all does."
    ),
    ignore_problems: bool = flag("Go on although the plan shows problems. --yes alone does not."),
    yes: bool = flag("Write without asking.", "--yes", "-y"),
) -> None:
    """Write a cluster's metadata in another form: KRaft directories, a file, klog's tree, ZooKeeper.

    All nodes must be stopped. For KRaft, name the properties files with which the new nodes will start:
    process.roles, node.id, log.dirs, metadata.log.dir and the controllers' quorum are read from them.
    Directories may hold a broker's logs, which stay; the old meta.properties is kept as
    meta.properties.zookeeper. A server.properties for ZooKeeper is translated beside the old file, as by klog
    metadata properties. The command shows what it will write, how much, and what cannot go, and asks;
    without a terminal it needs --yes. Problems stop it, and so do segments in message format 0 or 1, which
    Kafka 4 does not read. A directory that has KRaft metadata is refused. At the end the command reads back
    what it wrote and compares it with the source and the log directories; the exit code is 1 if anything is
    not as the plan says. A command that was killed can be run again.

    Examples:

    klog metadata convert --from zookeeper://zk1:2181 --to kraft --config server.properties --dry-run
    klog metadata convert zk1:2181 --config server.properties --roles broker,controller --voters 0@kafka:9093
    klog metadata convert /var/lib/zookeeper --to kraft --metadata-version 4.0 --config controller.properties
    --config broker.properties
    klog metadata convert /var/lib/kafka cluster.json --to json
    klog metadata convert /var/lib/kafka zk1:2181/kafka --to zookeeper
    """
    from klog.cluster_metadata import conversion
    from klog.cluster_metadata.conversion_check import check
    from klog.cluster_metadata.conversion_plan import Target
    from klog.cluster_metadata.sources import read_source
    from klog.commands.offline.metadata_convert_output import differing, outcomes, show, show_differing
    from klog.commands.offline.metadata_properties import roles_of
    from klog.commands.offline.old_segments import conversions, convert_old, require_space
    from klog.config.kraft_properties import KRaftNode

    source, target = _places(source, target, from_source)
    begin_s = time.perf_counter()
    reading = read.read(source)
    access = read.access()
    plan = conversion.plan(
        reading,
        conversion.Form(to),
        Target(
            now_ms=time.time_ns() // 1_000_000,
            random_bytes=os.urandom,
            place=target,
            configs=tuple(config or ()),
            metadata_version=metadata_version,
            features=_features(feature or ()),
            node=KRaftNode(roles_of(roles), node_id, voters),
            access=access,
        ),
    )
    seconds = plan.writing_seconds(time.perf_counter() - begin_s)
    old = conversions(plan.logs)
    if change.for_people:
        show(plan, old, seconds)
    refusal = _refusal(source, plan, old, ignore_problems=ignore_problems, convert_segments=convert_segments)
    if refusal is not None:
        if not change.for_people:
            change.conclude(list(outcomes(plan, old, seconds, dry_run=True)))
        raise refusal
    require_space(old)
    found: list[Problem] = []
    if not change.dry_run:
        if not confirmed("Write this?", yes=yes):
            raise typer.Exit(1)
        convert_old(old, quiet=not change.for_people)
        plan.write()
        found = list(check(reading.cluster, plan, lambda place: read_source(place, access=access).cluster))
    done = "would be written" if change.dry_run else "written and read back"
    files = count_of(len(plan.steps), "tree" if to is ToForm.ZOOKEEPER else "file")
    rows = outcomes(plan, old, seconds, dry_run=change.dry_run)
    change.conclude([*rows, *differing(found)], summary=f"{files} {done}")
    if found:
        show_differing(found)
        raise typer.Exit(1)


def _places(first: str | None, second: str | None, from_source: str | None) -> tuple[str, str | None]:
    """Source and target of the two arguments, of which the first is the target after --from.

    Raises UsageError.
    """
    if from_source is not None and second is not None:
        raise UsageError(f"--from is in place of the first argument: {second} is one too many")
    if from_source is not None:
        return from_source, first
    if first is None:
        raise UsageError("name a source", cure="klog metadata convert SOURCE [TARGET]; --help explains")
    return first, second


def _refusal(
    source: str, plan: Plan, old: Sequence[Conversion], *, ignore_problems: bool, convert_segments: bool
) -> StorageError | None:
    """What stops the conversion, if anything does."""
    if plan.problems and not ignore_problems:
        return StorageError(
            f"{count_of(len(plan.problems), 'problem')}; nothing was changed",
            file=source,
            cure="mend what the plan shows, or go on with --ignore-problems",
        )
    if old and not convert_segments:
        segments = count_of(sum(each.old_segments for each in plan.logs), "segment")
        return StorageError(
            f"{segments} in message format 0 or 1, which Kafka 4 does not read; nothing was changed",
            file=old[0].directory,
            cure=f"{' && '.join(each.command for each in old)}, or --convert-segments does it",
        )
    return None


def _features(words: Sequence[str]) -> dict[str, int]:
    """The levels of `--feature NAME=LEVEL` options. Raises UsageError."""
    found = {}
    for word in words:
        name, _, level = word.partition("=")
        if not level.isdecimal():
            raise UsageError(f"--feature {word}: an option is written NAME=LEVEL")
        found[name] = int(level)
    return found
