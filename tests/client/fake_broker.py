"""A connection without a socket: it keeps what the client core sends and gives prepared answers."""

from __future__ import annotations

from types import SimpleNamespace

from klog.client.cluster import Cluster
from klog.client.connection import HostPort
from klog.client.retry import Clock
from klog.protocol.apis import SERVED
from klog.protocol.errors import ConnectFailedError, ConnectionLostError

BOOT, A, B = HostPort("boot", 1), HostPort("a", 1), HostPort("b", 1)
"""The bootstrap address, and the addresses of brokers 1 and 2."""


class FakeConnection:
    """Records every request; `answers` are taken in order, an exception among them breaks the connection."""

    def __init__(self, name="broker:9092", answers=(), down=False):
        self.name = name
        self.answers = list(answers)
        self.down = down
        self.connected = False
        self.opened = 0
        self.sent = []

    def connect(self):
        if self.down:
            raise ConnectFailedError(f"cannot connect to {self}")
        self.opened += not self.connected
        self.connected = True

    def close(self):
        self.connected = False

    def version_of(self, api_key, at_most=None):
        newest = SERVED[api_key].max_version
        return newest if at_most is None else min(newest, at_most)

    def send(self, request, timeout_ms=None):
        return self._answer(request)

    def request(self, api_key, version, body, decode, timeout_ms=None):
        return decode(version, self._answer((api_key, version, b"".join(body), timeout_ms)))

    def post(self, api_key, version, body, timeout_ms=None):
        self.sent.append((api_key, version, b"".join(body), timeout_ms))

    def _answer(self, request):
        if not self.connected:
            raise ConnectionLostError(f"there is no connection to {self}")
        self.sent.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            self.close()
            raise answer
        return answer

    def __str__(self):
        return self.name


def metadata(error_code=0, leaders=(1, 2)):
    """A Metadata answer with brokers 1 and 2, and the leaders of the partitions of topic `t`."""
    partitions = [
        SimpleNamespace(partition_index=number, leader_id=leader, leader_epoch=0)
        for number, leader in enumerate(leaders)
    ]
    return SimpleNamespace(
        brokers=[SimpleNamespace(node_id=1, host="a", port=1), SimpleNamespace(node_id=2, host="b", port=1)],
        topics=[SimpleNamespace(name="t", error_code=error_code, partitions=partitions)],
    )


class FakeCluster:
    """A cluster in which every address has one connection, and a clock that only sleeping moves."""

    def __init__(self, *answers):
        """`answers` are those of the bootstrap broker."""
        self.now_s = 0.0
        self.connections = {address: FakeConnection(str(address)) for address in (BOOT, A, B)}
        self.connections[BOOT].answers += answers
        clock = Clock(lambda: self.now_s, self._sleep, lambda: 0)
        self.client = Cluster([BOOT], self.connections.__getitem__, clock, timeout_ms=1_000)

    def _sleep(self, pause_s):
        self.now_s += pause_s
