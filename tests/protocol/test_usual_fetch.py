"""Usual Fetch requests are read as the general reader reads them; all other bytes are none."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.protocol.fetch_request import decode_fetch_request
from klog.protocol.primitives import text_of
from klog.protocol.usual_fetch import read_usual_fetch
from klog.server.network.request import Request
from tests.request_strategies import SessionFrames, damaged_frames, fetch_frames

TOPICS = {"orders": UUID(int=1), "name-of-sixteen!": UUID(int=2)}
IN_SESSION = SessionFrames(st.integers(7, 17), (5, 3))
USUAL = fetch_frames(TOPICS, usual=True) | fetch_frames(TOPICS, usual=True, session=IN_SESSION)
FRAMES = USUAL | fetch_frames(TOPICS, usual=False) | fetch_frames(TOPICS, usual=False, session=IN_SESSION)


@given(USUAL, st.binary(max_size=9), st.binary(max_size=9))
def test_usual_requests_are_read_wherever_they_stand(frame: bytes, before: bytes, after: bytes) -> None:
    end = len(before) + len(frame)
    found = read_usual_fetch(bytearray(before + frame + after), len(before), end)
    assert found is not None
    assert found.end == end


@given(FRAMES | damaged_frames(FRAMES))
def test_what_is_read_is_what_the_general_reader_finds(frame: bytes) -> None:
    found = read_usual_fetch(bytearray(frame), 0, len(frame))
    if found is None:
        return
    request = Request(None, bytearray(frame[4:]), 0)
    fetch = decode_fetch_request(request.api_version, request.body)
    ((name, topic_id, (partition,)),) = fetch.topics
    assert (found.version, found.correlation_id) == (request.api_version, request.correlation_id)
    assert (found.max_wait_ms, found.min_bytes, found.max_bytes, found.committed) == fetch[:4]
    if name is None:
        assert found.topic == topic_id.bytes
    else:
        assert text_of(found.topic) == name
    assert found.partition == partition.partition
    assert found.current_leader_epoch == partition.current_leader_epoch
    assert found.log_start_offset == partition.log_start_offset
    assert (found.offset, found.partition_max_bytes) == (partition.fetch_offset, partition.max_bytes)
    assert (found.session_id, found.session_epoch) == (fetch.session_id, fetch.session_epoch)
    assert fetch.session_epoch > 0 or (fetch.session_id, fetch.session_epoch) == (0, -1)
    assert fetch.forgotten == []
    assert (fetch.replica_id, partition.last_fetched_epoch) == (-1, -1)


@given(st.data())
def test_frames_that_are_cut_are_none(data: st.DataObject) -> None:
    frame = bytearray(data.draw(FRAMES))
    cut = data.draw(st.integers(0, len(frame) - 1))
    assert read_usual_fetch(frame, 0, cut) is None
    assert read_usual_fetch(frame[:cut], 0, len(frame)) is None


@given(st.binary(max_size=200), st.integers(0, 20))
def test_any_bytes_can_be_given(data: bytes, start: int) -> None:
    assert read_usual_fetch(bytearray(data), start, len(data)) is None


@pytest.mark.parametrize("version", [-1, 3, 18])
def test_other_versions_are_none(version: int) -> None:
    frame = b"\0\0\0\x0a\0\1" + version.to_bytes(2, "big", signed=True) + bytes(6)
    assert read_usual_fetch(bytearray(frame), 0, len(frame)) is None
