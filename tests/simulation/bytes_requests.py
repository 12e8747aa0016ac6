"""Requests as the network layer gives them to handlers, without a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from klog.protocol.file_slice import BodyPart, FileSlice


class ByteRequest:
    """A request of a client; `answer` gets the bytes of the response."""

    listener = "PLAINTEXT"
    from_follower = False
    on_io_thread = True
    client_id = "simulation"

    def __init__(self, api_key: int, version: int, body: bytes, answer: Callable[[bytes], None]) -> None:
        self.api_key = api_key
        self.api_version = version
        self.body = memoryview(body)
        self._answer = answer

    def respond(self, parts: Sequence[BodyPart] | None) -> None:
        assert parts is not None
        self._answer(b"".join(_bytes_of(part) for part in parts))


def _bytes_of(part: BodyPart) -> bytes:
    if isinstance(part, FileSlice):
        return os.pread(part.file.fileno(), part.size_bytes, part.position_bytes)
    return bytes(part)
