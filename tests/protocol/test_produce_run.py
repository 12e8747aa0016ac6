"""Runs of usual Produce frames: what counts as usual, what is read of it, and how it is answered."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from types import ModuleType

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from klog.formats.compression import GZIP
from klog.formats.constants import BATCH_HEADER_BYTES, TRANSACTIONAL_BIT
from klog.formats.errors import KlogError
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable
from klog.kernel.kernel import check_records, scan, verify
from klog.protocol.apis import ApiKey
from klog.protocol.messages import encode_request_header
from klog.protocol.produce_request import ProduceRequest, decode_produce_request, encode_produce_request
from klog.protocol.produce_response import answer_template, decode_produce_response
from tests.protocol.usual_frames import check_runs, header_and_body
from tests.request_strategies import NOW_MS, framed, produce_reads, transactional_reads

ATTRIBUTES = (
    "frames",
    "end",
    "topic",
    "size_bytes",
    "last_size_bytes",
    "largest_size_bytes",
    "records",
    "smallest_timestamp",
    "max_timestamp",
    "max_timestamp_records",
    "keyless",
    "has_producer_ids",
    "transactional_id",
    "is_transactional",
)
SHARED = ("version", "acks", "partition")
BATCH_FIELDS = ("count", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "size")

pytest.importorskip("klog.protocol._produce_run", reason="klog was built without a C compiler")


@pytest.fixture
def module() -> ModuleType:
    return import_module("klog.protocol._produce_run")


def batch(records: int = 1, *, times: tuple[int, ...] = (NOW_MS,), key: bytes | None = b"k", **fields):
    data = [RecordData(number, times[number % len(times)], key, b"value") for number in range(records)]
    return memoryview(build_batch(data, BatchFields(**fields)))


def frame(
    *batches, version=9, acks=1, topic="orders", partition=0, transactional_id=None, correlation_id=7
) -> bytes:
    given_batches = batches or (batch(),)
    partitions = [(partition + number, each) for number, each in enumerate(given_batches)]
    request = ProduceRequest(transactional_id, acks, 1000, [(topic, partitions)])
    header = encode_request_header(0, version, correlation_id, "client")
    return framed(header + b"".join(encode_produce_request(version, request)))


def read(module: ModuleType, data: bytes):
    run = module.ProduceRun()
    run.read(bytearray(data), 0, len(data))
    return run


def seen(run) -> tuple[object, ...]:
    """All that a run says."""
    values = [getattr(run, name) for name in ATTRIBUTES]
    if run.frames:
        values += [getattr(run, name) for name in SHARED]
        values += [run.batch(number) for number in range(run.frames)]
        values.append(run.data(1000, 3))
        template = answer_template(run.version, "t", run.partition)
        values.append(run.answers(*template, 1000, 5))
    return tuple(values)


@pytest.mark.parametrize("version", [7, 8, 9, 10, 11])
def test_frames_for_one_partition_are_one_run(module: ModuleType, version: int) -> None:
    data = frame(batch(2), version=version) + frame(batch(3), version=version)
    run = read(module, data)
    assert (run.frames, run.records, run.end, run.topic) == (2, 5, len(data), b"orders")


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "others"},
        {"topic": "order2"},
        {"partition": 1},
        {"acks": -1},
        {"version": 10},
        {"version": 8},
    ],
)
def test_a_run_ends_before_a_frame_for_another_partition(module: ModuleType, other: dict) -> None:
    first = frame()
    run = read(module, first + frame(**other))
    assert (run.frames, run.end) == (1, len(first))


@pytest.mark.parametrize(
    "unusual",
    [
        frame(version=6),
        frame(version=3),
        frame(acks=2),
        frame(batch(), batch()),
        frame(transactional_id="id"),
        frame(batch(codec=GZIP)),
        frame(batch(is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)),
        frame(batch(is_control=True)),
        frame(batch(log_append_time_ms=NOW_MS)),
        frame(batch(producer_id=1, producer_epoch=0)),
        frame(batch(times=(-2,))),
        frame(topic="t" * 200, version=9),
        frame()[:-1],
        frame()[:12],
        frame()[:3],
        framed(b"\0\x01" + frame()[6:]),
        framed(frame()[4:] + b"\0"),
        frame(version=7)[:-1] + b"x",
    ],
)
def test_other_frames_are_none(module: ModuleType, unusual: bytes) -> None:
    run = read(module, unusual)
    assert (run.frames, run.end, run.topic, run.data(0, 0)) == (0, 0, b"", b"")


def transactional(sequence=0, *, producer_id=5, epoch=0, name="payments", **kwargs) -> bytes:
    sender = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return frame(batch(is_transactional=True, **sender), transactional_id=name, **kwargs)


@pytest.mark.parametrize("version", [7, 8, 9, 11])
def test_frames_of_a_transaction_are_one_run(module: ModuleType, version: int) -> None:
    data = transactional(0, version=version) + transactional(1, version=version)
    run = read(module, data)
    assert (run.frames, run.end, run.topic) == (2, len(data), b"orders")
    assert (run.is_transactional, run.transactional_id) == (True, b"payments")
    run.keep(0)
    assert (run.is_transactional, run.transactional_id) == (False, None)


@pytest.mark.parametrize(
    "other",
    [
        frame(),
        transactional(1, name="orders"),
        transactional(1, name="payment2"),
        transactional(1, name=""),
        transactional(1, producer_id=6),
        transactional(1, epoch=1),
    ],
)
def test_a_run_of_a_transaction_ends_before_anything_else(module: ModuleType, other: bytes) -> None:
    first = transactional()
    for one, two in ((first, other), (other, first)):
        assert read(module, one + two).end == len(one)


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("name", ["", "é", "i" * 126])
def test_transactional_ids_of_all_kinds(module: ModuleType, version: int, name: str) -> None:
    run = read(module, transactional(name=name, version=version))
    assert (run.frames, run.transactional_id) == (1, name.encode())


@pytest.mark.parametrize(
    "unusual",
    [
        transactional(producer_id=-1, epoch=-1, sequence=-1),
        transactional(sequence=-1),
        transactional(name="i" * 127),
        transactional()[:30],
    ],
)
def test_other_frames_of_transactions_are_none(module: ModuleType, unusual: bytes) -> None:
    assert not read(module, unusual).frames


def test_what_a_checksum_refuses_is_not_read(module: ModuleType) -> None:
    damaged = bytearray(frame())
    damaged[-5] ^= 1
    assert not read(module, bytes(damaged)).frames


def test_a_run_sums_up_its_batches(module: ModuleType) -> None:
    one = batch(2, times=(30, 20))
    other = batch(1, times=(10,), key=None, producer_id=5, producer_epoch=0, base_sequence=4)
    run = read(module, frame(one) + frame(other))
    assert (run.smallest_timestamp, run.max_timestamp, run.max_timestamp_records) == (10, 30, 2)
    assert run.size_bytes == len(one) + len(other)
    assert (run.largest_size_bytes, run.last_size_bytes) == (len(one), len(other))
    assert (run.keyless, run.has_producer_ids) == (True, True)
    assert run.batch(1) == (1, 10, 5, 0, 4, len(other))


def test_keeping_the_first_frames_forgets_the_others(module: ModuleType) -> None:
    frames = [frame(batch(count, times=(count,))) for count in (1, 3, 2)]
    run = read(module, b"".join(frames))
    run.keep(1)
    assert seen(run) == seen(read(module, frames[0]))
    with pytest.raises(IndexError):
        run.keep(2)


def test_data_are_the_batches_at_their_offsets(module: ModuleType) -> None:
    run = read(module, frame(batch(2)) + frame(batch(1)))
    data = run.data(100, 6)
    first = len(batch(2))
    assert struct.unpack_from(">qii", data) == (100, first - 12, 6)
    assert struct.unpack_from(">qii", data, first) == (102, len(batch(1)) - 12, 6)
    assert data[16:first] == bytes(batch(2)[16:])


@pytest.mark.parametrize("version", [7, 9, 11])
def test_answers_are_those_of_a_response(module: ModuleType, version: int) -> None:
    run = read(module, frame(batch(2), version=version) + frame(version=version, correlation_id=-8))
    template = answer_template(version, "orders", 0)
    answers = run.answers(*template, 100, 50)
    size = len(answers) // 2
    header = 8 if version < 9 else 9
    for number, (correlation_id, offset) in enumerate(((7, 100), (-8, 102))):
        answer = answers[number * size : (number + 1) * size]
        assert struct.unpack_from(">ii", answer) == (size - 4, correlation_id)
        ((topic, (produced,)),) = decode_produce_response(version, answer[header:]).topics
        assert (topic, produced[:5]) == ("orders", (0, 0, offset, -1, 50))


def test_a_run_is_bounded(module: ModuleType) -> None:
    run = read(module, frame() * 100)
    assert (run.frames, run.end) == (64, 64 * len(frame()))


def test_a_buffer_that_shrinks_is_noticed(module: ModuleType) -> None:
    buffer = bytearray(frame())
    run = module.ProduceRun()
    assert run.read(buffer, 0, len(buffer)) == 1
    del buffer[20:]
    with pytest.raises(IndexError):
        run.data(0, 0)


@pytest.mark.parametrize("numbers_at", [-1, 7, 40])
def test_numbers_must_fit_the_answer(module: ModuleType, numbers_at: int) -> None:
    with pytest.raises(IndexError):
        read(module, frame()).answers(bytes(60), numbers_at, 0, 0)


@dataclass(frozen=True)
class Usual:
    """A usual frame, as the general parsers read it."""

    size: int
    correlation_id: int
    common: tuple[object, ...]
    batch: bytes
    table: BatchTable
    smallest_timestamp: int
    keyless: bool


def usual(data: bytes) -> Usual | None:
    """The frame at the start of `data`; None if it is not a usual one, or not whole."""
    found = header_and_body(data, ApiKey.PRODUCE, range(7, 12), 9)
    if found is None:
        return None
    header, body = found
    try:
        request = decode_produce_request(header.api_version, body)
    except KlogError:
        return None
    flexible = header.api_version >= 9
    texts = [
        text.encode() for text in (request.transactional_id, *(name for name, _ in request.topics)) if text
    ]
    if b"\xef\xbf\xbd" in b"".join(texts):
        reject()  # not UTF-8, which no encoder brings back
    if (
        # No tags: what is encoded again has none.
        b"".join(encode_produce_request(header.api_version, request)) != body
        or request.acks not in (-1, 0, 1)
        or [len(partitions) for _, partitions in request.topics] != [1]
        or not request.topics[0][0]
        or (flexible and any(len(text) > 126 for text in texts))
    ):
        return None
    ((name, ((partition, records),)),) = request.topics
    found = usual_batch(records, is_transactional=request.transactional_id is not None)
    if found is None:
        return None
    table, smallest_timestamp, keyless = found
    producer = None
    if request.transactional_id is not None:
        producer = table.producer_id[0], table.producer_epoch[0]
    address = header.api_version, request.acks, name, partition, request.transactional_id, producer
    return Usual(
        header.body_position_bytes + len(body) + 4,
        header.correlation_id,
        address,
        bytes(records),
        table,
        smallest_timestamp,
        keyless,
    )


def usual_batch(records: memoryview | None, *, is_transactional: bool) -> tuple[BatchTable, int, bool] | None:
    """One batch with the smallest timestamp and whether a key misses; None if it is not a usual one."""
    if records is None or len(records) < BATCH_HEADER_BYTES:
        return None
    table = BatchTable()
    scan(records, 0, True, table)
    if len(table) != 1 or table.consumed_bytes != len(records) or table.magic[0] != 2:
        return None
    if verify(records, table) or table.attributes[0] != (TRANSACTIONAL_BIT if is_transactional else 0):
        return None
    count, has_producer = table.count[0], table.producer_id[0] >= 0
    if table.base_offset[0] or count <= 0 or table.last_offset[0] != count - 1:
        return None
    if (has_producer and table.base_sequence[0] < 0) or (is_transactional and not has_producer):
        return None
    checked = check_records(records, BATCH_HEADER_BYTES, table.base_timestamp[0], count)
    if checked is None or checked[0] < -1 or checked[1] != table.max_timestamp[0]:
        return None
    return table, checked[0], checked[3]


def placed(frames: list[Usual], offset: int, leader_epoch: int) -> bytes:
    """The batches in the log."""
    data = b""
    for each in frames:
        data += struct.pack(">qii", offset, len(each.batch) - 12, leader_epoch) + each.batch[16:]
        offset += each.table.count[0]
    return data


@given(
    produce_reads(["orders", "others"]) | transactional_reads(["orders", "others"]),
    st.binary(max_size=80),
    st.integers(0, 40),
)
def test_a_run_is_what_the_general_parsers_read(reads: list[bytes], rest: bytes, cut: int) -> None:
    run = import_module("klog.protocol._produce_run").ProduceRun()
    data = b"".join(reads) + rest
    data = data[: max(len(data) - cut, 0)]
    check_runs(run, usual, agrees, data)


def agrees(run, frames: list[Usual]) -> None:
    version, acks, topic, partition, transactional_id, _ = frames[0].common
    assert (run.version, run.acks, run.topic.decode(), run.partition) == (version, acks, topic, partition)
    assert run.is_transactional == (transactional_id is not None)
    assert run.transactional_id == (transactional_id.encode() if run.is_transactional else None)
    tables = [each.table for each in frames]
    assert [run.batch(number) for number in range(run.frames)] == [
        tuple(getattr(each, name)[0] for name in BATCH_FIELDS) for each in tables
    ]
    sizes = [len(each.batch) for each in frames]
    assert (run.size_bytes, run.last_size_bytes, run.largest_size_bytes) == (
        sum(sizes),
        sizes[-1],
        max(sizes),
    )
    records = list(accumulate(each.count[0] for each in tables))
    largest = [each.max_timestamp[0] for each in tables]
    assert (run.records, run.max_timestamp) == (records[-1], max(largest))
    brought = records[largest.index(max(largest))] if max(largest) != -1 else 0
    assert run.max_timestamp_records == brought
    times = [each.smallest_timestamp for each in frames if each.smallest_timestamp != -1]
    assert run.smallest_timestamp == min(times, default=-1)
    assert run.keyless == any(each.keyless for each in frames)
    assert run.has_producer_ids == any(each.producer_id[0] >= 0 for each in tables)
    assert run.data(1000, 3) == placed(frames, 1000, 3)
    answers = run.answers(*answer_template(version, "t", partition), 1000, 5)
    size = len(answers) // run.frames
    found = [struct.unpack_from(">i", answers, number * size + 4)[0] for number in range(run.frames)]
    assert found == [each.correlation_id for each in frames]
