"""`klog metadata properties`: translates a server.properties between ZooKeeper and KRaft."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.shared.messages import print_line
from klog.commands.shared.option_sets import optional, valued
from klog.commands.shared.output import OutputOptions
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.cluster_metadata.translated_files import Translate

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
    roles: str | None = valued(
        "ROLE,...", "What the node will be: broker, controller or both (default: broker)."
    ),
    node_id: int | None = valued("ID", "The node's id, if the file has none.", least=0),
    voters: str | None = optional(None, "All controllers, as controller.quorum.voters has them."),
    zookeeper_connect: str | None = valued("HOST:PORT/CHROOT", "Where ZooKeeper is."),
    write: Path | None = valued("FILE", "The new file; it must not exist."),
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
    from klog.cluster_metadata.translated_files import translated
    from klog.config.kraft_properties import KRaftNode, to_kraft
    from klog.config.zookeeper_properties import to_zookeeper

    if to is Target.KRAFT:
        _refuse(to, zookeeper_connect=zookeeper_connect)
        translate: Translate = partial(to_kraft, node=KRaftNode(roles_of(roles), node_id, voters))
    else:
        _refuse(to, roles=roles, node_id=node_id, voters=voters)
        if to is Target.KLOG:
            _refuse(to, zookeeper_connect=zookeeper_connect)
        connect = "" if to is Target.KLOG else zookeeper_connect
        translate = partial(to_zookeeper, zookeeper_connect=connect)
    translation = translated(file, str(write), translate)
    found = translation.translation
    if write is not None:
        translation.write()
    output.show(
        [{"config": each.name, "change": str(each.outcome), "reason": each.text} for each in found.changes]
    )
    if output.for_people and write is not None:
        print_line(f"written to {write}")
    if not found.is_complete:
        raise typer.Exit(1)


def roles_of(text: str | None) -> tuple[str, ...]:
    """The roles that `--roles` names. Raises UsageError."""
    found = tuple(each.strip() for each in (text or "broker").split(","))
    if len(set(found)) < len(found) or not set(found) <= set(_ROLES):
        raise UsageError(f"--roles {text} is not known", cure="broker, controller, or broker,controller")
    return found


def _refuse(to: Target, **options: object) -> None:
    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise UsageError(f"--{given.replace('_', '-')} has no meaning with --to {to}")
