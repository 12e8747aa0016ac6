"""Creates topics for tests, and reads metadata, over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from klog.client.requests import accepted, ask
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.entity_fields import Entity

_TIMEOUT_MS: Final = 30_000
_BROKER_DEFAULT: Final = -1


def create_topic(
    server: str,
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    replication_factor: int = _BROKER_DEFAULT,
) -> None:
    """Create a topic and wait until it has leaders. `server` is the controller's address.

    Raises RefusedError, ChannelError.
    """
    with _connected(server, _TIMEOUT_MS) as channel:
        wanted = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": (),
            "configs": [{"name": key, "value": value} for key, value in config.items()],
        }
        (answer,) = ask(
            channel, ApiKey.CREATE_TOPICS, topics=[wanted], timeout=_TIMEOUT_MS, validate_only=False
        ).topics
        accepted(answer, f"topic {topic} was not created")


def read_metadata(server: str, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS) -> Entity:
    """What a broker says about these topics, and about the brokers of the cluster. Raises ChannelError."""
    with _connected(server, timeout_ms) as channel:
        return ask(
            channel,
            ApiKey.METADATA,
            topics=[{"topic_id": None, "name": name} for name in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )


def _connected(server: str, timeout_ms: int) -> Channel:
    host, _, port = server.rpartition(":")
    return Channel(host, int(port), client_id="klog-testing", timeout_ms=timeout_ms)
