"""Walks a buffer as the compiled readers of runs do, with the general parsers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from klog.formats.errors import KlogError
from klog.protocol.messages import RequestHeader, decode_request_header


class Frame(Protocol):
    """A frame as a test reads it. `common` is what all frames of a run have in common."""

    @property
    def size(self) -> int: ...

    @property
    def common(self) -> tuple[object, ...]: ...


F = TypeVar("F", bound=Frame)


def header_and_body(
    data: bytes, api_key: int, versions: Collection[int], flexible_from: int
) -> tuple[RequestHeader, memoryview] | None:
    """Of the request at the start of `data`; None if it is cut, is another one, or has tags in front."""
    try:
        (size,) = struct.unpack_from(">i", data)
        (client_size,) = struct.unpack_from(">h", data, 12)
        frame = memoryview(data)[4 : 4 + size]
        header = decode_request_header(frame)
    except (struct.error, KlogError):
        return None
    body_position = 10 + max(client_size, 0) + (header.api_version >= flexible_from)
    if len(frame) != size or header.api_key != api_key or header.api_version not in versions:
        return None
    return (header, frame[body_position:]) if header.body_position_bytes == body_position else None


def check_runs(
    run, usual: Callable[[bytes], F | None], agrees: Callable[[object, list[F]], None], data: bytes
) -> None:
    """Let `run` read all of `data`; `usual` reads one frame and is None for one that ends a run."""
    start = 0
    while True:
        frames: list[F] = []
        at = start
        while (each := usual(data[at:])) and (not frames or each.common == frames[0].common):
            frames.append(each)
            at += each.size
        assert run.read(bytearray(data), start, len(data)) == len(frames)
        assert run.end == at
        if not frames:
            break
        agrees(run, frames)
        start = at
