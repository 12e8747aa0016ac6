"""A request as the handler sees it, and what it needs of its connection."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from klog.formats.errors import UsageError
from klog.protocol.apis import SERVED, ApiKey, api_name
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.errors import MalformedMessageError
from klog.protocol.file_slice import BodyPart
from klog.protocol.messages import request_is_flexible
from klog.protocol.primitives import end_of, read_tags
from klog.security.principal import KafkaPrincipal
from klog.server.network.settings import Listener

_HEAD: Final = struct.Struct(">iih")  # key and version as one number, correlation id, length of the client id

# Whether the header is flexible, by key and version as one number. This takes one lookup for a request.
_FLEXIBLE: Final = {
    api.key << 16 | version: api.flexible(version)
    for api in SERVED.values()
    for version in range(api.min_version, api.max_version + 1)
}


# Given a request and the body of its answer, gives the body that is sent.
BeforeAnswer = Callable[["Request", Sequence[BodyPart] | None], Sequence[BodyPart] | None]
# Given the fields of an answer, in all versions, gives those that are sent.
Amend = Callable[[Mapping[str, Value]], Mapping[str, Value]]


class AnswerCounter(Protocol):
    """Counts the answers to some requests."""

    def sent(self, requests: int, spent_ns: int, send_ns: int) -> None:
        """The socket has taken the answers. All of them together had spent so long until they were queued,
        and then took so long to send.
        """


# Answers that are queued: what counts them, for how many requests they are, what these have spent in all, and
# since when the answers are queued, by the performance counter.
Unsent = tuple[AnswerCounter, int, int, int]


class Charge(Protocol):
    """What a request is charged to the quotas of its client, as handlers use it.

    `refused` says that the client has no right to what it asked for.
    """

    refused: bool

    @property
    def fetch_max_bytes(self) -> int:
        """More bytes than this are throttled in any case."""

    def fetch_throttle_ms(self, size_bytes: int) -> int:
        """Charges a Fetch response of this size; if the time is not 0, the response must be empty."""

    def mutate(self, partitions: int, *, strict: bool) -> bool:
        """Charges partitions that are created or deleted; False if that must not be done now."""


class Client(Protocol):
    """The connection of a request, as the request uses it."""

    listener: Listener
    peer: tuple[str, int]
    principal: KafkaPrincipal
    closed: bool
    closing: bool
    unsent: list[Unsent]

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards the answer of the request in flight."""

    def complete(self, request: Request) -> None:
        """Let the answer of a parked request be sent. Called from any thread."""

    def soon(self, run: Callable[[], None]) -> None:
        """Have its network thread do something when no request waits to be read. Called from any thread."""


class Request:
    """One request. It is answered once, by `respond` or `close_connection`, from any thread, now or later.

    - `body` is a writable view of the frame after the header. The buffer belongs to the request and stays
      valid as long as the view is kept.
    - `size_bytes` is the size of the frame with its header.
    - `received_ms` is when the frame was read, by the server's clock.
    - `on_io_thread` says that the handler may block.
    - `queued_ns` is since when the request has waited for an I/O thread, by the performance counter; 0 if it
      has not waited.
    - `answered_ns` is since when the answer has waited for the network thread; 0 if it has not waited.

    Handlers may set these:

    - `from_follower`: the client is a follower.
    - `charge` is what its client's quotas are charged; None if the client has none.
    - `before_answer` gets the body of the answer and returns the body that is sent; it may set `throttle_ms`.
    - `on_answered` is called when the answer is about to be sent.
    - `throttle_ms`: for how long the connection is not read after the answer (KIP-219).

    What stands before a handler may set these:

    - `entity` is what the handler reads instead of the body.
    - `amend` gets the fields of the handler's answer and returns those that are sent.
    """

    def __init__(self, connection: Client, frame: bytearray, received_ms: int) -> None:
        """Raises MalformedMessageError, UnsupportedApiError."""
        if len(frame) < _HEAD.size:
            raise MalformedMessageError(f"a request of {len(frame)} bytes has no room for its header")
        api, self.correlation_id, client_size = _HEAD.unpack_from(frame, 0)
        self.api_key: int = api >> 16
        self.api_version: int = (api & 0xFFFF ^ 0x8000) - 0x8000
        flexible = _FLEXIBLE.get(api)
        if flexible is None:
            flexible = request_is_flexible(self.api_key, self.api_version)
        end = _HEAD.size
        if client_size > 0:
            end = end_of(frame, end, client_size)
        # The end of the response header: tagged fields, of which there are none.
        self.header_end = b"\0" if flexible and self.api_key != ApiKey.API_VERSIONS else b""
        # Kafka reads any negative size as null.
        self._client = frame[_HEAD.size : end] if client_size >= 0 else None
        if flexible:
            end = end + 1 if len(frame) > end and frame[end] == 0 else read_tags(frame, end)[1]
        self.body = memoryview(frame)[end:]
        self.size_bytes = len(frame)
        self.connection = connection
        self.received_ms = received_ms
        self.on_io_thread = False
        self.answered = False
        self.answered_ns = 0
        self.parked = False
        self.closes = False
        self.is_framed = False
        self.from_follower = False
        self.parts: Sequence[BodyPart] | None = None
        self.queued_ns = 0
        self.throttle_ms = 0
        self.charge: Charge | None = None
        self.before_answer: BeforeAnswer | None = None
        self.on_answered: Callable[[], None] | None = None
        self.entity: Entity | None = None
        self.amend: Amend | None = None

    @property
    def client_id(self) -> str | None:
        """The name that the client gives itself."""
        return None if self._client is None else self._client.decode("utf-8", "replace")

    @property
    def listener(self) -> str:
        """The name of the listener that the client came through."""
        return self.connection.listener.name

    @property
    def principal(self) -> KafkaPrincipal:
        """Who the client is: User:ANONYMOUS unless it has authenticated."""
        return self.connection.principal

    @property
    def peer_address(self) -> str:
        """The client's IP address."""
        return self.connection.peer[0]

    def respond(self, body: Sequence[BodyPart] | None) -> None:
        """Answers with the parts of a response body; None sends nothing (a Produce request with acks=0).

        Raises UsageError if the request was answered before.
        """
        self._answer(body, closes=False)

    def close_connection(self) -> None:
        """Closes the connection instead of an answer. Raises UsageError if the request was answered
        before.
        """
        self._answer(None, closes=True)

    def _answer(self, parts: Sequence[BodyPart] | None, *, closes: bool) -> None:
        if self.before_answer is not None and not self.answered:
            parts = self.before_answer(self, parts)
        with self.connection.lock:
            if self.answered:
                raise UsageError(f"{self!r} is answered twice")
            self.parts = parts
            self.closes = closes
            # This comes last: the thread that ran the handler reads it without the lock.
            self.answered = True
            parked = self.parked
        if parked:
            self.connection.complete(self)

    def park(self) -> bool:
        """Called by the thread that ran the handler: True if the answer comes later."""
        if self.answered:
            return False
        with self.connection.lock:
            self.parked = not self.answered
            return self.parked

    def __repr__(self) -> str:
        name = f"{api_name(self.api_key)} v{self.api_version}"
        return f"<{name} #{self.correlation_id} from {self.connection}>"


class LateAnswers(Request):
    """The answers to frames of a run that are not there yet; the connection waits for them as for a request.

    `respond` takes them as they are to be sent, with their sizes and headers.
    """

    __slots__ = ()

    def __init__(self, connection: Client) -> None:  # there is no frame of its own to read
        self.connection = connection
        self.answered = False
        self.answered_ns = 0
        self.parked = True
        self.closes = False
        self.is_framed = True
        self.throttle_ms = 0
        self.parts: Sequence[BodyPart] | None = None
        self.before_answer: BeforeAnswer | None = None
        self.on_answered: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<answers that {self.connection} waits for>"
