"""Which limit applies to a client, and with whom the client shares it.

Rules: Kafka's `ClientQuotaManager`. The first of these that has a limit decides: user and client id, user and
default client id, user, default user and client id, default user and default client id, default user, client
id, default client id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from klog.security.quotas.entities import DEFAULT, QuotaEntity

ALL: Final = ""


class QuotaKey(NamedTuple):
    """The clients that share one limit; an empty part stands for all users, or all client ids."""

    user: str
    client_id: str


class Limits:
    """The limits of one quota, by entity. Immutable."""

    def __init__(self, by_entity: Mapping[QuotaEntity, float]) -> None:
        self.by_entity = by_entity

    def changed(self, entity: QuotaEntity, limit: float | None) -> Limits:
        """The same with another limit of an entity; None removes it."""
        others = {each: known for each, known in self.by_entity.items() if each != entity}
        return Limits(others if limit is None else {**others, entity: limit})

    def key(self, user: str, client_id: str) -> QuotaKey:
        """With whom a client shares its limit."""
        known = self.by_entity
        for entity in _candidates(user, client_id):
            if entity in known:
                return QuotaKey(
                    ALL if entity.user is None else user, ALL if entity.client_id is None else client_id
                )
        return QuotaKey(ALL, client_id)

    def limit(self, key: QuotaKey) -> float | None:
        """The limit of those who share a key; None if they have none."""
        known = self.by_entity
        for entity in _levels(key):
            if entity in known:
                return known[entity]
        return None


def _candidates(user: str, client_id: str) -> Iterator[QuotaEntity]:
    for each in (user, DEFAULT):
        yield QuotaEntity(each, client_id)
        yield QuotaEntity(each, DEFAULT)
        yield QuotaEntity(each)
    yield QuotaEntity(None, client_id)
    yield QuotaEntity(None, DEFAULT)


def _levels(key: QuotaKey) -> Iterator[QuotaEntity]:
    """The entities whose limit may hold for a key. An empty client id has no quota of client ids."""
    user, client_id = key
    if user and client_id:
        yield QuotaEntity(user, client_id)
        yield QuotaEntity(user, DEFAULT)
        yield QuotaEntity(DEFAULT, client_id)
        yield QuotaEntity(DEFAULT, DEFAULT)
    elif user:
        yield QuotaEntity(user)
        yield QuotaEntity(DEFAULT)
    elif client_id:
        yield QuotaEntity(None, client_id)
        yield QuotaEntity(None, DEFAULT)
