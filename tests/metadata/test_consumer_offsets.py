"""Offsets of consumers before Kafka 0.9 in the tree of every kind of store."""

from __future__ import annotations

import pytest

from klog.formats.errors import UsageError
from klog.metadata import paths
from klog.metadata.consumer_offsets import read_consumer_offset, write_consumer_offset
from klog.metadata.errors import MetadataError
from klog.metadata.store import MetadataStore

PARTITION = ("topic", 3)
NODE = "/consumers/readers/offsets/topic/3"


@pytest.mark.parametrize("offset", [0, 42, -1, 2**63 - 1, -(2**63)])
def test_an_offset_is_decimal_text_at_kafka_s_path(store: MetadataStore, offset: int) -> None:
    write_consumer_offset(store, "readers", PARTITION, offset)
    assert store.get(NODE).data == str(offset).encode()
    assert read_consumer_offset(store, "readers", PARTITION) == offset


def test_the_last_commit_counts(store: MetadataStore) -> None:
    for offset in (5, 9, 7):
        write_consumer_offset(store, "readers", PARTITION, offset)
    write_consumer_offset(store, "readers", ("topic", 4), 1)
    assert read_consumer_offset(store, "readers", PARTITION) == 7
    assert read_consumer_offset(store, "readers", ("topic", 4)) == 1


def test_without_a_commit_there_is_no_offset(store: MetadataStore) -> None:
    assert read_consumer_offset(store, "readers", PARTITION) is None
    store.create(NODE, None, make_parents=True)
    assert read_consumer_offset(store, "readers", PARTITION) is None


def test_what_another_program_wrote_is_read_if_it_is_a_number(store: MetadataStore) -> None:
    store.create(NODE, b"+17", make_parents=True)
    assert read_consumer_offset(store, "readers", PARTITION) == 17
    for data in (b"", b"x", b"1_0", b" 1", b"9223372036854775808", b"\xff"):
        store.set(NODE, data)
        with pytest.raises(MetadataError, match=NODE):
            read_consumer_offset(store, "readers", PARTITION)


def test_a_group_with_a_slash_is_a_node_in_a_node(store: MetadataStore) -> None:
    write_consumer_offset(store, "a/b", PARTITION, 1)
    assert store.children(f"{paths.CONSUMERS}/a") == ["b"]


@pytest.mark.parametrize(
    "group", ["", ".", "a/..", "a//b", "/a", "a/", "a\0", "\x1f", "\x85", "\ue000", "\U0001f600"]
)
def test_no_node_has_a_name_that_zookeeper_refuses(store: MetadataStore, group: str) -> None:
    with pytest.raises(UsageError):
        write_consumer_offset(store, group, PARTITION, 1)
    with pytest.raises(UsageError):
        read_consumer_offset(store, group, PARTITION)
