"""Creates topics for tests, and reads metadata, over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from klog.client.errors import RefusedError
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class, request_struct

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
        api = ApiKey.CREATE_TOPICS
        version = channel.version_of(api)
        entry_class = request_struct(api, version, "CreatableTopicConfig")
        wanted = build(
            request_struct(api, version, "CreatableTopic"),
            name=topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=(),
            configs=tuple(build(entry_class, name=key, value=value) for key, value in config.items()),
        )
        request = build(
            request_class(api, version),
            topics=(wanted,),
            timeout=timedelta(milliseconds=_TIMEOUT_MS),
            validate_only=False,
        )
        (answer,) = channel.send(request).topics
        if answer.error_code != ErrorCode.NONE:
            raise RefusedError(
                f"topic {topic} was not created", answer.error_code, message=answer.error_message
            )


def read_metadata(server: str, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS) -> Entity:
    """What a broker says about these topics, and about the brokers of the cluster. Raises ChannelError."""
    with _connected(server, timeout_ms) as channel:
        api = ApiKey.METADATA
        version = channel.version_of(api)
        topic_class = request_struct(api, version, "MetadataRequestTopic")
        request = build(
            request_class(api, version),
            topics=tuple(build(topic_class, topic_id=None, name=name) for name in topics),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return channel.send(request)


def _connected(server: str, timeout_ms: int) -> Channel:
    host, _, port = server.rpartition(":")
    return Channel(host, int(port), client_id="klog-testing", timeout_ms=timeout_ms)
