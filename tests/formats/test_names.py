"""Names of files and directories: every suffix, and no name that Kafka does not write."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given

from klog.formats import names
from klog.formats.errors import FormatError
from klog.formats.names import DirectoryName, DirectoryState, FileKind, FileName, FileState, TopicPartition
from tests import strategies as own

HEX = "2396c0ba9d924c9aba87de8186210d4b"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a-0", DirectoryName(TopicPartition("a", 0))),
        ("my.topic-with_dash-es-12", DirectoryName(TopicPartition("my.topic-with_dash-es", 12))),
        ("-x--1", DirectoryName(TopicPartition("-x-", 1))),
        (f"gone-1.{HEX}-delete", DirectoryName(TopicPartition("gone", 1), DirectoryState.DELETE, HEX)),
        (f"a.b-1.{HEX}-future", DirectoryName(TopicPartition("a.b", 1), DirectoryState.FUTURE, HEX)),
        (f"s-0.{HEX}-stray", DirectoryName(TopicPartition("s", 0), DirectoryState.STRAY, HEX)),
    ],
)
def test_a_directory_name_says_partition_and_state(name: str, expected: DirectoryName) -> None:
    assert names.parse_directory(name) == expected
    assert str(expected) == name


@pytest.mark.parametrize(
    "name",
    ["", "a", "-0", "a-", "a-x", "a-01", "a-2147483648", "a-1.-delete", "a-delete", "a/b-1", "a-1 "],
)
def test_a_directory_name_that_is_not_a_partitions_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match="topic-partition"):
        names.parse_directory(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000042.log", FileName(FileKind.LOG, 42)),
        ("00000000000000000042.index.swap", FileName(FileKind.OFFSET_INDEX, 42, FileState.SWAP)),
        ("00000000000000000042.timeindex.cleaned", FileName(FileKind.TIME_INDEX, 42, FileState.CLEANED)),
        ("00000000000000000042.txnindex.deleted", FileName(FileKind.TXN_INDEX, 42, FileState.DELETED)),
        ("00000000000000000042.snapshot", FileName(FileKind.PRODUCER_SNAPSHOT, 42)),
        (
            "00000000000000000096-0000000001.checkpoint",
            FileName(FileKind.METADATA_SNAPSHOT, 96, FileState.NORMAL, 1),
        ),
        (
            "00000000000000000096-0000000001-123456.checkpoint.part",
            FileName(FileKind.METADATA_SNAPSHOT, 96, FileState.PARTIAL, 1, "123456"),
        ),
        (
            "45_AAAAAAAAAAMAAAAAAAAABA.timeindex",
            FileName(FileKind.TIME_INDEX, 45, remote_segment_id="AAAAAAAAAAMAAAAAAAAABA"),
        ),
        ("leader-epoch-checkpoint", FileName(FileKind.LEADER_EPOCH_CHECKPOINT)),
        ("partition.metadata.tmp", FileName(FileKind.PARTITION_METADATA, state=FileState.TEMPORARY)),
        (".kafka_cleanshutdown", FileName(FileKind.CLEAN_SHUTDOWN)),
        ("bootstrap.checkpoint", FileName(FileKind.BOOTSTRAP_SNAPSHOT)),
    ],
)
def test_a_file_name_says_kind_offset_and_state(name: str, expected: FileName) -> None:
    assert names.parse_file(name) == expected
    assert str(expected) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "42.log",
        "00000000000000000042.LOG",
        "00000000000000000042.log.bak",
        "99999999999999999999.log",
        "00000000000000000096-0000000001.checkpoint.part",
        "00000000000000000096-9999999999.checkpoint",
        "readme.txt",
    ],
)
def test_a_file_name_that_kafka_does_not_give_is_refused(name: str) -> None:
    with pytest.raises(FormatError):
        names.parse_file(name)


@given(own.topic_partitions)
def test_a_marked_name_fits_255_characters_unless_it_is_a_future_one(partition: TopicPartition) -> None:
    long = TopicPartition(partition.topic * 9 + "t" * 240, partition.partition)
    for state in (DirectoryState.DELETE, DirectoryState.STRAY):
        marked = names.marked_directory(long, state, HEX)
        assert len(str(marked)) == 255
        assert long.topic.startswith(marked.partition.topic)
        assert names.parse_directory(str(marked)) == marked
    assert names.marked_directory(long, DirectoryState.FUTURE, HEX).partition == long


def test_ids_are_22_characters_of_url_safe_base64() -> None:
    assert names.encode_uuid(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert names.decode_uuid("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\x01"
    for text in ("", "AAAAAAAAAAAAAAAAAAAAAR", "AAAAAAAAAAAAAAAAAAAAA=", "A" * 23):
        with pytest.raises(FormatError):
            names.decode_uuid(text)


def test_fast_readers_share_names_and_text_formats_without_construct() -> None:
    modules = (
        "catalogue names constants checkpoints meta_properties partition_metadata clean_shutdown quorum_state"
    )
    imports = "; ".join(f"import klog.formats.{module}" for module in modules.split())
    code = f"{imports}; import sys; sys.exit('construct' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
