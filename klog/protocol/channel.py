"""Connects to a broker and exchanges one request at a time, with an answer or an error in a limited time.

Rules: the protocol guide, "Protocol Structure", and KIP-511 for the versions that the broker supports. It is
the socket below `klog.client`, which chooses brokers and retries.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NoReturn, Self, TypeVar

from klog.protocol.answer_memory import LEAST_BYTES, AnswerMemory
from klog.protocol.api_versions import (
    ApiVersionsResponse,
    ClientSoftware,
    VersionRange,
    decode_api_versions_response,
    encode_api_versions_request,
)
from klog.protocol.apis import SPOKEN, ApiKey, api_name
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import (
    ChannelError,
    ConnectFailedError,
    ConnectionLostError,
    ConnectRefusedError,
    MalformedMessageError,
    RequestTimeoutError,
    UnexpectedResponseError,
    UnsupportedApiError,
)
from klog.protocol.messages import (
    decode_response,
    decode_response_header,
    encode_request,
    encode_request_header,
)
from klog.protocol.primitives import Buffer

_SIZE: Final = struct.Struct(">i")
_FIRST_BYTES: Final = 1 << 20
_SMALL_FRAME_BYTES: Final = 4096
_INT32_MAX: Final = (1 << 31) - 1
_USED_PART_OF_LOGIN: Final = 0.85
_TIMEVAL: Final = struct.Struct("@ll")
# By how much a call may exceed the time that is left; the limit of a socket costs two system calls.
_IMPRECISION: Final = 1.01

# A broker that wants a login tells its versions, and closes the connection at any other request.
_LOGIN: Final = "if that port needs a login: security.protocol, sasl.mechanism and sasl.jaas.config"

SYSTEM_BUFFER: Final = -1
"""The size of a socket's buffer is left to the operating system."""

_Answer = TypeVar("_Answer")

# Brokers count clients by this name and version (KIP-511): letters, digits, dots and dashes only.
KLOG: Final = ClientSoftware("klog", "0.1")


@dataclass(eq=False, repr=False)
class Channel:
    """A connection to one broker. `with Channel(...)` connects and closes.

    Any ChannelError leaves the channel closed; `connect` opens it again. One thread at a time uses it, but
    another thread may call `close` to end a wait. `timeout_ms` limits connecting and each request, unless a
    request has its own limit. `authenticate` is called with the channel when the versions are known, before
    any other request. It returns for how many ms the login is valid (0: for ever), and is called again before
    a request when most of that time is over (KIP-368). Views of an answer are valid as long as they are kept.
    `receive_buffer_bytes` is SO_RCVBUF.
    """

    host: str
    port: int
    _: KW_ONLY
    client_id: str = "klog"
    timeout_ms: int = 30_000
    tls: ssl.SSLContext | None = None
    software: ClientSoftware = KLOG
    authenticate: Callable[[Channel], int] | None = None
    receive_buffer_bytes: int = SYSTEM_BUFFER
    versions: Mapping[int, VersionRange] = field(default_factory=dict, init=False)
    _socket: socket.socket | None = field(default=None, init=False)
    _correlation_id: int = field(default=0, init=False)
    _memory: AnswerMemory = field(default_factory=AnswerMemory, init=False)
    _renewal_s: float | None = field(default=None, init=False)
    _first_id: int = field(default=-1, init=False)  # of the first request after the versions
    _longest_wait_s: float = field(default=0.0, init=False)  # how long the socket lets one call wait

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        """Whether the connection is open, as far as this side knows."""
        return self._socket is not None

    def connect(self) -> None:
        """Connects and asks for the supported versions; does nothing if the channel is connected.

        Raises ConnectFailedError, what `exchange` raises, and what `authenticate` raises.
        """
        if self._socket is not None:
            return
        try:
            self._socket, self._longest_wait_s = self._open(), 0.0
        except ConnectionRefusedError as error:
            raise ConnectRefusedError(f"cannot connect to {self}: {error}") from error
        except OSError as error:
            raise ConnectFailedError(f"cannot connect to {self}: {error}") from error
        try:
            self.versions = self._negotiate().apis
        except ConnectionLostError as error:
            if self.tls is None:
                error.cure = "if that port is for TLS, security.protocol=SSL"
            raise
        self._first_id = self._correlation_id + 1
        self._log_in()

    def _log_in(self) -> None:
        self._renewal_s = None
        if self.authenticate is None:
            return
        try:
            lifetime_ms = self.authenticate(self)
        except BaseException:
            self.close()
            raise
        if lifetime_ms:
            self._renewal_s = time.monotonic() + lifetime_ms * _USED_PART_OF_LOGIN / 1000

    def _renew_login(self) -> None:
        """Logs in again if most of the login's time is over."""
        if self._renewal_s is not None and self._socket is not None and time.monotonic() >= self._renewal_s:
            self._log_in()

    def _open(self) -> socket.socket:
        sock = self._connect_socket()
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if self.tls is None else self.tls.wrap_socket(sock, server_hostname=self.host)
        except OSError as error:
            sock.close()
            if self.tls is not None and _is_no_tls(error):
                raise ConnectFailedError(
                    f"{self} does not speak TLS: {error}", cure="security.protocol=PLAINTEXT, or another port"
                ) from error
            raise

    def _connect_socket(self) -> socket.socket:
        """Connects to the first address of the host that accepts. Raises OSError."""
        size_bytes, timeout_s = self.receive_buffer_bytes, self.timeout_ms / 1000
        if size_bytes == SYSTEM_BUFFER:
            return socket.create_connection((self.host, self.port), timeout_s)
        failures: list[OSError] = []
        for family, kind, protocol, _, address in socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM
        ):
            sock = socket.socket(family, kind, protocol)
            try:
                # Before connecting: the window scale is agreed upon then.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)
                sock.settimeout(timeout_s)
                sock.connect(address)
            except OSError as error:
                sock.close()
                failures.append(error)
                continue
            return sock
        raise failures[0]

    def close(self) -> None:
        """Closes the connection. A thread that waits for an answer gets ConnectionLostError."""
        sock, self._socket = self._socket, None
        if sock is None:
            return
        with suppress(OSError):  # the peer may have closed it already
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def version_of(self, api_key: int, at_most: int | None = None) -> int:
        """The highest version of an API that both sides support. Raises UnsupportedApiError."""
        ours = SPOKEN.get(api_key)
        theirs = self.versions.get(api_key)
        if ours is None or theirs is None:
            raise UnsupportedApiError(f"{self} does not support {api_name(api_key)}")
        highest = min(ours.max_version, theirs.max_version, ours.max_version if at_most is None else at_most)
        if highest < max(ours.min_version, theirs.min_version):
            versions = f"{api_name(api_key)} {theirs.min_version} to {theirs.max_version}"
            raise UnsupportedApiError(f"{self} supports {versions}, none of which can be used here")
        return highest

    def send(self, request: Entity, timeout_ms: int | None = None) -> Entity:
        """Sends a request entity and waits for the response's entity.

        Raises ConnectionLostError, RequestTimeoutError, UnexpectedResponseError; UnencodableMessageError
        for a request that cannot be written.
        """
        api_key, version = int(request.__api_key__), int(request.__version__)

        def decode(version: int, body: memoryview) -> Entity:
            return decode_response(api_key, version, body)

        return self.request(api_key, version, (encode_request(request),), decode, timeout_ms)

    def request(
        self,
        api_key: int,
        version: int,
        body: Sequence[Buffer],
        decode: Callable[[int, memoryview], _Answer],
        timeout_ms: int | None = None,
    ) -> _Answer:
        """Sends a request body in parts, waits, and decodes the response's body for its version.

        Raises ConnectionLostError, RequestTimeoutError, UnexpectedResponseError.
        """
        answer = self.exchange(api_key, version, body, timeout_ms)
        try:
            return decode(version, answer)
        except MalformedMessageError as error:
            raise self._unreadable(error) from error

    def exchange(
        self, api_key: int, version: int, body: Sequence[Buffer], timeout_ms: int | None = None
    ) -> memoryview:
        """Sends a request body in parts and waits for the response's body.

        Raises ConnectionLostError, RequestTimeoutError, UnexpectedResponseError.
        """
        self._renew_login()
        deadline_s = self._deadline_s(timeout_ms)
        self._write(api_key, version, body, deadline_s)
        frame = self._read_frame(deadline_s)
        try:
            correlation_id, position = decode_response_header(api_key, version, frame)
        except MalformedMessageError as error:
            raise self._unreadable(error) from error
        if correlation_id != self._correlation_id:
            self.close()
            sent = f"request {self._correlation_id}"
            raise UnexpectedResponseError(f"{self} answered request {correlation_id}, but {sent} was sent")
        return frame[position:]

    def post(self, api_key: int, version: int, body: Sequence[Buffer], timeout_ms: int | None = None) -> None:
        """Sends a request that has no response (Produce with acks=0).

        Raises ConnectionLostError, RequestTimeoutError.
        """
        self._renew_login()
        self._write(api_key, version, body, self._deadline_s(timeout_ms))

    def _negotiate(self) -> ApiVersionsResponse:
        """Asks for the supported versions, in our highest version, then in one that the broker names."""
        version = SPOKEN[ApiKey.API_VERSIONS].max_version
        response = self._ask_versions(version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = response.apis.get(ApiKey.API_VERSIONS)
            response = self._ask_versions(min(version, known.max_version) if known else 0)
        if response.error_code != ErrorCode.NONE:
            self.close()
            raise UnexpectedResponseError(
                f"{self} does not say what it supports: error {response.error_code}"
            )
        return response

    def _ask_versions(self, version: int) -> ApiVersionsResponse:
        body = encode_api_versions_request(version, self.software)
        return self.request(ApiKey.API_VERSIONS, version, (body,), decode_api_versions_response)

    def _deadline_s(self, timeout_ms: int | None) -> float:
        return time.monotonic() + (self.timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def _write(self, api_key: int, version: int, body: Sequence[Buffer], deadline_s: float) -> None:
        self._correlation_id = (self._correlation_id + 1) & _INT32_MAX
        header = encode_request_header(api_key, version, self._correlation_id, self.client_id)
        size = len(header) + sum(map(len, body))
        parts: list[Buffer] = [_SIZE.pack(size) + header, *body]
        if size <= _FIRST_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            sent = self._send(part, deadline_s)
            while sent < len(part):
                sent += self._send(memoryview(part)[sent:], deadline_s)

    def _read_frame(self, deadline_s: float) -> memoryview:
        """Reads one frame. A small one comes with its size in one piece; nothing can follow it."""
        first = self._receive(_SMALL_FRAME_BYTES, deadline_s)
        while len(first) < _SIZE.size:
            first += self._receive(_SMALL_FRAME_BYTES, deadline_s)
        size = _SIZE.unpack_from(first)[0]
        start = memoryview(first)[_SIZE.size :]
        if len(start) == size:
            return start
        if len(start) > size:
            self.close()
            sent = f"a frame of {size} bytes" if size < 0 else "more than one answer"
            raise UnexpectedResponseError(f"{self} sent {sent}")
        return self._receive_rest(start, size, deadline_s)

    def _receive_rest(self, start: memoryview, size: int, deadline_s: float) -> memoryview:
        """Reads what is missing of `size` bytes into a buffer that grows with what arrives."""
        filled = len(start)
        is_large = size >= LEAST_BYTES
        buffer = self._memory.take() if is_large else bytearray()
        if len(buffer) < min(size, _FIRST_BYTES):
            buffer = bytearray(min(size, _FIRST_BYTES))
        buffer[:filled] = start
        while filled < size:
            if filled == len(buffer):
                buffer += bytes(min(size - filled, filled))
            filled += self._receive_into(buffer, filled, size, deadline_s)
        frame = memoryview(buffer)[:size]
        if is_large:
            self._memory.keep(buffer)
        return frame

    # -- the socket: one call each --------------------------------------------------------------------------

    def _send(self, data: Buffer, deadline_s: float) -> int:
        """Sends what the socket takes; how many bytes that were."""
        try:
            return self._socket_until(deadline_s).send(data)
        except OSError as error:
            raise self._broken(error) from error

    def _receive(self, size: int, deadline_s: float) -> bytes:
        """Reads what is there, at most `size` bytes."""
        try:
            received = self._socket_until(deadline_s).recv(size)
        except OSError as error:
            raise self._broken(error) from error
        return received or self._refuse_end()

    def _receive_into(self, buffer: bytearray, filled: int, end: int, deadline_s: float) -> int:
        """Reads what is there into a buffer, from a position to `end`; how many bytes that were."""
        try:
            with memoryview(buffer) as whole, whole[filled:end] as rest:
                received = self._socket_until(deadline_s).recv_into(rest)
        except OSError as error:
            raise self._broken(error) from error
        return received or self._refuse_end()

    def _socket_until(self, deadline_s: float) -> socket.socket:
        """The socket, for one call that waits until then at most."""
        sock = self._socket
        if sock is None:
            raise ConnectionLostError(f"there is no connection to {self}")
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        # Almost always it is as the last call left it.
        if not left_s <= self._longest_wait_s <= left_s * _IMPRECISION:
            _limit_waits(sock, left_s)
            self._longest_wait_s = left_s
        return sock

    def _refuse_end(self) -> NoReturn:
        self.close()
        is_refused = self.authenticate is None and self._correlation_id == self._first_id
        raise ConnectionLostError(f"{self} closed the connection", cure=_LOGIN if is_refused else None)

    def _broken(self, error: OSError) -> ChannelError:
        """Closes the connection: a late answer would be taken for the answer to the next request."""
        self.close()
        if isinstance(error, TimeoutError | BlockingIOError):
            return RequestTimeoutError(f"{self} did not answer in time")
        return ConnectionLostError(f"the connection to {self} broke: {error}")

    def _unreadable(self, error: MalformedMessageError) -> UnexpectedResponseError:
        self.close()
        return UnexpectedResponseError(f"the answer of {self} cannot be read: {error}")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _is_no_tls(error: OSError) -> bool:
    """Whether a peer has ended a TLS handshake as one does that does not speak TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return False
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return isinstance(error, ConnectionResetError | ssl.SSLEOFError) or reason == "WRONG_VERSION_NUMBER"


def _limit_waits(sock: socket.socket, wait_s: float) -> None:
    """Let each call wait for so long at most.

    The kernel does that with fewer system calls than Python, whose timeout is a `poll` before each call. It
    is no use to TLS, whose library would call again.
    """
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(wait_s)
        return
    sock.settimeout(None)
    seconds, microseconds = divmod(max(int(wait_s * 1_000_000), 1), 1_000_000)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(seconds, microseconds))
