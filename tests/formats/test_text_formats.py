"""The text files of a log directory, as Kafka writes them and as its readers accept them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import (
    checkpoints,
    clean_shutdown,
    java_properties,
    meta_properties,
    partition_metadata,
    quorum_state,
)
from klog.formats.errors import FormatError, KlogError, UnsupportedFormatError
from klog.formats.names import TopicPartition
from tests import strategies as own


def test_an_offset_checkpoint_lists_partitions_and_offsets() -> None:
    data = b"0\n2\nmy-topic 3 42\nother 0 9223372036854775807\n"
    parsed = checkpoints.parse_offsets(data)
    assert parsed.entries == (
        (TopicPartition("my-topic", 3), 42),
        (TopicPartition("other", 0), 2**63 - 1),
    )
    assert checkpoints.build_offsets(parsed) == data


def test_an_empty_checkpoint_file_has_no_entries_and_stays_empty() -> None:
    assert checkpoints.parse_epochs(b"") == checkpoints.EpochCheckpoint((), None)
    assert checkpoints.build_epochs(checkpoints.parse_epochs(b"")) == b""
    assert checkpoints.build_epochs(checkpoints.parse_epochs(b"0\n0\n")) == b"0\n0\n"


def test_columns_are_split_at_any_white_space_and_lines_at_any_end() -> None:
    parsed = checkpoints.parse_epochs(b"0\r\n2\r\n1\t \t5 \r\n2 +9")
    assert parsed.entries == ((1, 5), (2, 9))


@pytest.mark.parametrize(
    ("data", "position", "complaint"),
    [
        (b"0\n2\n1 5\n", 2, "2 entries announced, but 1"),
        (b"0\n1\n1 5\n\n", 8, "line ''"),
        (b"0\n1\n1 5 6\n", 4, "'1 5 6'"),
        (b"0\n1\n 1 5\n", 4, "' 1 5'"),
        (b"x\n", 0, "'x'"),
        (b"0\n1\n99999999999 5\n", 4, "does not fit"),
        (b"0\n1\n1 \xff\n", 6, "0xff"),
    ],
)
def test_an_invalid_checkpoint_is_refused_with_the_position_of_the_error(
    data: bytes, position: int, complaint: str
) -> None:
    with pytest.raises(FormatError, match=complaint) as caught:
        checkpoints.parse_epochs(data)
    assert caught.value.position_bytes == position


def test_a_checkpoint_of_another_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedFormatError, match="version 1"):
        checkpoints.parse_offsets(b"1\n0\n")


def test_partition_metadata_ends_without_newline_and_has_an_id() -> None:
    data = b"version: 0\ntopic_id: 2n1Nn3JeSJqDqVPCKlVnXQ"
    parsed = partition_metadata.parse(data)
    assert parsed.topic_id == "2n1Nn3JeSJqDqVPCKlVnXQ"
    assert partition_metadata.build(parsed) == data
    for broken in (b"", b"version: 0", b"version: 0\ntopic_id: " + b"A" * 22, b"version: 0\ntopic_id: x"):
        with pytest.raises(FormatError):
            partition_metadata.parse(broken)


def test_the_clean_shutdown_marker_is_empty_or_says_the_brokers_epoch() -> None:
    assert clean_shutdown.parse(b"") == (None, None)
    data = b'{"version":0,"brokerEpoch":-1}'
    assert clean_shutdown.parse(data) == (0, -1)
    assert clean_shutdown.build(clean_shutdown.parse(data)) == data
    assert clean_shutdown.parse(b'{"brokerEpoch": 7, "new": 1}') == (0, 7)
    for broken in (b"{", b"[]", b'{"version":0}', b"[" * 5000, b'{"version":0,"brokerEpoch":true}'):
        with pytest.raises(FormatError):
            clean_shutdown.parse(broken)


def test_meta_properties_of_both_versions() -> None:
    zookeeper = (
        b"#\n#Sat Nov 21 08:54:01 UTC 2026\nbroker.id=2\nversion=0\ncluster.id=iuvGZtffTPmwwhc6461t6Q\n"
    )
    parsed = meta_properties.parse(zookeeper)
    assert (parsed.version, parsed.node_id, parsed.cluster_id) == (0, 2, "iuvGZtffTPmwwhc6461t6Q")
    assert meta_properties.build(parsed) == zookeeper
    kraft = meta_properties.create(1, node_id=5, cluster_id="c", directory_id="0GGzwpLNmJPrCrKx-lOUsQ")
    assert meta_properties.build(kraft) == (
        b"node.id=5\ndirectory.id=0GGzwpLNmJPrCrKx-lOUsQ\nversion=1\ncluster.id=c\n"
    )
    for broken in (
        b"version=1\nnode.id=1\n",
        b"version=2\n",
        b"broker.id=x\n",
        b"directory.id=x\n",
        b"a=\\u12\n",
    ):
        with pytest.raises(FormatError):
            meta_properties.parse(broken)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b\n  c d\n", {"a": "b", "c": "d"}),
        ("! note\n # note\n\n \t\na", {"a": ""}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=b\\\n   c\\\n\td\ne=f", {"a": "bcd", "e": "f"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\u0041\\t\\z", {"a": "A\tz"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("#c\\\na=b", {"a": "b"}),
        ("a=1\na=2", {"a": "2"}),
        ("=v", {"": "v"}),
        ("a==b", {"a": "=b"}),
        ("a=b\\", {"a": "b"}),
        ("a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        ("a\rb=c\r\n", {"a": "", "b": "c"}),
    ],
)
def test_java_properties_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    data = text.encode("latin-1")
    lines = java_properties.parse(data)
    assert java_properties.entries(lines) == expected
    assert java_properties.build(lines) == data


@given(st.text(alphabet=" \t\f\r\n\\=:#!au0041é", max_size=30))
def test_a_properties_file_keeps_all_its_bytes(text: str) -> None:
    data = text.encode("latin-1")
    try:
        lines = java_properties.parse(data)
    except KlogError:
        assert "\\u" in text
        return
    assert java_properties.build(lines) == data


@given(own.property_texts, own.property_texts)
def test_a_written_property_is_read_back(key: str, value: str) -> None:
    line = java_properties.property_line(key, value)
    assert java_properties.entries(java_properties.parse(line.raw.encode("latin-1"))) == {key: value}


def test_the_quorum_state_is_json_in_kafkas_order() -> None:
    data = b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAA","data_version":1}'
    parsed = quorum_state.parse(data)
    assert parsed.field("leaderEpoch") == 3
    assert parsed.field("clusterId") is None
    assert quorum_state.build(parsed) == data
    with pytest.raises(UnsupportedFormatError, match="version 7"):
        quorum_state.parse(b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"data_version":7}')
