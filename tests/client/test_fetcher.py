"""Reading assigned partitions: errors of requests and partitions, positions, and jumps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from klog.client.errors import RefusedError
from klog.client.fetcher import Fetched, Fetcher, FetchSettings, Jumped
from klog.client.offsets import list_offsets
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectFailedError, ConnectionLostError
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, TopicFetched, encode_fetch_response
from klog.protocol.offset_times import EARLIEST
from tests.client.fake_broker import BOOT, A, B, FakeCluster, metadata

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERSION = 12


def fetched(*partitions, error_code=0):
    topics = [TopicFetched("t", None, list(partitions))]
    return memoryview(b"".join(encode_fetch_response(VERSION, FetchResponse(topics, error_code))))


def offsets(number, offset):
    partition = SimpleNamespace(partition_index=number, error_code=0, offset=offset)
    return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[partition])])


def reader(world, positions, **settings):
    world.client.refresh(["t"])
    return Fetcher(world.client, positions, FetchSettings(**settings))


def test_every_leader_gets_one_request_for_its_partitions():
    world = FakeCluster(metadata(leaders=(1, 2)))
    world.connections[A].answers = [fetched(PartitionFetched(0, 0, 9, 9, records=b"a"))]
    world.connections[B].answers = [fetched(PartitionFetched(1, 0, 8, 8, records=b"b"))]
    results = list(reader(world, {T0: 5, T1: 6}).poll())
    assert results == [Fetched(T0, 5, b"a", (), 9), Fetched(T1, 6, b"b", (), 8)]


def test_a_partition_that_moved_is_read_from_its_new_leader():
    world = FakeCluster(metadata(leaders=(1,)), metadata(leaders=(2,)))
    world.connections[A].answers = [fetched(PartitionFetched(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))]
    world.connections[B].answers = [fetched(PartitionFetched(0, 0, 9, 9, records=b"b"))]
    fetcher = reader(world, {T0: 5})
    assert list(fetcher.poll()) == []
    assert [result.records for result in fetcher.poll()] == [b"b"]


def test_an_error_of_the_request_that_no_retry_can_cure_is_raised_at_once():
    world = FakeCluster(metadata(leaders=(1,)))
    world.connections[A].answers = [fetched(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    fetcher = reader(world, {T0: 5})
    with pytest.raises(RefusedError, match="CLUSTER_AUTHORIZATION_FAILED"):
        list(fetcher.poll())
    assert world.now_s == 0


def test_a_position_that_was_deleted_jumps_to_the_start_of_the_log():
    world = FakeCluster(metadata(leaders=(1,)))
    out_of_range = fetched(PartitionFetched(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1))
    world.connections[A].answers = [out_of_range, offsets(0, 70)]
    fetcher = reader(world, {T0: 5})
    assert list(fetcher.poll()) == [Jumped(T0, 5, 70)]
    assert fetcher.positions == {T0: 70}


def test_a_position_beyond_the_end_jumps_to_the_end():
    world = FakeCluster(metadata(leaders=(1,)))
    out_of_range = fetched(PartitionFetched(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1))
    world.connections[A].answers = [out_of_range, offsets(0, 0), offsets(0, 70)]
    assert list(reader(world, {T0: 500}).poll()) == [Jumped(T0, 500, 70)]


def test_a_partition_that_the_caller_drops_gives_nothing_more():
    world = FakeCluster(metadata(leaders=(1, 1)))
    both = [PartitionFetched(number, 0, 9, 9, records=b"a") for number in (0, 1)]
    world.connections[A].answers = [fetched(*both)]
    fetcher = reader(world, {T0: 5, T1: 5})
    found = []
    for result in fetcher.poll():
        found.append(result.partition)
        fetcher.drop(T1)
    assert found == [T0]


def test_offsets_are_asked_for_again_after_a_lost_connection():
    world = FakeCluster(metadata(leaders=(1,)), metadata(leaders=(1,)))
    world.client.refresh(["t"])
    world.connections[A].answers = [ConnectionLostError("lost"), offsets(0, 7)]
    assert list_offsets(world.client, {T0: EARLIEST}) == {T0: 7}


def test_offsets_of_a_cluster_that_stays_away_end_in_an_error_after_the_time_limit():
    world = FakeCluster(metadata(leaders=(1,)))
    world.client.refresh(["t"])
    for connection in world.connections.values():
        connection.close()
        connection.down = True
    with pytest.raises(ConnectFailedError):
        list_offsets(world.client, {T0: EARLIEST})
    assert 0 < world.now_s <= 1
    assert not world.connections[BOOT].connected
