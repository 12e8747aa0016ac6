"""A connection without a socket: it keeps what the client core sends and gives prepared answers."""

from __future__ import annotations

from klog.protocol.errors import ConnectFailedError, ConnectionLostError


class FakeConnection:
    """Records every request; `answers` are taken in order, an exception among them breaks the connection."""

    def __init__(self, name="broker:9092", answers=(), max_version=1 << 14, down=False):
        self.name = name
        self.answers = list(answers)
        self.max_version = max_version
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
        return min(self.max_version, self.max_version if at_most is None else at_most)

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
