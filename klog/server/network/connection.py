"""One client's connection: its socket, what was read and is not yet a frame, what is to be sent, and who
owns it.

At any time one thread owns a connection: its network thread, or the I/O thread that it was handed to. All
but `lock`, which guards the answer of the request in flight, is the owner's alone.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from typing import TYPE_CHECKING, Final

from klog.protocol.file_slice import FileSlice
from klog.server.network.large_frame import LargeFrame
from klog.server.network.outbound import Outbound
from klog.server.network.principal import ANONYMOUS
from klog.server.network.settings import Listener

if TYPE_CHECKING:
    from klog.server.network.network_thread import NetworkThread
    from klog.server.network.request import Request

_FRAME_HEAD: Final = struct.Struct(">ii")
_JOIN_MAX_BYTES: Final = 16 * 1024


class Connection:
    """See the module. `in_flight` is the request whose answer is outstanding; nothing is read meanwhile, and
    while it is `starved` of memory neither. `taken_bytes` is what its request has of the memory pool.
    `principal` is who the client is: User:ANONYMOUS until it has authenticated.
    """

    __slots__ = (
        "closed",
        "closing",
        "frame",
        "handed_over",
        "handshaking",
        "in_flight",
        "last_active_ms",
        "listener",
        "lock",
        "mask",
        "network",
        "outbound",
        "peer",
        "pending",
        "principal",
        "socket",
        "starved",
        "taken_bytes",
    )

    def __init__(
        self, sock: socket.socket, listener: Listener, peer: tuple[str, int], network: NetworkThread
    ) -> None:
        self.socket = sock
        self.listener = listener
        self.peer = peer
        self.network = network
        self.lock = threading.Lock()
        self.outbound = Outbound(tls=listener.tls is not None)
        self.pending: bytes | bytearray = b""
        self.frame: LargeFrame | None = None
        self.in_flight: Request | None = None
        self.mask: int | None = None
        self.handed_over = False
        self.handshaking = listener.tls is not None
        self.closing = False
        self.closed = False
        self.starved = False
        self.taken_bytes = 0
        self.principal = ANONYMOUS
        self.last_active_ms = 0

    @property
    def fd(self) -> int:
        """The socket's descriptor, -1 once closed."""
        return self.socket.fileno()

    def is_busy(self) -> bool:
        """Whether it is with an I/O thread, waits for an answer, or has something left to send."""
        return self.handed_over or self.in_flight is not None or self.outbound.size_bytes > 0

    def waits_for_broker(self) -> bool:
        """Whether the client can do nothing but wait: for an I/O thread, an answer or memory."""
        return self.handed_over or self.in_flight is not None or self.starved

    def holds_decrypted(self) -> bool:
        """Whether the TLS layer holds bytes that no poller will report."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def give_back_memory(self) -> None:
        """The frame that has been read, or was to be, is of no use any more."""
        if self.taken_bytes and self.network.memory is not None:
            self.network.memory.give_back(self.taken_bytes)
        self.taken_bytes = 0

    def queue_answer(self, request: Request) -> None:
        """Puts the answer of the request in flight behind what is to be sent. Raises StorageError."""
        self.in_flight = None
        if self.taken_bytes:
            self.give_back_memory()
        if request.closes:
            self.closing = True
        parts = request.parts
        if parts is None:
            return
        tags = request.header_end
        size = 4 + len(tags)
        for part in parts:
            size += part.size_bytes if isinstance(part, FileSlice) else len(part)
        head = _FRAME_HEAD.pack(size, request.correlation_id) + tags
        add = self.outbound.add
        if len(parts) == 1 and size <= _JOIN_MAX_BYTES and isinstance(parts[0], bytes):
            add(head + parts[0])
            return
        add(head)
        for part in parts:
            add(part)

    def __repr__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]} on {self.listener.name}"
