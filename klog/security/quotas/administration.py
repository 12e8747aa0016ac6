"""What requests about quotas mean: which entities a filter finds, and what a change makes of a config.

Rules: KIP-546, KIP-612 and Kafka's `ZkAdminManager`; the texts of the errors are Kafka's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from klog.config.keys import text_of
from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import UsageError
from klog.security.quotas.entities import DEFAULT, Part, Quota, QuotaEntity, quotas_of

_FIELDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
# How messages name the types of a filter.
_TITLES: Final = {"user": "user", "client-id": "client", "ip": "ip"}
_EPSILON: Final = 1e-6


class InvalidQuotaError(UsageError):
    """A request about quotas is invalid (INVALID_REQUEST)."""


class UnsupportedEntityError(UsageError):
    """A filter has a type of entities that there is not (UNSUPPORTED_VERSION)."""


# -- finding entities ----------------------------------------------------------------------------------------


class Match(IntEnum):
    """How a part of an entity is compared, by its number on the wire."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """A part that an entity must have."""

    entity_type: str
    match: int
    name: str | None


class EntityFilter:
    """Finds the entities that have all parts of a filter, and, if it is strict, no others."""

    def __init__(self, components: Iterable[Component], *, strict: bool) -> None:
        """Raises InvalidQuotaError, UnsupportedEntityError."""
        self._strict = strict
        self._wanted: dict[str, Component] = {}
        for each in components:
            if not each.entity_type:
                raise InvalidQuotaError("Unexpected empty filter component entity type")
            field = _FIELDS.get(each.entity_type)
            if field is None:
                raise UnsupportedEntityError(f"Custom entity type '{each.entity_type}' not supported")
            if field in self._wanted:
                title = _TITLES[each.entity_type]
                raise InvalidQuotaError(f"Duplicate {title} filter component entity type")
            self._wanted[field] = each
        if "ip" in self._wanted and len(self._wanted) > 1:
            raise InvalidQuotaError(
                "Invalid entity filter component combination, IP filter component should not be used with"
                " user or clientId filter component."
            )

    def finds(self, entity: QuotaEntity) -> bool:
        """Whether the entity is what was asked for."""
        return all(self._fits(self._wanted.get(field), part) for field, part in entity._asdict().items())

    def _fits(self, wanted: Component | None, part: Part) -> bool:
        if wanted is None:
            return part is None or not self._strict
        match wanted.match:
            case Match.ANY:
                return part is not None
            case Match.DEFAULT:
                return part is DEFAULT
        return part == wanted.name


# -- changing configs ----------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """Sets a config, or removes it (then `value` is None)."""

    key: str
    value: float | None


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these types and names; no name is the default. Raises InvalidQuotaError."""
    found: dict[str, Part] = {}
    for entity_type, name in parts:
        field = _FIELDS.get(entity_type)
        if field is None:
            raise InvalidQuotaError(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise InvalidQuotaError(f"Empty {entity_type} not supported")
        found[field] = DEFAULT if name is None else name
    if not found:
        raise InvalidQuotaError("Invalid empty client quota entity")
    if "ip" in found and len(found) > 1:
        raise InvalidQuotaError(
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
        )
    return QuotaEntity(**found)


def changed_config(
    entity: QuotaEntity, config: Mapping[str, str], operations: Iterable[Operation]
) -> dict[str, str]:
    """An entity's config after a change. Raises InvalidQuotaError.

    A config that is not there may be removed, too.
    """
    known = {each.value: each for each in quotas_of(entity)}
    changed = dict(config)
    for key, value in operations:
        if value is None:
            changed.pop(key, None)
        elif key in known:
            changed[key] = _text(known[key], value)
        else:
            raise InvalidQuotaError(f"Invalid configuration key {key}")
    return changed


def _text(quota: Quota, value: float) -> str:
    if not quota.is_whole:
        if math.isnan(value):
            raise InvalidQuotaError(f"Configuration {quota.value} must be a DOUBLE value")
        return text_of(float(value)) or ""
    name, most = ("INT", INT32_MAX) if quota is Quota.CONNECTION else ("LONG", INT64_MAX)
    whole = min(int(value + _EPSILON), most) if math.isfinite(value) else 0
    if abs(whole - value) > _EPSILON:  # a value that is no number counts as 0
        raise InvalidQuotaError(f"Configuration {quota.value} must be a {name} value")
    return str(whole)
