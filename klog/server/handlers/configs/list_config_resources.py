"""ListConfigResources: the names of all resources of some kinds (KIP-1142).

Rules: Kafka 4.1's `KafkaApis.handleListConfigResources`. Version 0 lists client metrics only, of which there
are none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from klog.client.admin import ResourceType
from klog.metadata.cache import MetadataCache
from klog.metadata.configs import valid_configs
from klog.metadata.store import MetadataStore
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of, send_answer
from klog.server.network.request import Request

_CLIENT_METRICS_ONLY: Final = (ResourceType.CLIENT_METRICS,)


@dataclass(frozen=True, slots=True)
class ListConfigResourcesHandler:
    """Answers ListConfigResources requests."""

    store: MetadataStore
    cache: MetadataCache

    def handle(self, request: Request) -> None:
        """List the resources of the kinds that are asked for, of all kinds by default."""
        kinds = getattr(entity_of(request), "resource_types", _CLIENT_METRICS_ONLY) or tuple(ResourceType)
        if set(kinds) - set(ResourceType):
            send_answer(request, error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=())
            return
        found = [
            {"resource_name": name, "resource_type": int(kind)}
            for kind in dict.fromkeys(kinds)
            for name in self._names(ResourceType(kind))
        ]
        send_answer(request, error_code=ErrorCode.NONE, config_resources=found)

    def _names(self, kind: ResourceType) -> Iterable[str]:
        match kind:
            case ResourceType.TOPIC:
                return sorted(self.cache.snapshot.topics)
            case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
                return [str(broker_id) for broker_id in sorted(self.cache.snapshot.brokers)]
            case ResourceType.GROUP:
                configs, _ = valid_configs(self.store, "groups")
                return sorted(group_id for group_id, overrides in configs.items() if overrides)
        return ()
