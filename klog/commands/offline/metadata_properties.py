"""`klog metadata properties`: translates a server.properties between ZooKeeper and KRaft."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.shared.messages import print_line
from klog.commands.shared.option_sets import optional
from klog.commands.shared.output import OutputOptions
from klog.formats.errors import FormatError, KlogError, StorageError, UsageError

if TYPE_CHECKING:
    from klog.config.properties_draft import Translation
    from klog.formats.java_properties import PropertyLine

_ROLES: Final = ("broker", "controller")


class Target(StrEnum):
    """What the new file is for."""

    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"
    KLOG = "klog"


def properties(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A server.properties.", show_default=False)],
    output: OutputOptions,
    to: Target = optional(
        Target.KRAFT,
        "kraft: a node of Kafka 4.1. zookeeper: a broker of Kafka 3.9. klog: a broker of klog.",
    ),
    roles: str | None = optional(
        None, "What the node will be: broker, controller or both (default: broker).", metavar="ROLE,..."
    ),
    node_id: int | None = optional(None, "The node's id, if the file has none.", least=0, metavar="ID"),
    voters: str | None = optional(None, "All controllers, as controller.quorum.voters has them."),
    zookeeper_connect: str | None = optional(None, "Where ZooKeeper is.", metavar="HOST:PORT/CHROOT"),
    write: Path | None = optional(None, "The new file; it must not exist.", metavar="FILE"),
) -> None:
    """Translate a broker's server.properties from ZooKeeper to KRaft (Kafka 4.1), or back.

    Prints each config that is renamed, changed, dropped or added, with the reason; those that are not set
    and have another default; and what a person has to decide. Values are not printed. Comments, order and
    all other lines stay. The old file stays as it is. The exit code is 1 if something is left to decide.

    Examples:

    klog metadata properties server.properties

    klog metadata properties server.properties --voters 1@kafka1:9093 --write kraft.properties

    klog metadata properties kraft.properties --to zookeeper --write server.properties
    """
    from klog.config.kraft_properties import KRaftNode, to_kraft
    from klog.config.zookeeper_properties import to_zookeeper

    lines = _lines(file)
    try:
        if to is Target.KRAFT:
            _refuse(to, zookeeper_connect=zookeeper_connect)
            found = to_kraft(lines, KRaftNode(_roles(roles), node_id, voters))
        else:
            _refuse(to, roles=roles, node_id=node_id, voters=voters)
            if to is Target.KLOG:
                _refuse(to, zookeeper_connect=zookeeper_connect)
            found = to_zookeeper(lines, "" if to is Target.KLOG else zookeeper_connect)
    except KlogError as error:
        raise error.at(file) from None
    if write is not None:
        _write(found, file, write)
    output.show(
        [{"config": each.name, "change": str(each.outcome), "reason": each.text} for each in found.changes]
    )
    if output.for_people and write is not None:
        print_line(f"written to {write}")
    if not found.is_complete:
        raise typer.Exit(1)


def _lines(file: str) -> tuple[PropertyLine, ...]:
    from klog.formats.java_properties import config_entries, parse
    from klog.storage.files.files import read_whole

    data = read_whole(file)
    try:
        config_entries(data)
        return parse(data)
    except FormatError as error:
        raise error.at(file) from None


def _roles(text: str | None) -> tuple[str, ...]:
    found = tuple(each.strip() for each in (text or "broker").split(","))
    if len(set(found)) < len(found) or not set(found) <= set(_ROLES):
        raise UsageError(f"--roles {text} is not known", cure="broker, controller, or broker,controller")
    return found


def _refuse(to: Target, **options: object) -> None:
    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise UsageError(f"--{given.replace('_', '-')} has no meaning with --to {to}")


def _write(found: Translation, source: str, target: Path) -> None:
    """Writes the new file with the mode of the old one, which may hold secrets."""
    from klog.formats.java_properties import build
    from klog.storage.files.files import storage_error, write_atomically

    if target.exists():
        raise StorageError("exists already", file=str(target), cure="name a new file")
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, os.stat(source).st_mode & 0o777))
    except OSError as error:
        raise storage_error("cannot be written", str(target), error) from error
    write_atomically(target, build(found.lines))
