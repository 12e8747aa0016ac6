"""What commands are called here that have another name in Kafka's tools, kcat, kafkactl, rpk or kaf."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "acl": "acls",
    "broker": "brokers",
    "broker-api-versions": "brokers api-versions",
    "compact": "clean",
    "config": "configs",
    "console-consumer": "consume",
    "console-producer": "produce",
    "consumer-group": "groups",
    "consumer-groups": "groups",
    "context": "profile",
    "delete-topic": "topics delete",
    "dump-log": "dump-segment",
    "features": "cluster describe",
    "get-offsets": "offsets",
    "group": "groups",
    "health": "cluster health",
    "lag": "groups describe",
    "leader-election": "elect-leader",
    "log-dir": "log-dirs",
    "metadata-quorum": "cluster describe",
    "offset": "offsets",
    "producer": "produce",
    "consumer": "consume",
    "quota": "quotas",
    "reassign-partitions": "reassign",
    "rebalance": "reassign plan",
    "repair": "recover",
    "server-start": "serve",
    "start": "serve",
    "topic": "topics",
    "transaction": "transactions",
    "token": "tokens",
    "delegation-tokens": "tokens",
    "user": "users",
}
"""By the name without `kafka-` in front and `.sh` behind."""

SUBCOMMANDS: Final[Mapping[tuple[str, str], str]] = {
    ("brokers", "describe"): "brokers configs",
    ("cluster", "info"): "cluster describe",
    ("cluster", "list"): "brokers list",
    ("cluster", "status"): "cluster health",
    ("configs", "set"): "configs alter --set",
    ("configs", "unset"): "configs alter --delete",
    ("configs", "delete"): "configs alter --delete",
    ("groups", "lag"): "groups describe",
    ("groups", "offsets"): "groups describe",
    ("groups", "reset"): "groups reset-offsets",
    ("groups", "seek"): "groups reset-offsets",
    ("reassign", "abort"): "reassign cancel",
    ("reassign", "drain"): "reassign plan --drain",
    ("reassign", "run"): "reassign execute",
    ("reassign", "start"): "reassign execute",
    ("reassign", "status"): "reassign list",
    ("reassign", "stop"): "reassign cancel",
    ("topics", "consume"): "consume",
    ("topics", "produce"): "produce",
    ("topics", "grow"): "topics add-partitions",
    ("tokens", "delete"): "tokens expire",
    ("tokens", "remove"): "tokens expire",
    ("tokens", "revoke"): "tokens expire",
    ("users", "create"): "users set-password",
    ("users", "add"): "users set-password",
}

_VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("create",),
    "create": ("add",),
    "delete": ("remove",),
    "describe": ("show", "list"),
    "get": ("describe", "show", "list"),
    "info": ("describe", "show", "list"),
    "ls": ("list",),
    "new": ("create", "add"),
    "remove": ("delete",),
    "rm": ("delete", "remove"),
    "set": ("alter",),
    "show": ("describe", "list"),
    "update": ("alter",),
}


def name_here(group: str, given: str, known: Collection[str]) -> str | None:
    """What the command is called here, with its group; None if nobody calls it as `given`.

    `group` is empty for a command of klog itself; `known` are the commands of the group.
    """
    if not group:
        name = given.removeprefix("kafka-").removesuffix(".sh")
        return COMMANDS.get(name, name if name in known else None)
    if (group, given) in SUBCOMMANDS:
        return SUBCOMMANDS[group, given]
    verb = next((each for each in _VERBS.get(given, ()) if each in known), None)
    return None if verb is None else f"{group} {verb}"
