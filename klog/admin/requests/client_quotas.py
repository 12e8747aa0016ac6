"""Asks for the quotas of users, client ids and IP addresses, and changes them (KIP-546, KIP-612).

Any broker answers. A limit holds on each broker for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from klog.client.cluster import Cluster
from klog.client.requests import accepted, ask
from klog.protocol.apis import ApiKey

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)


class Match(IntEnum):
    """How a part of an entity is matched, with its number on the wire."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaEntity(NamedTuple):
    """Whose quota it is: parts of a type and a name, None for the default of the type, in Kafka's order."""

    parts: tuple[tuple[str, str | None], ...]

    def name_of(self, entity_type: str) -> str | None:
        """The name of a part, the empty text for the default, None if there is no such part."""
        return next((name or "" for kind, name in self.parts if kind == entity_type), None)


class QuotaFilter(NamedTuple):
    """A part that an entity must have."""

    entity_type: str
    match: Match
    name: str | None = None


def describe_quotas(
    cluster: Cluster, filters: Iterable[QuotaFilter], *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of the entities that have all these parts; with `strict`, and no others.

    Raises RefusedError, UnsupportedApiError, ChannelError.
    """
    components = [
        {"entity_type": each.entity_type, "match_type": each.match, "match": each.name} for each in filters
    ]
    connection = cluster.any_connection()
    answer = accepted(
        ask(connection, ApiKey.DESCRIBE_CLIENT_QUOTAS, components=components, strict=strict),
        "quotas",
        "DescribeConfigs",
    )
    found = {
        _entity((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: float(value.value) for value in sorted(entry.values, key=lambda each: str(each.key))
        }
        for entry in answer.entries or ()
    }
    return {entity: found[entity] for entity in sorted(found, key=_order)}


def _entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    order = (*ENTITY_TYPES, "")
    return QuotaEntity(
        tuple(sorted(parts, key=lambda part: order.index(part[0] if part[0] in ENTITY_TYPES else "")))
    )


def _order(entity: QuotaEntity) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in entity.parts]


def alter_quotas(
    cluster: Cluster,
    entity: QuotaEntity,
    changes: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> None:
    """Set quotas of an entity, or remove those whose value is None: all or none.

    Raises RefusedError, UnsupportedApiError, ChannelError.
    """
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.parts],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes.items()
        ],
    }
    connection = cluster.any_connection()
    answer = ask(connection, ApiKey.ALTER_CLIENT_QUOTAS, entries=[entry], validate_only=validate_only)
    for result in answer.entries:
        accepted(result, "quotas")
