"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses (KIP-546, KIP-612).

Rules: Kafka's `KafkaApis` and `ZkAdminManager`. Any broker answers, from the metadata tree. A note in the
tree tells every broker about a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from klog.formats.errors import KlogError
from klog.metadata.configs import read_config
from klog.metadata.entity_configs import entity_nodes, update_config
from klog.metadata.store import MetadataStore
from klog.metadata.znodes import decode_config
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.security.quotas.administration import (
    Component,
    EntityFilter,
    InvalidQuotaError,
    Operation,
    changed_config,
    entity_of,
)
from klog.security.quotas.entities import Default, QuotaEntity, entity_of_path, limits_in
from klog.server.handlers.answers import Struct, send_answer
from klog.server.handlers.answers import entity_of as message_of
from klog.server.handlers.refusals import RefusedError, error_fields, refusal_of
from klog.server.network.addresses import address_of
from klog.server.network.request import Request

_TYPES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}


@dataclass(frozen=True, slots=True)
class ClientQuotasHandler:
    """Answers both requests."""

    store: MetadataStore

    def describe(self, request: Request) -> None:
        """Answer with the quotas of all entities that the filter finds."""
        wanted = message_of(request)
        try:
            components = [
                Component(each.entity_type, each.match_type, each.match) for each in wanted.components
            ]
            found = self._found(EntityFilter(components, strict=wanted.strict))
        except KlogError as error:
            send_answer(request, **error_fields(refusal_of(error)), entries=None)
            return
        entries = [
            {
                "entity": _parts(entity),
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            for entity, values in found.items()
        ]
        # Kafka's message of success is empty, not null.
        send_answer(request, error_code=ErrorCode.NONE, error_message="", entries=entries)

    def _found(self, wanted: EntityFilter) -> dict[QuotaEntity, Mapping[str, float]]:
        found: dict[QuotaEntity, Mapping[str, float]] = {}
        for path, node in entity_nodes(self.store):
            entity = entity_of_path(path)
            if entity is not None and wanted.finds(entity):
                limits = limits_in(entity, decode_config(path, node.data))
                if limits:
                    found[entity] = {quota.value: limit for quota, limit in limits.items()}
        return found

    def alter(self, request: Request) -> None:
        """Change quotas, each entity by itself."""
        wanted = message_of(request)
        entries: list[Struct] = []
        for entry in wanted.entries:
            refused: RefusedError | None = None
            try:
                self._alter(entry, only_check=wanted.validate_only)
            except KlogError as error:
                refused = refusal_of(error)
            names = [
                {"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity
            ]
            entries.append({**error_fields(refused), "entity": names})
        send_answer(request, entries=entries)

    def _alter(self, entry: Entity, *, only_check: bool) -> None:
        """Raises `KlogError`."""
        entity = entity_of((each.entity_type, each.entity_name) for each in entry.entity)
        if isinstance(entity.ip, str):
            _check_address(entity.ip)
        operations = [Operation(each.key, None if each.remove else each.value) for each in entry.ops]
        change = partial(changed_config, entity, operations=operations)
        if only_check:
            change(read_config(self.store, entity.path))
        else:
            update_config(self.store, entity.path, change)


def _check_address(ip: str) -> None:
    try:
        address_of(ip)
    except OSError:
        raise InvalidQuotaError(f"{ip} is not a valid IP or resolvable host.") from None


def _parts(entity: QuotaEntity) -> list[Struct]:
    return [
        {"entity_type": _TYPES[field], "entity_name": None if isinstance(part, Default) else part}
        for field, part in entity._asdict().items()
        if part is not None
    ]
