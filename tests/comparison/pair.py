"""Kafka and klog side by side: each request goes to both, on connections of the same name.

The interleaving is fixed. After a request the pair waits until both brokers have answered it, or until both
are known to let it wait: each broker has one network thread and one I/O thread, and it answers a later
request on another connection in the meantime. Answers to earlier requests are compared when they come.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from klog.protocol.apis import ApiKey
from klog.protocol.messages import decode_response_header, encode_request_header
from tests.comparison.messages import Ask, Ids, read_answer
from tests.waiting import eventually

TIMEOUT_S: Final = 60
_SHOWN_STEPS: Final = 40
_CONTROL: Final = "control"
# Answered at once, with an error: there is no group without a name.
_BARRIER: Final = Ask(ApiKey.HEARTBEAT, 0, {"group_id": "", "generation_id": 1, "member_id": ""})
# The first one may be read together with the request before it, in any order.
_BARRIERS: Final = 3


class Connection:
    """One connection to one broker, with at most one request under way."""

    def __init__(self, port: int, name: str, tls: ssl.SSLContext | None = None) -> None:
        self._name = name
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self._received = bytearray()
        self.asked: Ask | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, ask: Ask, body: bytes) -> None:
        assert self.asked is None, f"{self._name} still waits"
        header = encode_request_header(ask.api, ask.version, 7, self._name)
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        self.asked = ask

    def receive(self) -> Any:
        """What has come; the answer's entity, or None if it is not complete yet."""
        data = self._socket.recv(1 << 20)
        assert data, f"the broker closed connection {self._name} at {self.asked}"
        self._received += data
        if len(self._received) < 4:
            return None
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) < 4 + size:
            return None
        frame, ask = memoryview(bytes(self._received[4 : 4 + size])), self.asked
        assert ask is not None, f"an answer on {self._name} that nobody waits for"
        del self._received[: 4 + size]
        assert not self._received, "two answers to one request"
        self.asked = None
        correlation_id, position = decode_response_header(ask.api, ask.version, frame)
        assert correlation_id == 7
        return read_answer(ask, frame[position:])

    def close(self) -> None:
        self._socket.close()


class Side:
    """One broker: its connections by name, and its ids."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.ids = Ids()
        self._port = port
        self._connections: dict[str, Connection] = {}

    def send(self, name: str, ask: Ask) -> dict[str, Any]:
        """Sends a request. Returns the answers to others that came meanwhile."""
        others: dict[str, Any] = {}
        if name not in self._connections:
            # A new connection may be noticed after a later request on another one.
            self._connections[name] = Connection(self._port, name)
            others = self.ask(name, _BARRIER)[1]
        self._connections[name].send(ask, self.ids.body(ask))
        return others

    def waiting(self) -> set[str]:
        """The connections that wait for an answer."""
        return {name for name, each in self._connections.items() if each.asked is not None}

    def receive(self, timeout_s: float = 0) -> dict[str, Any]:
        """The answers that have come, by connection."""
        by_file = {each.fileno(): (name, each) for name, each in self._connections.items()}
        poll = select.poll()
        for file in by_file:
            poll.register(file, select.POLLIN)
        found = {}
        for file, _ in poll.poll(timeout_s * 1000):
            name, connection = by_file[file]
            answer = connection.receive()
            if answer is not None:
                found[name] = answer
        return found

    def ask(self, name: str, ask: Ask) -> tuple[Any, dict[str, Any]]:
        """Sends a request and waits. Returns its answer, and others that came meanwhile."""
        others = self.send(name, ask)
        deadline_s = time.monotonic() + TIMEOUT_S
        while name not in others:
            assert time.monotonic() < deadline_s, f"{self.name} did not answer {ask}"
            others.update(self.receive(1))
        return others.pop(name), others

    def pass_barriers(self) -> dict[str, Any]:
        """Waits until everything that was sent before is handled. Returns the answers that came."""
        found: dict[str, Any] = {}
        for _ in range(_BARRIERS):
            found.update(self.ask(_CONTROL, _BARRIER)[1])
        found.update(self.receive())
        return found

    def close(self, names: Iterable[str] | None = None) -> None:
        for name in list(self._connections) if names is None else names:
            self._connections.pop(name).close()


class DifferentAnswersError(AssertionError):
    """Kafka and klog answered differently."""


class Pair:
    """Both brokers. `steps` counts the requests that were compared."""

    def __init__(self, kafka_port: int, klog_port: int) -> None:
        self.kafka, self.klog = Side("Kafka", kafka_port), Side("klog", klog_port)
        self.steps = 0
        self._history: deque[str] = deque(maxlen=_SHOWN_STEPS)

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.kafka, self.klog

    def waiting(self) -> set[str]:
        """The connections that wait for an answer."""
        return self.kafka.waiting()

    def send(self, name: str, ask: Ask, *, is_answered: bool = False) -> dict[str, Any]:
        """Plays one request. Returns the answers that came, by connection, which are equal on both sides.

        `is_answered` says that the request is answered soon: then its answer is among them.
        """
        self.steps += 1
        self._history.append(f"{name}: {ask}")
        found = [side.send(name, ask) for side in self._sides]
        for side, answers in zip(self._sides, found, strict=True):
            answers.update(side.pass_barriers())
        needed = {name} if is_answered else set()
        return self._agreed(found, needed)

    def ask(self, ask: Ask, name: str = _CONTROL) -> Any:
        """Plays one request that is answered at once."""
        self.steps += 1
        self._history.append(f"{name}: {ask}")
        found = []
        for side in self._sides:
            answer, others = side.ask(name, ask)
            found.append({name: answer, **others})
        return self._agreed(found, {name})[name]

    def settle(self, ask: Ask, is_settled: Callable[[Any], bool] = lambda _: True) -> Any:
        """Asks both until their answers are settled and equal: they get there in the background."""
        kafka = klog = None

        def settled() -> bool:
            nonlocal kafka, klog
            kafka, klog = (side.ids.comparable(side.ask(_CONTROL, ask)[0]) for side in self._sides)
            return kafka == klog and is_settled(kafka)

        try:
            eventually(settled, TIMEOUT_S)
        except AssertionError:
            self._fail(f"not settled: {ask}\nKafka: {kafka}\nklog:  {klog}")
        self.steps += 1
        self._history.append(f"{ask}\n    -> {kafka}")
        return kafka

    def await_answers(self, names: Iterable[str]) -> dict[str, Any]:
        """Waits for the answers on these connections."""
        return self._agreed([{}, {}], set(names))

    def _agreed(self, found: list[dict[str, Any]], needed: set[str]) -> dict[str, Any]:
        deadline_s = time.monotonic() + TIMEOUT_S
        while found[0].keys() != found[1].keys() or not needed <= found[0].keys():
            for side, answers in zip(self._sides, found, strict=True):
                answers.update(side.receive(0.005))
            if time.monotonic() > deadline_s:
                names = [sorted(each) for each in found]
                self._fail(f"Kafka answered on {names[0]}, klog on {names[1]}, awaited on {sorted(needed)}")
        # Members are known by the order in which their own answers come.
        kafka, klog = (
            {name: side.ids.comparable(answers[name]) for name in sorted(answers)}
            for side, answers in zip(self._sides, found, strict=True)
        )
        for name, answer in kafka.items():
            self._history.append(f"    -> {name}: {answer}")
            if klog[name] != answer:
                self._fail(f"on connection {name}\nKafka: {answer}\nklog:  {klog[name]}")
        return kafka

    def _fail(self, message: str) -> None:
        history = "\n".join(self._history)
        raise DifferentAnswersError(f"after {self.steps} requests:\n{history}\n{message}")

    def close(self) -> None:
        for side in self._sides:
            side.close()
