"""Answers FindCoordinator requests: the leader of the internal topic's partition that an id belongs to.

Rules: Kafka's `KafkaApis.handleFindCoordinatorRequest`; KIP-98, KIP-699 (several keys from version 4 on). If
the internal topic does not exist it is created, and the client asks again until the partition has a leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.metadata.cache import MetadataCache
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import encode_response
from klog.server.handlers.answers import InBackground, answer_of, entity_of, send_answer
from klog.server.handlers.topics.auto_creation import AutoTopicCreation
from klog.server.network.request import Request

_log = logging.getLogger(__name__)

_SEVERAL_KEYS_FROM: Final = 4
_SHARE_FROM: Final = 6
_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
# The internal topic of each kind of key, and the config that most often keeps it from being created.
_TOPICS: Final[Mapping[int, tuple[str, str]]] = {
    _GROUP: (CONSUMER_OFFSETS, "offsets.topic.replication.factor"),
    _TRANSACTION: (TRANSACTION_STATE, "transaction.state.log.replication.factor"),
}


# Creation has begun, here or elsewhere.
_CREATED: Final = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class _Coordinator(NamedTuple):
    """The fields of an answer, under their names."""

    error_code: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_message: str | None = ""


_UNKNOWN_KEY_TYPE: Final = "a coordinator has key type 0 (group) or 1 (transaction)"
# For one key, each error has a message. For several keys Kafka leaves it empty, but for an unknown type.
_MESSAGES: Final = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available yet",
    ErrorCode.INVALID_REQUEST: _UNKNOWN_KEY_TYPE,
}
_NOT_AVAILABLE: Final = _Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class FindCoordinatorHandler:
    """Answers FindCoordinator requests.

    `partition_of_group` and `partition_of_transaction` give the partition of the internal topic that an id
    belongs to.
    """

    cache: MetadataCache
    partition_of_group: Callable[[str], int]
    partition_of_transaction: Callable[[str], int]
    creation: AutoTopicCreation
    create_in_background: InBackground
    _logged: set[tuple[str, ErrorCode]] = field(default_factory=set, compare=False, repr=False)

    def handle(self, request: Request) -> None:
        """Answer at once. A missing topic is created after the answer."""
        asked = entity_of(request)
        # Version 0 knows groups alone.
        key_type = getattr(asked, "key_type", _GROUP)
        if request.api_version < _SEVERAL_KEYS_FROM:
            found = self._find(request, asked.key, key_type)
            message = found.error_message or _MESSAGES.get(found.error_code)
            send_answer(request, **found._replace(error_message=message)._asdict())
        else:
            coordinators = [
                {"key": key, **self._find(request, key, key_type)._asdict()} for key in asked.coordinator_keys
            ]
            send_answer(request, coordinators=coordinators)
        topic, config = _TOPICS.get(key_type, (None, ""))
        if topic is not None and topic not in self.cache.snapshot.topics:
            self.create_in_background(request, lambda asking: self._create(asking, topic, config))

    def _create(self, request: Request, topic: str, config: str) -> None:
        (error,) = self.creation.create(request, (topic,)).values()
        if error not in _CREATED and (topic, error) not in self._logged:
            # Clients are only told that there is no coordinator, and ask again and again.
            self._logged.add((topic, error))
            _log.warning(
                "%s cannot be created: %s (%s must not exceed the brokers)", topic, error.name, config
            )

    def _find(self, request: Request, key: str, key_type: int) -> _Coordinator:
        if key_type == _GROUP:
            partition = TopicPartition(CONSUMER_OFFSETS, self.partition_of_group(key))
        elif key_type == _TRANSACTION:
            partition = TopicPartition(TRANSACTION_STATE, self.partition_of_transaction(key))
        elif key_type == _SHARE and request.api_version >= _SHARE_FROM:
            return _NOT_AVAILABLE
        elif key_type == _SHARE:
            return _Coordinator(ErrorCode.INVALID_REQUEST)
        else:
            return _Coordinator(ErrorCode.INVALID_REQUEST, error_message=_UNKNOWN_KEY_TYPE)
        snapshot = self.cache.snapshot
        state = snapshot.partition(partition)
        broker = None if state is None else snapshot.brokers.get(state.leader)
        endpoint = None if broker is None else broker.endpoint(request.listener)
        if broker is None or endpoint is None:
            return _NOT_AVAILABLE
        return _Coordinator(ErrorCode.NONE, broker.broker_id, endpoint.host, endpoint.port)

    def failed(self, request: Request, error: ErrorCode) -> list[bytes] | None:
        """The answer to a request whose handling failed; None if its keys are not known."""
        if request.api_version < _SEVERAL_KEYS_FROM:
            return [encode_response(answer_of(request, **_Coordinator(error)._asdict()))]
        return None
