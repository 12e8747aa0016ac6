"""Keeps the quotas of a broker as the metadata tree has them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from klog.formats.errors import UsageError
from klog.metadata.configs import read_config
from klog.metadata.entity_configs import entity_nodes
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.store import MetadataStore
from klog.metadata.znodes import decode_config
from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.entities import Part, Quota, QuotaEntity, entity_of_path, limits_in
from klog.security.quotas.ip_limits import IpLimits

_log = logging.getLogger(__name__)


class QuotaConfigs:
    """Reads quotas again when a note names their entity."""

    def __init__(self, store: MetadataStore, quotas: ClientQuotas, ip_limits: IpLimits) -> None:
        self._store = store
        self._quotas = quotas
        self._ip_limits = ip_limits
        self._limited_ips: set[Part] = set()

    def load(self) -> None:
        """Reads all quotas: at the start, and in a new session. What cannot be read is an error line."""
        found: dict[QuotaEntity, Mapping[Quota, float]] = {}
        for path, node in entity_nodes(self._store):
            entity = entity_of_path(path)
            if entity is None:
                continue
            try:
                found[entity] = limits_in(entity, decode_config(path, node.data))
            except (InvalidZnodeError, UsageError) as error:
                _log.error("The quotas of %s are ignored: %s", path, error)
        self._quotas.replace({entity: limits for entity, limits in found.items() if entity.ip is None})
        ips = {entity.ip: limits for entity, limits in found.items() if entity.ip is not None}
        for gone in self._limited_ips - ips.keys():
            self._limit_ip(gone, {})
        for ip, limits in ips.items():
            self._limit_ip(ip, limits)

    def on_change(self, entity_path: str) -> None:
        """A note has come: `users/alice`, `clients/<default>`. Those of other configs do nothing."""
        entity = entity_of_path(entity_path)
        if entity is None:
            return
        try:
            limits = limits_in(entity, read_config(self._store, entity_path))
        except (InvalidZnodeError, UsageError) as error:
            _log.error("The quotas of %s stay as they are: %s", entity_path, error)
            return
        if entity.ip is None:
            self._quotas.set_limits(entity, limits)
        else:
            self._limit_ip(entity.ip, limits)

    def _limit_ip(self, ip: Part, limits: Mapping[Quota, float]) -> None:
        limit = limits.get(Quota.CONNECTION)
        if limit is None:
            self._limited_ips.discard(ip)
        else:
            self._limited_ips.add(ip)
        try:
            self._ip_limits.set_limit(ip, limit)
        except OSError as error:
            _log.error("The quota of the address %s is ignored: %s", ip, error)
