"""Quotas and SCRAM credentials, as kafka-configs has them for users, clients and ips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klog.commands.shared.messages import print_line
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

_SCRAM: Final = "SCRAM-"
_DEFAULT: Final = ""
_OF_CLIENTS: Final = (
    "consumer_byte_rate",
    "controller_mutation_rate",
    "producer_byte_rate",
    "request_percentage",
)

Parts = Mapping[str, str | None]
"""Types of an entity (user, client-id, ip) with names: the empty text for the default, None for any."""


def describe(cluster: Cluster, parts: Parts) -> None:
    """Print the quotas, and the credentials of users. Raises ClientError, ChannelError."""
    from klog.admin.requests.client_quotas import describe_quotas
    from klog.admin.requests.scram_users import describe_users
    from klog.commands.cluster.quotas import filters_of, print_as_kafka
    from klog.commands.cluster.users import print_credentials

    print_as_kafka(describe_quotas(cluster, list(filters_of(parts)), strict=True))
    user = parts.get("user")
    if set(parts) == {"user"} and user != _DEFAULT:
        print_credentials(describe_users(cluster, None if user is None else [user]))


def alter(cluster: Cluster, parts: Parts, pairs: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Set and remove quotas or credentials, and say so.

    Raises UsageError for both at once and for other configs, ClientError, ChannelError.
    """
    from klog.admin.requests.client_quotas import QuotaEntity, alter_quotas
    from klog.admin.requests.scram_users import Deletion, alter_users
    from klog.commands.cluster.quotas import completed, values_of
    from klog.commands.cluster.users import credential_of, mechanism_of

    names = {*pairs, *deleted}
    scram = {name for name in names if name.upper().startswith(_SCRAM)}
    _check(parts, names, scram)
    entity = QuotaEntity(tuple((kind, name or None) for kind, name in parts.items()))
    user = parts.get("user")
    if scram and user:
        alter_users(
            cluster,
            [credential_of(user, name, value) for name, value in pairs.items()],
            [Deletion(user, mechanism_of(name)) for name in deleted],
        )
    else:
        alter_quotas(cluster, entity, {**dict.fromkeys(deleted), **values_of(pairs)})
    print_line(completed(entity))


def _check(parts: Parts, names: set[str], scram: set[str]) -> None:
    if scram and set(parts) != {"user"}:
        raise UsageError("only users have SCRAM credentials", cure="--entity-type users --entity-name USER")
    if scram and not parts["user"]:
        raise UsageError("SCRAM credentials belong to one user", cure="--entity-name USER, and no default")
    if scram and names - scram:
        raise UsageError(
            "quotas and SCRAM credentials cannot be changed in one command", cure="give two commands"
        )
    if "ip" not in parts and (unknown := sorted(names - scram - {*_OF_CLIENTS})):
        raise UsageError(
            f"{', '.join(unknown)}: no quota and no SCRAM credential of users and clients",
            cure=f"one of {', '.join(_OF_CLIENTS)}, SCRAM-SHA-256, SCRAM-SHA-512",
        )
