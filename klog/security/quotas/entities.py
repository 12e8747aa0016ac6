"""Whom a quota limits, which quotas there are, and how the metadata tree names both.

Rules: Kafka's `ZkAdminManager`, `QuotaConfigHandler` and `Sanitizer`. Names are percent-encoded in paths; a
default is `<default>`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from klog.formats.errors import UsageError
from klog.metadata.paths import DEFAULT_ENTITY


class Default(Enum):
    """Stands for all users, client ids or addresses that have no quota of their own."""

    DEFAULT = DEFAULT_ENTITY


DEFAULT: Final = Default.DEFAULT

# A name, the default, or nothing: then the entity has no such part.
Part: TypeAlias = str | Default | None


class QuotaEntity(NamedTuple):
    """A user, a client id, both, or an IP address."""

    user: Part = None
    client_id: Part = None
    ip: Part = None

    @property
    def path(self) -> str:
        """The path of its config: `users/alice/clients/c%2F1`."""
        if self.ip is not None:
            return f"ips/{_encoded(self.ip)}"
        clients = "" if self.client_id is None else f"clients/{_encoded(self.client_id)}"
        if self.user is None:
            return clients
        return "/".join(filter(None, (f"users/{_encoded(self.user)}", clients)))

    def __str__(self) -> str:
        return self.path


def entity_of_path(path: str) -> QuotaEntity | None:
    """The entity of a config's path; None if such configs hold no quotas."""
    match path.split("/"):
        case ["users", user] if user:
            return QuotaEntity(user=_decoded(user))
        case ["users", user, "clients", client_id] if user and client_id:
            return QuotaEntity(_decoded(user), _decoded(client_id))
        case ["clients", client_id] if client_id:
            return QuotaEntity(client_id=_decoded(client_id))
        case ["ips", ip] if ip:
            return QuotaEntity(ip=_decoded(ip))
    return None


def _encoded(part: str | Default) -> str:
    return DEFAULT_ENTITY if isinstance(part, Default) else quote(part, safe="").replace("~", "%7E")


def _decoded(name: str) -> str | Default:
    return DEFAULT if name == DEFAULT_ENTITY else unquote(name)


class Quota(Enum):
    """The quotas by the names of their configs."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"

    @property
    def is_whole(self) -> bool:
        """Whether its limit is a whole number."""
        return self not in (Quota.REQUEST, Quota.MUTATION)


OF_CLIENTS: Final = (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST, Quota.MUTATION)


def quotas_of(entity: QuotaEntity) -> tuple[Quota, ...]:
    """The quotas that an entity may have."""
    return OF_CLIENTS if entity.ip is None else (Quota.CONNECTION,)


def limits_in(entity: QuotaEntity, config: Mapping[str, str]) -> dict[Quota, float]:
    """The limits in an entity's config, which may hold other things, too.

    Raises UsageError for a value that is no number.
    """
    limits = {}
    for each in quotas_of(entity):
        text = config.get(each.value)
        if text is not None:
            limit = _number(text, is_whole=each.is_whole)
            if math.isnan(limit):
                raise UsageError(
                    f"{each.value} of {entity} is {text!r}, which is no number", cure="set it again"
                )
            limits[each] = limit
    return limits


def _number(text: str, *, is_whole: bool) -> float:
    """A limit; not a number if the text is none."""
    try:
        return float(int(text)) if is_whole else float(text)
    except (ValueError, OverflowError):
        return math.nan
