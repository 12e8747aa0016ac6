"""Hypothesis strategies of requests as bytes on the wire; those of formats are in `strategies`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hypothesis import strategies as st

from klog.formats.batch_builder import BatchFields, RecordData, build_batch
from klog.formats.compression import GZIP
from klog.protocol.messages import encode_request_header
from klog.protocol.produce_request import ProduceRequest, encode_produce_request

NOW_MS = 1_700_000_000_000


def framed(data: bytes) -> bytes:
    """A frame: its size in front."""
    return struct.pack(">i", len(data)) + data


@st.composite
def plain_batches(draw: st.DrawFn) -> bytearray:
    """A batch that is written as it comes, unless the topic's configs or the producer's state forbid it."""
    producer_id = draw(st.sampled_from((-1, -1, 5)))
    fields = BatchFields(
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else draw(st.sampled_from((0, 0, 0, 1))),
        base_sequence=-1 if producer_id < 0 else draw(st.integers(0, 3)),
    )
    return draw(_batches(fields))


@st.composite
def other_batches(draw: st.DrawFn) -> bytearray:
    """A batch that is compressed or transactional."""
    if draw(st.booleans()):
        return draw(_batches(BatchFields(codec=GZIP)))
    return draw(
        _batches(BatchFields(producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True))
    )


@st.composite
def _batches(draw: st.DrawFn, fields: BatchFields) -> bytearray:
    keys = st.sampled_from((b"k", b"k", b"k", None))
    times = st.sampled_from((NOW_MS, NOW_MS, NOW_MS, NOW_MS - 5_000, NOW_MS + 5_000, -1))
    values = st.binary(max_size=60)
    records = [
        RecordData(number, draw(times), draw(keys), draw(values)) for number in range(draw(st.integers(1, 3)))
    ]
    return build_batch(records, fields)


@st.composite
def plain_frames(draw: st.DrawFn, topic: str, version: int, acks: int) -> bytes:
    """A Produce request, frame and header included: one plain batch for partition 0 of the topic."""
    return draw(_frames(version, acks, topic, [(0, draw(plain_batches()))]))


@st.composite
def other_frames(draw: st.DrawFn, topics: Sequence[str]) -> bytes:
    """A Produce request that may be unusual in all ways."""
    batches = plain_batches() | other_batches()
    partitions = draw(st.lists(st.tuples(st.sampled_from((0, 0, 1)), batches), min_size=1, max_size=2))
    version, acks = draw(st.sampled_from((9, 11, 7, 6, 3))), draw(st.sampled_from((1, -1, 0, 2)))
    return draw(_frames(version, acks, draw(st.sampled_from(topics)), partitions))


@st.composite
def _frames(
    draw: st.DrawFn, version: int, acks: int, topic: str, partitions: Sequence[tuple[int, bytearray]]
) -> bytes:
    transactional_id = draw(st.sampled_from((None,) * 9 + ("id",)))
    views = [(index, memoryview(data)) for index, data in partitions]
    client_id = draw(st.sampled_from(("client", None, "")))
    header = encode_request_header(0, version, draw(st.integers(-(2**31), 2**31 - 1)), client_id)
    request = ProduceRequest(transactional_id, acks, 1000, [(topic, views)])
    return framed(header + b"".join(encode_produce_request(version, request)))


@st.composite
def produce_reads(draw: st.DrawFn, topics: Sequence[str]) -> list[bytes]:
    """What several reads of one connection bring: mostly plain frames for the first topic."""
    version, acks = draw(st.sampled_from((9, 11, 10, 7, 8))), draw(st.sampled_from((1, -1)))
    plain = plain_frames(topics[0], version, acks)
    other = other_frames(topics)
    # Seven of ten are plain.
    kinds = st.integers(0, 9).flatmap(
        lambda kind: plain if kind < 7 else other if kind < 9 else damaged_frames(plain | other)
    )
    reads = draw(st.lists(st.lists(kinds, min_size=1, max_size=6), min_size=1, max_size=3))
    return [b"".join(frames) for frames in reads]


@st.composite
def damaged_frames(draw: st.DrawFn, frames: st.SearchStrategy[bytes]) -> bytes:
    """A frame with one byte after its size changed."""
    frame = bytearray(draw(frames))
    frame[draw(st.integers(4, len(frame) - 1))] ^= draw(st.integers(1, 255))
    return bytes(frame)
