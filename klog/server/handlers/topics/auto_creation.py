"""Creates topics whose metadata a client asks for (`auto.create.topics.enable`).

Rules: Kafka's AutoTopicCreationManager. The broker that is asked writes the topic itself, controller or not,
and does not wait: the client asks again until there is a leader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from klog.config.broker import BrokerConfig
from klog.formats.errors import KlogError
from klog.formats.names import is_legal_topic
from klog.protocol.error_codes import ErrorCode
from klog.server.coordinators.internal_topics import internal_topic
from klog.server.handlers.refusals import refusal_of
from klog.server.handlers.topics.mutation_quota import charge_mutations
from klog.server.handlers.topics.topic_creation import NewTopic, TopicCreator
from klog.server.network.request import Request


class AutoTopicCreation:
    """Creates topics that are missing. A topic is created by one thread at a time."""

    def __init__(self, creator: TopicCreator, config: Callable[[], BrokerConfig]) -> None:
        self._creator = creator
        self._config = config
        self._lock = threading.Lock()
        self._running: set[str] = set()

    @property
    def enabled(self) -> bool:
        """`auto.create.topics.enable`."""
        return self._config().flag("auto.create.topics.enable")

    def create(self, request: Request, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics for a request; returns for each the error that its metadata is answered with."""
        return {name: self._create(request, name) for name in names}

    def _create(self, request: Request, name: str) -> ErrorCode:
        if not is_legal_topic(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        with self._lock:
            if name in self._running:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._running.add(name)
        try:
            planned = self._creator.plan(wanted_topic(name, self._config()))
            charge_mutations(request, len(planned.replicas))
            self._creator.create(planned)
        except KlogError as failed:
            error = refusal_of(failed).error
            # Another request has created it: the client sees the topic as soon as it has leaders.
            return ErrorCode.LEADER_NOT_AVAILABLE if error is ErrorCode.TOPIC_ALREADY_EXISTS else error
        finally:
            with self._lock:
                self._running.discard(name)
        return ErrorCode.LEADER_NOT_AVAILABLE


def wanted_topic(name: str, config: BrokerConfig) -> NewTopic:
    """A topic with default settings; internal topics have settings of their own."""
    internal = internal_topic(name, config)
    if internal is None:
        return NewTopic(name)
    return NewTopic(name, internal.partitions, internal.replication_factor, configs=internal.configs)
