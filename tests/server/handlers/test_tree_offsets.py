"""Version 0 of OffsetCommit and OffsetFetch: offsets in the metadata tree, without members."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.metadata.consumer_offsets import read_consumer_offset, write_consumer_offset
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.group_parts import GroupBroker
from tests.server.handlers.parts import TOPIC
from tests.server.handlers.test_groups import GROUP, commit, errors_of, fetch

NONE = ErrorCode.NONE


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    # It coordinates no group: the tree is every broker's.
    return GroupBroker(tmp_path, lead=False)


def commit_errors(broker: GroupBroker, **values) -> list[int]:
    return list(errors_of(commit(broker, 0, **values)).values())


def fetched(broker: GroupBroker, *topics: tuple[str, int], group_id: str = GROUP) -> list[tuple]:
    answer = fetch(broker, 0, topics, group_id=group_id)
    return [
        (each.committed_offset, each.metadata, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]


def test_an_offset_goes_into_the_tree_without_its_metadata(broker: GroupBroker) -> None:
    assert commit_errors(broker, topics=((TOPIC, 0, 5),)) == [NONE]
    assert read_consumer_offset(broker.store, GROUP, (TOPIC, 0)) == 5
    assert fetched(broker, (TOPIC, 0)) == [(5, "", NONE)]


def test_what_was_not_committed_is_unknown(broker: GroupBroker) -> None:
    unknown = (-1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    write_consumer_offset(broker.store, GROUP, ("absent", 0), 7)
    assert fetched(broker, (TOPIC, 0), ("absent", 0)) == [unknown, unknown]


def test_a_partition_that_does_not_exist_is_not_committed(broker: GroupBroker) -> None:
    errors = commit_errors(broker, topics=((TOPIC, 0, 5), ("absent", 0, 5)))
    assert errors == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert read_consumer_offset(broker.store, GROUP, ("absent", 0)) is None


def test_metadata_that_are_too_long_are_refused(broker: GroupBroker) -> None:
    for metadata, error in (("é" * 4096, NONE), ("é" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE)):
        assert commit_errors(broker, topics=((TOPIC, 0, 5),), metadata=metadata) == [error]


def test_a_group_that_no_node_can_be_named_after(broker: GroupBroker) -> None:
    assert commit_errors(broker, group_id="") == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert fetched(broker, (TOPIC, 0), group_id="") == [(-1, "", ErrorCode.UNKNOWN_SERVER_ERROR)]
