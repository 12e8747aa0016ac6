"""Runs of usual OffsetCommit frames: what counts as usual, what is read, written and answered."""

from __future__ import annotations

import struct
from datetime import timedelta
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.groups.records import offset_key, offset_value
from klog.coordinator.groups.values import CommittedOffset
from klog.formats.errors import KlogError
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.apis import ApiKey
from klog.protocol.messages import (
    decode_request,
    decode_response,
    decode_response_header,
    encode_request,
)
from tests.commit_strategies import CommitFields, commit_frame, commit_reads
from tests.protocol.usual_frames import check_runs, header_and_body
from tests.request_strategies import NOW_MS, framed

VERSIONS = range(2, 10)
NO_RETENTION = timedelta(milliseconds=-1)
STAMPED = (
    "acks",
    "size_bytes",
    "last_size_bytes",
    "largest_size_bytes",
    "smallest_timestamp",
    "max_timestamp",
    "max_timestamp_records",
    "keyless",
    "has_producer_ids",
)

pytest.importorskip("klog.protocol._commit_run", reason="klog was built without a C compiler")


@pytest.fixture
def module() -> ModuleType:
    return import_module("klog.protocol._commit_run")


def read(module: ModuleType, data: bytes):
    run = module.CommitRun()
    run.read(bytearray(data), 0, len(data))
    return run


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_of_one_member_are_one_run(module: ModuleType, version: int) -> None:
    fields = CommitFields(version, member="m-1", generation=4)
    data = commit_frame(fields, {("a", 1): (5, "x"), ("a", 3): (6, None), ("b", 0): (7, "")})
    run = read(module, data + commit_frame(fields, {("c", 9): (8, "y" * 300)}))
    epoch = 2 if version >= 6 else -1
    assert (run.frames, run.records, run.end) == (2, 4, len(run_bytes(data, fields)))
    assert (run.version, run.group, run.member, run.generation) == (version, "g", "m-1", 4)
    assert run.partitions() == [(b"a", 1), (b"a", 3), (b"b", 0), (b"c", 9)]
    assert run.offsets() == [(5, epoch, "x"), (6, epoch, ""), (7, epoch, ""), (8, epoch, "y" * 300)]
    assert run.largest_metadata_bytes == 300


def run_bytes(first: bytes, fields: CommitFields) -> bytes:
    return first + commit_frame(fields, {("c", 9): (8, "y" * 300)})


@pytest.mark.parametrize(
    "other",
    [
        {"version": 8},
        {"version": 6},
        {"group": "h"},
        {"group": "gg"},
        {"member": "m"},
        {"generation": 1},
        {"instance": "i"},
        {"instance": ""},
    ],
)
def test_a_run_ends_before_a_frame_of_another_member(module: ModuleType, other: dict) -> None:
    first = commit_frame(CommitFields(7), {("a", 1): (5, "x")})
    run = read(module, first + commit_frame(CommitFields(**{"version": 7, **other}), {("a", 1): (5, "x")}))
    assert (run.frames, run.end) == (1, len(first))


ONE = {("a", 1): (5, "x")}


@pytest.mark.parametrize(
    "unusual",
    [
        commit_frame(CommitFields(7, group=""), ONE),
        commit_frame(CommitFields(7, group="grüppe"), ONE),
        commit_frame(CommitFields(7, member="ü"), ONE),
        commit_frame(CommitFields(7, instance="ü"), ONE),
        commit_frame(CommitFields(3, retention_ms=1000), ONE),
        commit_frame(CommitFields(7), {("ü", 1): (5, "x")}),
        commit_frame(CommitFields(7), {("a", 1): (5, "ü")}),
        commit_frame(CommitFields(9), {("a" * 127, 1): (5, "x")}),
        commit_frame(CommitFields(7), {}),
        commit_frame(CommitFields(7), {("a", number): (5, "x") for number in range(65)}),
        commit_frame(CommitFields(9), {(f"t{number}", 0): (5, "x") for number in range(65)}),
        commit_frame(CommitFields(7), ONE)[:-1],
        commit_frame(CommitFields(7), ONE)[:12],
        commit_frame(CommitFields(7), ONE)[:3],
        framed(b"\0\x09" + commit_frame(CommitFields(7), ONE)[6:]),
        framed(commit_frame(CommitFields(7), ONE)[4:] + b"\0"),
        framed(commit_frame(CommitFields(9), ONE)[4:-1] + b"\1"),
    ],
)
def test_other_frames_are_none(module: ModuleType, unusual: bytes) -> None:
    run = read(module, unusual)
    assert (run.frames, run.end, run.group, run.partitions(), run.answers()) == (0, 0, "", [], b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_and_topics_that_come_twice_are_unusual(module: ModuleType, version: int) -> None:
    fields = CommitFields(version)
    twice = [("a", [(1, 5, "x"), (1, 6, "x")])], [("a", [(1, 5, "x")]), ("b", []), ("a", [(2, 5, "x")])]
    for topics in twice:
        assert not read(module, commit_frame(fields, topics)).frames


@pytest.mark.parametrize("version", VERSIONS)
def test_each_frame_is_written_as_one_batch(module: ModuleType, version: int) -> None:
    epoch = 2 if version >= 6 else -1
    first, second = {("a", 1): (5, "x"), ("b", 0): (7, None)}, {("b", 0): (8, "why" * 100)}
    run = read(module, b"".join(commit_frame(CommitFields(version), each) for each in (first, second)))
    run.stamp(-1, NOW_MS)
    expected = []
    for offset, commits in ((100, first), (102, second)):
        records = [
            RecordData(
                offset + number,
                NOW_MS,
                offset_key("g", key),
                offset_value(CommittedOffset(at, epoch, metadata or "", NOW_MS)),
            )
            for number, (key, (at, metadata)) in enumerate(commits.items())
        ]
        expected.append(bytes(build_batch(records, BatchFields(leader_epoch=6, base_sequence=0))))
    sizes = [len(batch) for batch in expected]
    assert (run.size_bytes, run.last_size_bytes) == (sum(sizes), sizes[1])
    assert run.data(100, 6) == b"".join(expected)
    assert [run.batch(number) for number in range(2)] == [
        (2, NOW_MS, -1, -1, 0, sizes[0]),
        (1, NOW_MS, -1, -1, 0, sizes[1]),
    ]
    assert run.data(100, 6) == b""
    with pytest.raises(IndexError):
        run.batch(2)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_a_response(module: ModuleType, version: int) -> None:
    commits = {("a", 1): (5, "x"), ("a", 3): (5, "x"), ("b", 0): (7, None)}
    frames = [commit_frame(CommitFields(version, correlation_id=number), commits) for number in (7, -8)]
    answers = read(module, b"".join(frames)).answers()
    half = len(answers) // 2
    for number, correlation_id in enumerate((7, -8)):
        answer = answers[number * half : (number + 1) * half]
        assert struct.unpack_from(">ii", answer) == (half - 4, correlation_id)
        told = decode_response(ApiKey.OFFSET_COMMIT, version, memoryview(answer)[8 if version < 8 else 9 :])
        assert [
            (topic.name, each.partition_index, each.error_code)
            for topic in told.topics
            for each in topic.partitions
        ] == [("a", 1, 0), ("a", 3, 0), ("b", 0, 0)]


def test_a_run_is_bounded(module: ModuleType) -> None:
    frame = commit_frame(CommitFields(7), ONE)
    run = read(module, frame * 100)
    assert (run.frames, run.end) == (64, 64 * len(frame))
    large = commit_frame(CommitFields(7), {(f"t{n // 64}", n): (5, "x") for n in range(600)})
    run = read(module, large * 3)
    assert (run.frames, run.records) == (1, 600)


def test_a_buffer_that_shrinks_is_noticed(module: ModuleType) -> None:
    buffer = bytearray(commit_frame(CommitFields(7), ONE))
    run = module.CommitRun()
    assert run.read(buffer, 0, len(buffer)) == 1
    del buffer[20:]
    for use in (run.partitions, run.offsets, run.answers, lambda: run.stamp(-1, NOW_MS)):
        with pytest.raises(IndexError):
            use()


class Usual(NamedTuple):
    """A usual frame, as the general parser reads it."""

    size: int
    correlation_id: int
    common: tuple[int, str, int, str, str | None]
    commits: dict[tuple[str, int], tuple[int, int, str]]


def usual(data: bytes) -> Usual | None:
    """The frame at the start of `data`; None if it is not a usual one, or not whole."""
    found = header_and_body(data, ApiKey.OFFSET_COMMIT, VERSIONS, 8)
    if found is None:
        return None
    header, body = found
    try:
        request = decode_request(header.api_key, header.api_version, body)
    except KlogError:
        return None
    sender = (
        header.api_version,
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        getattr(request, "group_instance_id", None),
    )
    commits = {
        (topic.name, each.partition_index): (
            each.committed_offset,
            getattr(each, "committed_leader_epoch", -1),
            each.committed_metadata or "",
        )
        for topic in request.topics
        for each in topic.partitions
    }
    names = [topic.name for topic in request.topics]
    counts = [len(names), *(len(topic.partitions) for topic in request.topics)]
    texts = [*sender[1::2], sender[4], *names, *(metadata for _, _, metadata in commits.values())]
    if (
        # No tags: what is encoded again has none.
        encode_request(request) != body
        or getattr(request, "retention_time", NO_RETENTION) != NO_RETENTION
        or not request.group_id
        or not all(1 <= count <= 64 for count in counts)
        or not all(1 <= len(name) <= 126 for name in names)
        or len(set(names)) != len(names)
        or len(commits) != sum(counts[1:])
        or not all((text or "").isascii() for text in texts)
    ):
        return None
    return Usual(header.body_position_bytes + len(body) + 4, header.correlation_id, sender, commits)


def written(group: str, commits, offset: int, leader_epoch: int) -> bytes:
    """The batch of one frame."""
    records = [
        RecordData(
            offset + number,
            NOW_MS,
            offset_key(group, key),
            offset_value(CommittedOffset(*commit, NOW_MS)),
        )
        for number, (key, commit) in enumerate(commits.items())
    ]
    return bytes(build_batch(records, BatchFields(leader_epoch=leader_epoch, base_sequence=0)))


@given(commit_reads(["a", "b"]), st.binary(max_size=80), st.integers(0, 40))
def test_a_run_is_what_the_general_parser_reads(reads: list[bytes], rest: bytes, cut: int) -> None:
    run = import_module("klog.protocol._commit_run").CommitRun()
    data = b"".join(reads) + rest
    data = data[: max(len(data) - cut, 0)]
    check_runs(run, usual, agrees, data)


def agrees(run, frames: list[Usual]) -> None:
    group = frames[0].common[1]
    assert (run.version, run.group, run.generation, run.member, run.instance) == frames[0].common
    assert run.partitions() == [(topic.encode(), number) for each in frames for topic, number in each.commits]
    assert run.offsets() == [commit for each in frames for commit in each.commits.values()]
    assert run.largest_metadata_bytes == max(len(metadata) for *_, metadata in run.offsets())
    run.stamp(-1, NOW_MS)
    counts = [len(each.commits) for each in frames]
    offsets = [1000, *(1000 + end for end in accumulate(counts))]
    batches = [written(group, each.commits, offset, 3) for each, offset in zip(frames, offsets, strict=False)]
    sizes = [len(batch) for batch in batches]
    assert [getattr(run, name) for name in STAMPED] == [
        -1,
        sum(sizes),
        sizes[-1],
        max(sizes),
        NOW_MS,
        NOW_MS,
        counts[0],
        False,
        False,
    ]
    assert run.records == sum(counts)
    assert run.data(1000, 3) == b"".join(batches)
    assert [run.batch(number) for number in range(run.frames)] == [
        (count, NOW_MS, -1, -1, 0, size) for count, size in zip(counts, sizes, strict=True)
    ]
    answers = run.answers()
    for each in frames:
        (size,) = struct.unpack_from(">i", answers)
        answer, answers = answers[4 : 4 + size], answers[4 + size :]
        version = run.version
        correlation_id, position = decode_response_header(ApiKey.OFFSET_COMMIT, version, answer)
        topics = decode_response(ApiKey.OFFSET_COMMIT, version, memoryview(answer)[position:]).topics
        found = [(topic.name, part.partition_index) for topic in topics for part in topic.partitions]
        assert (correlation_id, found) == (each.correlation_id, list(each.commits))
    assert answers == b""
