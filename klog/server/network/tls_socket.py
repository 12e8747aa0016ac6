"""A client's socket with TLS, for a server: it has the calls of a non-blocking socket that connections use.

OpenSSL would receive each record of 16 KiB with two system calls and send it with one. Here it works on
memory, and one call moves many records between that memory and the socket.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from klog.server.network.poller import READABLE, WRITABLE

# How much is received and decrypted, and how much is encrypted and sent, at once.
_RECEIVED_BYTES: Final = 256 * 1024
_SENT_BYTES: Final = 256 * 1024
# OpenSSL's memory grows to the largest piece that it is given, and stays so.
_PIECE_BYTES: Final = 64 * 1024
# Answers up to this size, in all, become one record.
_JOINED_BYTES: Final = 16 * 1024
# The largest record with its header (RFC 8446, 5.2; in TLS 1.2 it is longer: RFC 5246, 6.2.3).
_RECORD_MAX_BYTES: Final = 5 + 16 * 1024 + 2048
_DONT_WAIT: Final = getattr(socket, "MSG_DONTWAIT", 0)
# How much of TLS itself, such as answers to changes of keys, may wait for a client that does not read.
_WAITING_MAX_BYTES: Final = 16 * 1024


class TlsSocket:
    """Owns a socket. What fails is an OSError of the socket, or an ssl.SSLError.

    `holds_received` says that there may be bytes of the client here, which no poller reports.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._sock = sock
        # What is to be sent, and how many bytes of the caller it has.
        self._encrypted: list[memoryview] = []
        self._owed_bytes = 0
        self._ended = False
        self._failure: str | None = None
        self.holds_received = False
        self.getpeercert = self._tls.getpeercert
        self.close, self.fileno = sock.close, sock.fileno
        self.setblocking, self.shutdown = sock.setblocking, sock.shutdown

    def continue_handshake(self) -> int | None:
        """Goes on as far as it can. Returns what to wait for, None if the handshake is complete."""
        while True:
            try:
                self._tls.do_handshake()
                complete = True
            except ssl.SSLWantReadError:
                complete = False
            except ssl.SSLError:
                self._send_alert()
                raise
            try:
                self._send_encrypted()
            except BlockingIOError:
                return WRITABLE
            if complete:
                # The first requests may have come with the end of the handshake.
                self.holds_received = True
                return None
            try:
                data = self._sock.recv(_RECORD_MAX_BYTES)
            except BlockingIOError:
                return READABLE
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def recv(self, size_bytes: int) -> bytes:
        """At most so many bytes; none if the client has ended the connection."""
        buffer = bytearray(size_bytes)
        with memoryview(buffer) as view:
            return bytes(view[: self.recv_into(view)])

    def recv_into(self, view: memoryview, _size_bytes: int = 0, flags: int = 0) -> int:
        """Fills the view with what has come, and returns how many bytes that are; 0 if the client has ended
        the connection. With MSG_WAITALL, on a socket that blocks, it waits until the view is full or the
        client pauses.
        """
        filled = self._decrypt(view, 0, 0) if self.holds_received else 0
        while not self._is_over() and (not filled or (flags and filled < len(view))):
            try:
                data = self._receive(len(view) - filled, flags)
            except BlockingIOError:
                if not filled:
                    raise
                break
            if not data:
                break
            with memoryview(data) as received:
                for at in range(0, len(received), _PIECE_BYTES):
                    self._incoming.write(received[at : at + _PIECE_BYTES])
                    is_last = at + _PIECE_BYTES >= len(received)
                    filled = self._decrypt(view, filled, 1 if is_last else _RECORD_MAX_BYTES)
                    if self._is_over():
                        break
        return filled

    def _is_over(self) -> bool:
        """Whether nothing of the client's can come any more."""
        return self._ended or self._failure is not None

    def _receive(self, room_bytes: int, flags: int) -> bytes:
        """No more than fits into the view, so that nothing is kept here but a part of a record."""
        if flags:
            # OpenSSL may hold all but the end of a record. No more than this is sure to come.
            certain_bytes = room_bytes - _RECORD_MAX_BYTES
            if certain_bytes >= _RECORD_MAX_BYTES:
                return self._sock.recv(min(certain_bytes, _RECEIVED_BYTES), flags)
        return self._sock.recv(min(max(room_bytes, _RECORD_MAX_BYTES), _RECEIVED_BYTES))

    def _decrypt(self, view: memoryview, filled: int, least_bytes: int) -> int:
        """Fills the view from `filled` on, as long as OpenSSL has at least so many bytes before it.

        Returns how many bytes the view then has. To find that a record is not complete costs as much as to
        decrypt it.
        """
        if self._failure is not None:
            raise ssl.SSLError(self._failure)
        incoming = self._incoming
        end, read = len(view), self._tls.read
        try:
            while filled < end and incoming.pending >= least_bytes:
                size = read(end - filled, view[filled:])
                if not size:
                    self._ended = True
                    break
                filled += size  # type: ignore[operator]  # with a buffer it returns a number
            self.holds_received = self._ended or incoming.pending > 0 or self._tls.pending() > 0
        except ssl.SSLWantReadError:
            self.holds_received = False
        except ssl.SSLError as error:
            self._send_alert()
            if not filled:
                raise
            # The client gets its answers to what came before.
            self._failure = str(error)
            self.holds_received = True
        if self._outgoing.pending:
            self._answer_client()
        return filled

    def _answer_client(self) -> None:
        """Sends what TLS itself has to say, or keeps it until there is an answer to send, too."""
        with suppress(BlockingIOError):
            self._send_encrypted()
        if sum(map(len, self._encrypted)) > _WAITING_MAX_BYTES:
            raise OSError("the client makes TLS answer, and does not read that")

    def _send_alert(self) -> None:
        """Tells the client why its connection ends, if it still listens."""
        with suppress(OSError):
            self._send_encrypted()

    def send(self, buffer: bytes | bytearray | memoryview) -> int:
        """As `sendmsg`, for one buffer."""
        return self.sendmsg((buffer,))

    def sendmsg(
        self,
        buffers: Sequence[bytes | bytearray | memoryview],
        _ancillary: Iterable[object] = (),
        _flags: int = 0,
    ) -> int:
        """Encrypts the first bytes, and returns how many of them the socket has taken.

        After a BlockingIOError the next call must be for the same bytes, with others behind them or without.
        """
        if not self._owed_bytes:
            self._encrypt(buffers)
        self._send_encrypted()
        sent_bytes, self._owed_bytes = self._owed_bytes, 0
        return sent_bytes

    def _encrypt(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        if len(buffers) > 1 and sum(map(len, buffers)) <= _JOINED_BYTES:
            buffers = [b"".join(buffers)]
        for buffer in buffers:
            view = memoryview(buffer)
            for at in range(0, len(view), _PIECE_BYTES):
                if self._owed_bytes >= _SENT_BYTES:
                    return
                self._owed_bytes += self._tls.write(view[at : at + _PIECE_BYTES])
                self._encrypted.append(memoryview(self._outgoing.read()))

    def _send_encrypted(self) -> None:
        """Raises BlockingIOError if the socket does not take all of it now."""
        encrypted = self._encrypted
        if self._outgoing.pending:
            encrypted.append(memoryview(self._outgoing.read()))
        while encrypted:
            # An I/O thread makes the socket block while it receives.
            sent = self._sock.sendmsg(encrypted, (), _DONT_WAIT)
            while encrypted and sent >= len(encrypted[0]):
                sent -= len(encrypted.pop(0))
            if sent:
                encrypted[0] = encrypted[0][sent:]


Socket: TypeAlias = socket.socket | TlsSocket
"""The socket of a connection."""
