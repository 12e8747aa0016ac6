"""Hypothesis strategies of requests as bytes on the wire; those of formats are in `strategies`."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from hypothesis import strategies as st

from klog.formats.compression import GZIP
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    encode_fetch_request,
)
from klog.protocol.messages import encode_request_header
from klog.protocol.produce_request import ProduceRequest, encode_produce_request

NOW_MS = 1_700_000_000_000
_SELDOM_AN_ID: st.SearchStrategy[str | None] = st.sampled_from((None,) * 9 + ("id",))


def records_of(batch: bytes | bytearray) -> int:
    """How many records a batch says it has."""
    return int.from_bytes(batch[57:61], "big")


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
    draw: st.DrawFn,
    version: int,
    acks: int,
    topic: str,
    partitions: Sequence[tuple[int, bytearray]],
    transactional_ids: st.SearchStrategy[str | None] = _SELDOM_AN_ID,
) -> bytes:
    transactional_id = draw(transactional_ids)
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


@dataclass
class Sender:
    """A transactional producer, and what it sends next."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0

    @property
    def transactional_id(self) -> str:
        return f"transactions-{self.producer_id}"


@st.composite
def transactional_frames(
    draw: st.DrawFn, topic: str, version: int, acks: int, senders: Sequence[Sender]
) -> bytes:
    """A Produce request, frame and header included, for partition 0 of the topic: mostly the batch that its
    producer sends next in a transaction.
    """
    sender = draw(st.sampled_from(senders))
    if draw(st.integers(0, 15)) == 15:
        sender.epoch, sender.sequence = sender.epoch + 1, 0
    sequence = draw(st.sampled_from((sender.sequence,) * 8 + (sender.sequence + 1, 0)))
    fields = BatchFields(
        producer_id=sender.producer_id,
        producer_epoch=draw(st.sampled_from((sender.epoch,) * 15 + (0,))),
        base_sequence=sequence,
        is_transactional=draw(st.sampled_from((True,) * 15 + (False,))),
    )
    data = draw(_batches(fields))
    if sequence == sender.sequence:
        sender.sequence += records_of(data)
    ids = st.sampled_from((sender.transactional_id,) * 12 + (None, "", "id", "i" * 130))
    return draw(_frames(version, acks, topic, [(0, data)], ids))


@st.composite
def transactional_reads(draw: st.DrawFn, topics: Sequence[str]) -> list[bytes]:
    """What several reads of one connection bring: mostly frames of two transactional producers, 6 and 7, for
    the first topic.
    """
    version, acks = draw(st.sampled_from((9, 11, 10, 7, 8))), draw(st.sampled_from((1, -1)))
    transactional = transactional_frames(topics[0], version, acks, [Sender(6), Sender(7)])
    plain, other = plain_frames(topics[0], version, acks), other_frames(topics)
    kinds = st.integers(0, 11).flatmap(
        lambda kind: (
            transactional
            if kind < 9
            else (plain, other, damaged_frames(transactional | plain | other))[kind - 9]
        )
    )
    reads = draw(st.lists(st.lists(kinds, min_size=1, max_size=6), min_size=1, max_size=6))
    return [b"".join(frames) for frames in reads]


@st.composite
def damaged_frames(draw: st.DrawFn, frames: st.SearchStrategy[bytes]) -> bytes:
    """A frame with one byte after its size changed."""
    frame = bytearray(draw(frames))
    frame[draw(st.integers(4, len(frame) - 1))] ^= draw(st.integers(1, 255))
    return bytes(frame)


@dataclass(frozen=True)
class SessionFrames:
    """Of which version the frames of one fetch session are, and what they say of it.

    `given` are the session id and epochs that they have; None if they have no session.
    """

    versions: st.SearchStrategy[int]
    given: tuple[int, int] | None


NO_SESSION = SessionFrames(st.integers(4, 17), None)


@st.composite
def fetch_frames(
    draw: st.DrawFn, topics: Mapping[str, UUID], *, usual: bool, session: SessionFrames = NO_SESSION
) -> bytes:
    """A Fetch request, frame and header included, for the topics by name and id.

    A usual one is a consumer's for one partition; another may be unusual in all ways.
    """

    def seldom(common: object, *others: object) -> object:
        return common if usual else draw(st.sampled_from((common,) * 4 + others))

    version = draw(session.versions)
    partitions = st.builds(
        FetchPartition,
        st.sampled_from((0, 0, 0, 1)),
        st.sampled_from((-1, -1, 0, 1)),
        st.integers(-1, 12),
        st.just(seldom(-1, 0)),
        st.sampled_from((-1, 0)),
        st.sampled_from((1 << 20, 200, 0, -1)),
    )
    names = list(topics) if usual else [*topics, "unknown"]
    wanted = []
    for _ in range(seldom(1, 0, 2)):
        name = draw(st.sampled_from(names))
        topic_id = topics.get(name, UUID(int=99))
        several = draw(st.lists(partitions, min_size=1, max_size=seldom(1, 2)))
        wanted.append(FetchTopic(name, topic_id, several))
    if session.given is None:
        session_id, session_epoch = seldom((0, -1), (0, 0), (1, 1), (5, -1), (5, 3))
    else:
        session_id, session_epoch = session.given
    forgotten = seldom((), [ForgottenTopic(names[0], topics[names[0]], [0])])
    request = FetchRequest(
        draw(st.sampled_from((500, 0))),
        draw(st.sampled_from((1, 0, 300, 1 << 20))),
        draw(st.sampled_from((1 << 20, 250, 0, -1))),
        draw(st.sampled_from((0, 1))) if usual else seldom(0, 1, 2, -1),
        wanted,
        session_id,
        session_epoch,
        forgotten,
        draw(st.sampled_from(("", "rack"))) if usual else seldom("", "r" * 200),
        seldom(-1, -2, 7),
        -1,
        seldom(None, "cluster") if version >= 12 else None,
    )
    client_id = draw(st.sampled_from(("client", None, "")))
    header = encode_request_header(1, version, draw(st.integers(-(2**31), 2**31 - 1)), client_id)
    extra = seldom(b"", b"\0", b"extra")
    return framed(header + encode_fetch_request(version, request) + extra)


@st.composite
def fetch_reads(draw: st.DrawFn, topics: Mapping[str, UUID]) -> list[bytes]:
    """What several reads of one connection bring: mostly usual frames."""
    usual, other = fetch_frames(topics, usual=True), fetch_frames(topics, usual=False)
    kinds = st.integers(0, 9).flatmap(
        lambda kind: usual if kind < 6 else other if kind < 8 else damaged_frames(usual | other)
    )
    reads = draw(st.lists(st.lists(kinds, min_size=1, max_size=4), min_size=1, max_size=2))
    return [b"".join(frames) for frames in reads]


@st.composite
def session_reads(draw: st.DrawFn, topics: Mapping[str, UUID], session_id: int) -> list[bytes]:
    """The frames of one connection, each for a read: a fetch that creates a session of this id, and then
    mostly incremental ones, which count its epochs.
    """
    version = draw(st.integers(7, 17))
    few = {name: topics[name] for name in draw(st.permutations(list(topics)))[: draw(st.integers(1, 3))]}
    start = [
        FetchTopic(name, topic_id, [FetchPartition(0, -1, draw(st.integers(0, 10)), -1, -1, 1 << 20)])
        for name, topic_id in few.items()
    ]
    full = FetchRequest(0, 1, 1 << 20, draw(st.sampled_from((0, 1))), start, 0, 0)
    reads = [framed(encode_request_header(1, version, 1, "client") + encode_fetch_request(version, full))]
    epoch = 1
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.integers(0, 9))
        given = (session_id, epoch)
        if kind == 9:
            others = (session_id, epoch + 1), (session_id, 0), (session_id, -1), (session_id + 8, 1)
            given = draw(st.sampled_from(others))
        else:
            epoch += 1
        versions = st.just(version) if kind < 8 else st.integers(7, 17)
        frames = fetch_frames(few, usual=kind < 7, session=SessionFrames(versions, given))
        reads.append(draw(frames))
    return reads
