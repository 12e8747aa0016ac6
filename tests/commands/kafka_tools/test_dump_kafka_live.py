"""`--format kafka` equals the running tool of Kafka 3.9.1 on data that no corpus has: unusual or damaged."""

from __future__ import annotations

import contextlib
import io
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.commands.kafka_tools.dump_log import printing
from klog.commands.shared.records.plan import Decoder, DumpFile, DumpPlan, KafkaFlags
from klog.formats import offset_index, time_index
from klog.formats.errors import KlogError
from klog.formats.names import FileKind
from tests import corpora, strategies
from tests.formats.raw_batches import uncompressed_batch
from tests.peers import DumpServer

pytestmark = pytest.mark.kafka

FLAGS: dict[str, KafkaFlags] = {
    "": KafkaFlags(),
    "--deep-iteration": KafkaFlags(deep_iteration=True),
    "--print-data-log": KafkaFlags(print_data_log=True),
    "--print-data-log --skip-record-metadata": KafkaFlags(print_data_log=True, skip_record_metadata=True),
    "--deep-iteration --skip-record-metadata": KafkaFlags(deep_iteration=True, skip_record_metadata=True),
    "--deep-iteration --max-bytes 500": KafkaFlags(deep_iteration=True, max_bytes=500),
    "--max-bytes 137": KafkaFlags(max_bytes=137),
    "--offsets-decoder": KafkaFlags(decoder=Decoder.OFFSETS),
    "--transaction-log-decoder": KafkaFlags(decoder=Decoder.TRANSACTION_LOG),
    "--cluster-metadata-decoder": KafkaFlags(decoder=Decoder.CLUSTER_METADATA),
    "--remote-log-metadata-decoder": KafkaFlags(decoder=Decoder.REMOTE_LOG_METADATA),
    "--value-decoder-class org.apache.kafka.tools.api.IntegerDecoder": KafkaFlags(
        value_decoder_class="org.apache.kafka.tools.api.IntegerDecoder"
    ),
    "--key-decoder-class kafka.serializer.LongDecoder": KafkaFlags(
        key_decoder_class="kafka.serializer.LongDecoder"
    ),
}
INDEX_FLAGS: dict[str, KafkaFlags] = {
    "": KafkaFlags(),
    "--index-sanity-check": KafkaFlags(index_sanity_check=True),
    "--verify-index-only": KafkaFlags(verify_index_only=True),
    "--max-message-size 100": KafkaFlags(max_message_size=100),
}


def same(server: DumpServer, paths: list[Path], words: str, flags: KafkaFlags) -> bool:
    """Compare klog's dump with the tool's; returns whether the tool ended without an exception."""
    expected = server.dump(paths, *words.split())
    out, err = io.BytesIO(), io.StringIO()
    died = ""
    with contextlib.redirect_stderr(err):
        try:
            printing.run(
                DumpPlan(tuple(DumpFile(str(path), FileKind.LOG) for path in paths), kafka=flags), out
            )
        except KlogError as error:
            died = str(error)
    assert out.getvalue() == expected.stdout, (expected.thrown, died)
    assert bool(died) == bool(expected.thrown), (expected.thrown, died)
    if not died:
        assert err.getvalue().encode() == expected.stderr
    return not died


def written(directory: Path, data: bytes, name: str = "00000000000000000007.log") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dump")


every_flag = st.sampled_from(sorted(FLAGS))


@settings(max_examples=150)
@given(data=strategies.segments(base_offset=7), words=every_flag)
def test_generated_segments(kafka3_dump: DumpServer, directory: Path, data: bytes, words: str) -> None:
    same(kafka3_dump, [written(directory, data)], words, FLAGS[words])


@settings(max_examples=400)
@given(data=strategies.damaged(strategies.segments(base_offset=7)), words=every_flag)
def test_damaged_segments(kafka3_dump: DumpServer, directory: Path, data: bytes, words: str) -> None:
    same(kafka3_dump, [written(directory, data)], words, FLAGS[words])


utf8_edges = st.lists(
    st.sampled_from(
        [b"\xed", b"\xa0", b"\x80", b"\xbf", b"\xf0", b"\xf4", b"\x90", b"\xe0", b"\xc0", b"\xc2"]
    )
    | st.sampled_from([b"a", "é".encode(), "€".encode(), "𝄞".encode(), b"\n", b"\0", b"\xff", b"\xf8"])
    | st.binary(max_size=3),
    max_size=12,
).map(b"".join)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.none() | utf8_edges, st.none() | utf8_edges, utf8_edges), min_size=1, max_size=30)
)
def test_text_that_is_not_utf8_is_replaced_as_by_java(
    kafka3_dump: DumpServer, directory: Path, contents: list[tuple[bytes | None, bytes | None, bytes]]
) -> None:
    data = uncompressed_batch([(key, value, [(name, None)]) for key, value, name in contents])
    assert same(kafka3_dump, [written(directory, data)], "--print-data-log", FLAGS["--print-data-log"])


index_bytes = st.one_of(
    strategies.offset_indexes.map(offset_index.build),
    strategies.time_indexes.map(time_index.build),
    st.binary(max_size=60),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 61, 100, 200, 2**31 - 1]))).map(
        lambda pairs: b"".join(offset.to_bytes(4, "big") + at.to_bytes(4, "big") for offset, at in pairs)
    ),
)


@settings(max_examples=200)
@given(
    log=strategies.segments(base_offset=7) | strategies.damaged(strategies.segments(base_offset=7)),
    index=index_bytes,
    times=index_bytes,
    words=st.sampled_from(sorted(INDEX_FLAGS)),
)
def test_indexes(
    kafka3_dump: DumpServer, directory: Path, log: bytes, index: bytes, times: bytes, words: str
) -> None:
    written(directory, log)
    flags = INDEX_FLAGS[words]
    for name, data in (("00000000000000000007.index", index), ("00000000000000000007.timeindex", times)):
        same(kafka3_dump, [written(directory, data, name)], words, flags)


@settings(max_examples=100)
@given(
    snapshot=st.one_of(
        strategies.producer_snapshots.map(strategies.producer_snapshot.build),
        strategies.damaged(strategies.producer_snapshots.map(strategies.producer_snapshot.build)),
    ),
    transactions=st.binary(max_size=110).map(lambda data: bytes(len(data) // 3) + data),
)
def test_snapshots_and_transaction_indexes(
    kafka3_dump: DumpServer, directory: Path, snapshot: bytes, transactions: bytes
) -> None:
    for name, data in (
        ("00000000000000000007.snapshot", snapshot),
        ("00000000000000000007.txnindex", transactions),
    ):
        same(kafka3_dump, [written(directory, data, name)], "", KafkaFlags())


SEGMENTS = [
    path
    for corpus in corpora.corpora("k0", "k28", "k39", "k4", "up")
    for log_dir in corpus.log_dirs()
    for partition in log_dir.partitions()
    for path in partition.files(".log")
    if 0 < path.stat().st_size < 100_000
]


@pytest.mark.parametrize("seed", range(40))
def test_real_segments_with_bytes_changed(kafka3_dump: DumpServer, directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    for path in chance.sample(SEGMENTS, 5):
        data = bytearray(path.read_bytes())
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            data[at] = chance.choice([data[at] ^ 1 << chance.randrange(8), chance.randrange(256)])
        words = chance.choice(sorted(FLAGS))
        same(kafka3_dump, [written(directory, bytes(data))], words, FLAGS[words])


def test_errors_of_several_files_are_in_the_order_of_scalas_hash_map(
    kafka3_dump: DumpServer, tmp_path: Path
) -> None:
    paths = []
    for number in range(40):
        gap = uncompressed_batch([(None, b"a", []), (None, b"b", [])])
        other = bytearray(gap)
        other[:8] = (50 + number).to_bytes(8, "big")
        paths.append(written(tmp_path, gap + bytes(other), f"{number:020d}.log"))
        wrong = (9).to_bytes(4, "big") + (0).to_bytes(4, "big")
        paths.append(written(tmp_path, wrong * 2, f"{number:020d}.index"))
        paths.append(
            written(tmp_path, (5).to_bytes(8, "big") + (1).to_bytes(4, "big"), f"{number:020d}.timeindex")
        )
    flags = "--print-data-log"
    assert same(kafka3_dump, paths, flags, FLAGS[flags])


def _string(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.text("abcxyz.-é", min_size=1, max_size=6),
        st.lists(st.integers(0, 10**6), min_size=1, max_size=40),
        min_size=1,
        max_size=4,
    )
)
def test_partitions_of_a_transaction_are_in_the_order_of_scalas_hash_set(
    kafka3_dump: DumpServer, directory: Path, topics: dict[str, list[int]]
) -> None:
    lists = b"".join(
        _string(topic) + len(numbers).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in numbers)
        for topic, numbers in topics.items()
    )
    ongoing = b"\x01"
    value = (
        bytes(2)
        + bytes(8)
        + bytes(2)
        + bytes(4)
        + ongoing
        + len(topics).to_bytes(4, "big")
        + lists
        + bytes(16)
    )
    data = uncompressed_batch([(bytes(2) + _string("id"), value, [])])
    words = "--transaction-log-decoder"
    assert same(kafka3_dump, [written(directory, data)], words, FLAGS[words])
