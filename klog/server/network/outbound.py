"""What is still to be sent on one connection: buffers, file slices, and bytes that are made as they are sent.

No call waits for the socket.

MSG_MORE is set only if a file slice follows; otherwise the kernel would hold the answer back for 200 ms. A
partial send keeps its rest. sendfile returns 0 if the file has become shorter, which is an error.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from klog.formats.errors import StorageError
from klog.kernel.twins import compiled_or_twin
from klog.protocol.file_slice import BodyPart, FileSlice, HasFileno, LazyBytes
from klog.server.network.page_cache import IsCached, is_cached
from klog.server.network.tls_socket import Socket

# Below this, copying a slice is cheaper than a sendfile call and the packet it ends.
_COPY_MAX_BYTES: Final = 16 * 1024
_TLS_CHUNK_BYTES: Final = 256 * 1024
_GATHER_MAX: Final = 64
_MORE: Final = getattr(socket, "MSG_MORE", 0)

if TYPE_CHECKING:
    from klog.server.network import _pyfile_sending as _file_sending
else:
    _file_sending = compiled_or_twin(
        "klog.server.network._file_sending", "klog.server.network._pyfile_sending"
    )
send_with_file = _file_sending.send_with_file


class Outbound:
    """The queue of one connection, used by the thread that owns the connection.

    `is_cold` says that the last `flush` stopped at a slice that would have to be read from a disk, or at
    bytes that are to be made.
    """

    __slots__ = ("_is_cached", "_items", "_tls", "is_cold", "size_bytes")

    def __init__(self, *, tls: bool, is_cached: IsCached = is_cached) -> None:
        self._items: deque[BodyPart] = deque()
        self._tls = tls
        self._is_cached = is_cached
        self.is_cold = False
        self.size_bytes = 0

    def add(self, part: BodyPart) -> None:
        """Appends a part. Raises StorageError when a small slice cannot be read."""
        if isinstance(part, FileSlice):
            if part.size_bytes <= _COPY_MAX_BYTES and (not part.size_bytes or self._is_cached(part)):
                part = _read(part, part.size_bytes)
            else:
                self.size_bytes += part.size_bytes
                self._items.append(part)
                return
        if size := len(part):
            self.size_bytes += size
            self._items.append(part)

    def flush(self, sock: Socket, *, may_wait: bool = False) -> bool:
        """Sends what the socket takes now; True if nothing is left.

        Only if it `may_wait` are slices sent that are not in the page cache, and bytes made. Raises OSError
        if the connection is broken, StorageError if a file ended before its slice.
        """
        items = self._items
        self.is_cold = False
        try:
            while items:
                first = items[0]
                part = first if isinstance(first, FileSlice) else self._slice_behind(first)
                if part is None:
                    if not isinstance(first, LazyBytes):
                        self._send_buffers(sock)
                    elif may_wait:
                        self._make(first)
                    else:
                        self.is_cold = True
                        return False
                elif not may_wait and not self._is_cached(part):
                    if part is not first:
                        self._send_buffers(sock)
                        continue
                    self.is_cold = True
                    return False
                elif self._tls:
                    self._load(part)
                    self._send_buffers(sock)
                else:
                    self._send_slice(cast("socket.socket", sock), part)
        except BlockingIOError:
            return False
        return True

    def clear(self) -> None:
        """Forgets what is still to be sent."""
        self._items.clear()
        self.size_bytes = 0
        self.is_cold = False

    def _send_buffers(self, sock: Socket) -> None:
        items = self._items
        if len(items) == 1:
            self._consume(sock.send(items[0]))  # type: ignore[arg-type]  # flush() saw that it is a buffer
            return
        buffers: list[bytes | bytearray | memoryview] = []
        follows_file = False
        for item in items:
            if isinstance(item, FileSlice):
                follows_file = True
                break
            if isinstance(item, LazyBytes):
                break
            buffers.append(item)
            if len(buffers) == _GATHER_MAX:
                break
        self._consume(sock.sendmsg(buffers, (), _MORE if follows_file else 0))

    def _consume(self, sent: int) -> None:
        items = self._items
        self.size_bytes -= sent
        while sent:
            first = items[0]
            size = first.size_bytes if isinstance(first, FileSlice) else len(first)
            if sent >= size:
                items.popleft()
            elif isinstance(first, FileSlice):
                items[0] = FileSlice(first.file, first.position_bytes + sent, size - sent)
            else:
                items[0] = memoryview(first)[sent:]  # type: ignore[arg-type]  # LazyBytes are sent in pieces
            sent -= min(sent, size)

    def _make(self, first: LazyBytes) -> None:
        """Put the next piece before the rest."""
        piece = first.take()
        if len(first):
            self._items.appendleft(piece)
        else:
            self._items[0] = piece

    def _slice_behind(self, first: BodyPart) -> FileSlice | None:
        """The slice that follows the first item, if both can be sent in one call."""
        if len(self._items) == 1 or not isinstance(first, bytes):
            return None
        part = self._items[1]
        return part if isinstance(part, FileSlice) else None

    def _send_slice(self, sock: socket.socket, part: FileSlice) -> None:
        """Sends a slice with the bytes before it, and with those behind it if they are the last."""
        items = self._items
        head, tail = items[0], b""
        if not isinstance(head, bytes):
            head = b""
        follow = 2 if head else 1
        if len(items) == follow + 1 and isinstance(last := items[follow], bytes):
            tail = last
        try:
            sent = send_with_file(sock, head, _fileno(part.file), part.position_bytes, part.size_bytes, tail)
        except EOFError as error:
            raise StorageError(
                "the file ends before the records that were to be sent", position_bytes=part.position_bytes
            ) from error
        self._consume(sent)

    def _load(self, part: FileSlice) -> None:
        """TLS encrypts in this process, so a slice goes through memory a piece at a time."""
        items = self._items
        data = _read(part, min(part.size_bytes, _TLS_CHUNK_BYTES))
        head = None if items[0] is part else items.popleft()
        items.popleft()
        if len(data) < part.size_bytes:
            items.appendleft(
                FileSlice(part.file, part.position_bytes + len(data), part.size_bytes - len(data))
            )
        items.extendleft((data,) if head is None else (data, head))


def _fileno(file: HasFileno) -> int:
    try:
        return file.fileno()
    except ValueError as error:
        raise StorageError("the file was closed before its records were sent") from error


def _read(part: FileSlice, size: int) -> bytes:
    """Raises StorageError."""
    try:
        data = os.pread(_fileno(part.file), size, part.position_bytes)
    except OSError as error:
        place = part.position_bytes
        raise StorageError(f"records that cannot be read: {error}", position_bytes=place) from error
    if len(data) < size:
        raise StorageError(
            "the file ends before the records that were to be sent", position_bytes=part.position_bytes
        )
    return data
