"""Creates topics for tests, over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from klog.client.errors import RefusedError
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class, request_struct

_TIMEOUT_MS: Final = 30_000
_BROKER_DEFAULT: Final = -1


def create_topic(bootstrap_server: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """Create a topic and wait until it has leaders. Raises RefusedError, ChannelError."""
    host, _, port = bootstrap_server.rpartition(":")
    with Channel(host, int(port), client_id="klog-testing", timeout_ms=_TIMEOUT_MS) as channel:
        api = ApiKey.CREATE_TOPICS
        version = channel.version_of(api)
        entry_class = request_struct(api, version, "CreatableTopicConfig")
        wanted = build(
            request_struct(api, version, "CreatableTopic"),
            name=topic,
            num_partitions=partitions,
            replication_factor=_BROKER_DEFAULT,
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
