"""`klog metadata convert`: writes a cluster's metadata in another form, after a plan that says all of it."""

from __future__ import annotations

import os
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.offline.metadata_reading import ReadOptions, Source
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.messages import print_line, print_report
from klog.commands.shared.option_sets import argument, flag, optional
from klog.commands.shared.terminal import confirmed, count_of
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from klog.cluster_metadata.conversion_plan import Plan


class ToForm(StrEnum):
    """A form to write; a test holds it equal to those that can be written."""

    KRAFT = "kraft"
    JSON = "json"
    TREE = "tree"
    ZOOKEEPER = "zookeeper"


_LINES_MAX: Final = 20
_NOTED: Final = {"change": "changed", "loss": "lost", "problem": "found"}


def convert(
    source: Source,
    read: ReadOptions,
    change: ChangeOptions,
    target: str | None = argument(
        None,
        "Where to write: a new file (json), the first of log.dirs (tree), host:port/chroot (zookeeper).",
        "[TARGET]",
    ),
    to: ToForm = optional(
        ToForm.KRAFT,
        "kraft: directories of Kafka 3.9 or 4. json: a file. tree: klog's own tree in a log directory."
        " zookeeper: an empty one.",
        "--to",
    ),
    config: list[str] | None = optional(
        None,
        "The properties file of a KRaft node whose directories are here; again for each node.",
        "--config",
        "-c",
        metavar="FILE",
    ),
    metadata_version: str | None = optional(
        None,
        "Of the Kafka that will start: 4.1, 4.0, 3.9, or a level's name (4.0-IV3). [default: 4.1]",
        metavar="VERSION",
        show_default=False,
    ),
    feature: list[str] | None = optional(
        None, "Another feature's level, as for kafka-storage.", metavar="NAME=LEVEL"
    ),
    yes: bool = flag("Write without asking.", "--yes", "-y"),
) -> None:
    """Write a cluster's metadata in another form: KRaft directories, a file, klog's tree, ZooKeeper.

    All nodes must be stopped. For KRaft, name the properties files with which the new nodes will start:
    process.roles, node.id, log.dirs, metadata.log.dir and the controllers' quorum are read from them.
    Directories may hold a broker's logs, which stay; the old meta.properties is kept as
    meta.properties.zookeeper. The command shows what it will write and what cannot go, and asks; without a
    terminal it needs --yes. A directory that has KRaft metadata is refused. A command that was killed can be
    run again.

    Examples:

    klog metadata convert zk1:2181 --to kraft --config server.properties --dry-run

    klog metadata convert /var/lib/zookeeper --to kraft --metadata-version 4.0 --config controller.properties
    --config broker.properties

    klog metadata convert /var/lib/kafka cluster.json --to json

    klog metadata convert /var/lib/kafka zk1:2181/kafka --to zookeeper
    """
    from klog.cluster_metadata import conversion
    from klog.cluster_metadata.conversion_plan import Target

    reading = read.read(source)
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
        ),
    )
    if change.for_people:
        _show(plan)
    if not change.dry_run:
        if not confirmed("Write this?", yes=yes):
            raise typer.Exit(1)
        plan.write()
    done = "would be" if change.dry_run else "are"
    change.conclude(
        list(_outcomes(plan, dry_run=change.dry_run)),
        summary=f"{count_of(len(plan.steps), 'tree' if to is ToForm.ZOOKEEPER else 'file')} {done} written",
    )


def _show(plan: Plan) -> None:
    """Print a plan for people."""
    for step in plan.steps:
        print_line(f"write {step.where}: {step.what}")
    for line in _first([f"change: {each}" for each in plan.changes]):
        print_line(line)
    for line in _first([f"cannot go: {each}" for each in plan.losses]):
        print_line(line)
    for line in _first([f"problem: {each.where}: {each.what}" for each in plan.problems]):
        print_report(line)


def _first(lines: list[str]) -> list[str]:
    """The lines that people read; programs get all."""
    rest = len(lines) - _LINES_MAX
    return lines if rest <= 0 else [*lines[:_LINES_MAX], f"and {rest:,} more (-o json has all)"]


def _outcomes(plan: Plan, *, dry_run: bool) -> Iterator[Outcome]:
    """A plan as rows for programs."""
    for step in plan.steps:
        done = "would be written" if dry_run else "written"
        yield Outcome(step.where, {"kind": "write", "where": step.where, "what": step.what}, done)
    others = [("change", None, each) for each in plan.changes]
    others += [("loss", None, each) for each in plan.losses]
    for kind, where, what in (*others, *(("problem", each.where, each.what) for each in plan.problems)):
        yield Outcome(where or kind, {"kind": kind, "where": where, "what": what}, _NOTED[kind])


def _features(words: Sequence[str]) -> dict[str, int]:
    """The levels of `--feature NAME=LEVEL` options. Raises UsageError."""
    found = {}
    for word in words:
        name, _, level = word.partition("=")
        if not level.isdecimal():
            raise UsageError(f"--feature {word}: an option is written NAME=LEVEL")
        found[name] = int(level)
    return found
