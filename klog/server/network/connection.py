"""One client's connection: its socket, its phase, what was read beyond the last frame, what is to be sent.

At any time one thread owns a connection: its network thread, or the I/O thread that it was handed to. Only
the owner uses it, except for `lock`, which guards the answer of the request in flight.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from klog.protocol.file_slice import FileSlice
from klog.security.authentication.steps import Authentication, Session
from klog.security.principal import ANONYMOUS, KafkaPrincipal
from klog.server.network.connection_traffic import ConnectionTraffic
from klog.server.network.large_frame import LargeFrame
from klog.server.network.memory_pool import MemoryPool
from klog.server.network.outbound import Outbound
from klog.server.network.page_cache import IsCached, is_cached
from klog.server.network.phases import Phase
from klog.server.network.request import Request, Unsent
from klog.server.network.settings import Listener
from klog.server.network.tls_socket import Socket, TlsSocket

_FRAME_HEAD: Final = struct.Struct(">ii")
_JOIN_MAX_BYTES: Final = 16 * 1024


class Network(Protocol):
    """The network thread of a connection, as the connection and I/O threads use it."""

    @property
    def memory(self) -> MemoryPool | None:
        """Where large requests take their memory from."""

    @property
    def draining(self) -> bool:
        """True if the thread reads no more requests."""

    def take_back(self, connection: Connection) -> None:
        """Own a connection again that was handed over. Called from any thread."""

    def complete(self, connection: Connection, request: Request) -> None:
        """Send the answer of a parked request. Called from any thread."""

    def soon(self, connection: Connection, run: Callable[[], None]) -> None:
        """Do something for a connection when no request waits to be read. Called from any thread."""


class Connection:
    """See the module.

    - `phase` says what the frames are; `authentication` takes them until it has named a principal.
    - `principal` is who the client is: User:ANONYMOUS until it has authenticated. `session` is set if it must
      authenticate again.
    - Nothing is read while a request is `in_flight` (its answer is outstanding), while the connection is
      `held` (it waits for memory, or for the server to open), and while it is `muted` until a deadline of its
      network thread.
    - `throttle_ms` is for how long to mute the connection after the answers that are queued.
    - `taken_bytes` is the part of the memory pool that its request has.
    - `unsent` has the answers that are queued, to be counted when the socket has taken all.
    - `traffic` is what it has moved of late, by which its network thread is chosen.
    - `closing` says that it closes when all is sent.
    """

    def __init__(
        self,
        sock: Socket,
        listener: Listener,
        peer: tuple[str, int],
        network: Network,
        is_cached: IsCached = is_cached,
    ) -> None:
        self.socket = sock
        self.listener = listener
        self.peer = peer
        self.network = network
        self.lock = threading.Lock()
        self.outbound = Outbound(tls=listener.tls is not None, is_cached=is_cached)
        self.pending: bytes | bytearray = b""
        self.frame: LargeFrame | None = None
        self.in_flight: Request | None = None
        self.mask: int | None = None
        self.handed_over = False
        self.closing = False
        self.closed = False
        self.held = False
        self.muted = False
        self.throttle_ms = 0
        self.taken_bytes = 0
        self.principal = ANONYMOUS
        self.session: Session | None = None
        self.authentication: Authentication | None = None
        self.phase = Phase.TLS_HANDSHAKE
        if listener.tls is None:
            self.begin_authentication()
        self.last_active_ms = 0
        self.traffic = ConnectionTraffic()
        self.unsent: list[Unsent] = []

    @property
    def fd(self) -> int:
        """The socket's descriptor, -1 once closed."""
        return self.socket.fileno()

    def begin_authentication(self) -> None:
        """Enters the phase after the TLS handshake: authentication if the listener asks for it, else open."""
        if self.listener.authentication is None:
            self.phase = Phase.OPEN
        else:
            self.authentication = self.listener.authentication()
            self.phase = Phase.AUTHENTICATION

    def authenticate_again(self, session: Session) -> None:
        """Goes back to authentication, by the client's wish. `principal` stays."""
        self.authentication = session.renew()
        self.session = None
        self.phase = Phase.AUTHENTICATION

    def open(self, principal: KafkaPrincipal, session: Session | None = None) -> None:
        """Enters the last phase: the client has authenticated, for the time of a session if there is one."""
        self.principal = principal
        self.session = session
        self.authentication = None
        self.phase = Phase.OPEN

    def is_busy(self) -> bool:
        """Whether it is with an I/O thread, waits for an answer, or has something left to send."""
        return self.handed_over or self.in_flight is not None or self.outbound.size_bytes > 0

    def may_move(self) -> bool:
        """Whether another network thread may take it: it is open, and no other thread uses it."""
        return (
            self.phase is Phase.OPEN
            and not (self.closed or self.closing or self.waits_for_broker())
            and self.frame is None
        )

    def waits_for_broker(self) -> bool:
        """Whether the client can do nothing but wait: for an I/O thread, an answer, memory or a deadline."""
        return self.handed_over or self.in_flight is not None or self.held or self.muted

    def holds_received(self) -> bool:
        """Whether bytes may have come that no poller will report."""
        return isinstance(self.socket, TlsSocket) and self.socket.holds_received

    def give_back_memory(self) -> None:
        """Returns the memory of a frame that was answered, or that will not be read any more."""
        if self.taken_bytes and self.network.memory is not None:
            self.network.memory.give_back(self.taken_bytes)
        self.taken_bytes = 0

    def complete(self, request: Request) -> None:
        """Let its network thread send the answer of a parked request. Called from any thread."""
        self.network.complete(self, request)

    def soon(self, run: Callable[[], None]) -> None:
        """Have its network thread do something when no request waits to be read. Called from any thread."""
        self.network.soon(self, run)

    def queue_answer(self, request: Request) -> None:
        """Queues the answer of the request in flight behind what is to be sent. Raises StorageError."""
        self.in_flight = None
        if self.taken_bytes:
            self.give_back_memory()
        if request.closes:
            self.closing = True
        if request.throttle_ms:
            self.throttle_ms = request.throttle_ms
        parts = request.parts
        if parts is None:
            return
        if request.is_framed:
            for part in parts:
                self.outbound.add(part)
            return
        tags = request.header_end
        size = 4 + len(tags)
        for part in parts:
            size += part.size_bytes if isinstance(part, FileSlice) else len(part)
        head = _FRAME_HEAD.pack(size, request.correlation_id) + tags
        add = self.outbound.add
        begin = 0
        if parts and isinstance(parts[0], bytes) and len(parts[0]) <= _JOIN_MAX_BYTES:
            # In one item they leave together with a slice behind them.
            head += parts[0]
            begin = 1
        add(head)
        for part in parts[begin:]:
            add(part)

    def count_sent(self) -> None:
        """Counts the answers that were queued: the socket has taken all, or will take no more."""
        now_ns = time.perf_counter_ns()
        for counter, requests, spent_ns, queued_ns in self.unsent:
            counter.sent(requests, spent_ns, now_ns - queued_ns)
        self.unsent.clear()

    def __repr__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]} on {self.listener.name}"
