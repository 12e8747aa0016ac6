"""Brokers that other brokers connect to: each answers requests as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from klog.client.connection import ReconnectingConnection
from klog.protocol.entity_fields import Entity
from klog.protocol.errors import ConnectionLostError, ConnectRefusedError
from klog.protocol.messages import decode_request, encode_response
from klog.protocol.primitives import Buffer

T = TypeVar("T")
Answer = Callable[[Entity], Entity]


class FakeBroker:
    """Answers each request with `answer`; a ChannelError that it raises breaks the connection."""

    def __init__(self, answer: Answer, version: int = 4) -> None:
        self.answer = answer
        self.version = version
        self.is_up = True
        self.requests: list[Entity] = []
        # Cleared: requests wait before they are answered.
        self.may_answer = threading.Event()
        self.may_answer.set()


class FakeConnection:
    """A connection to one of them."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.connected = False

    def connect(self) -> None:
        if not self._broker.is_up:
            raise ConnectRefusedError("nobody listens")
        self.connected = True

    def close(self) -> None:
        self.connected = False
        self._broker.may_answer.set()

    def version_of(self, api_key: int, at_most: int | None = None) -> int:
        return self._broker.version

    def send(self, request: Entity, timeout_ms: int | None = None) -> Entity:
        if not self._broker.is_up:
            self.connected = False
            raise ConnectionLostError("the broker is gone")
        self._broker.requests.append(request)
        self._broker.may_answer.wait()
        return self._broker.answer(request)

    def request(
        self,
        api_key: int,
        version: int,
        body: Sequence[Buffer],
        decode: Callable[[int, memoryview], T],
        timeout_ms: int | None = None,
    ) -> T:
        answer = self.send(decode_request(api_key, version, b"".join(body)), timeout_ms)
        return decode(version, memoryview(encode_response(answer)))


def connecting(brokers: dict[int, FakeBroker]) -> Callable[[int], ReconnectingConnection]:
    """Makes connections to brokers by id."""

    def connect(broker_id: int) -> ReconnectingConnection:
        return ReconnectingConnection(lambda: FakeConnection(brokers[broker_id]))

    return connect
