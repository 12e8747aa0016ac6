"""Runs of usual Produce frames: what counts as usual, what is read of it, and how it is answered."""

from __future__ import annotations

import struct
from importlib import import_module
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.batch_builder import BatchFields, RecordData, build_batch
from klog.formats.compression import GZIP
from klog.protocol.messages import encode_request_header
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import answer_template, decode_produce_response
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


@pytest.fixture(params=["_produce_run", "_pyproduce_run"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"klog.protocol.{request.param}")


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


@given(
    produce_reads(["orders", "others"]) | transactional_reads(["orders", "others"]),
    st.binary(max_size=80),
    st.integers(0, 40),
)
def test_both_implementations_agree(reads: list[bytes], rest: bytes, cut: int) -> None:
    data = b"".join(reads) + rest
    compiled, plain = (import_module(f"klog.protocol.{name}") for name in ("_produce_run", "_pyproduce_run"))
    end = max(len(data) - cut, 0)
    runs = [each.ProduceRun() for each in (compiled, plain)]
    start = 0
    while True:
        first, second = [run.read(bytearray(data), start, end) for run in runs]
        assert first == second
        assert seen(runs[0]) == seen(runs[1])
        if not first:
            break
        start = runs[0].end
