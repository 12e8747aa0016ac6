"""Rights on the paths for usual frames: what a client may not do is left to the handler, which refuses it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from kio.schema.fetch.v12.response import FetchResponse

from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.apis import ApiKey
from klog.protocol.entity_codec import read_entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.messages import decode_response_header, encode_request_header
from klog.protocol.produce_response import decode_produce_response
from klog.protocol.runs import CommitRun, NoRun
from klog.security.authorization.audit import LOGGER
from klog.server.handlers.access import Access
from tests.request_strategies import framed
from tests.server.handlers import test_commit_runs as commits
from tests.server.handlers import test_fetch_runs as fetches
from tests.server.handlers import test_produce_runs as produces
from tests.server.handlers.frame_client import FrameClient
from tests.server.handlers.parts import TOPIC
from tests.server.handlers.test_access import Acls, allow
from tests.server.handlers.test_fetch import wants

pytestmark = pytest.mark.skipif(CommitRun is NoRun, reason="klog reads no runs without its compiled modules")

READ, WRITE = AclOperation.READ, AclOperation.WRITE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def bodies(client: FrameClient, api: ApiKey, version: int) -> list[memoryview]:
    """The bodies of the answers so far."""
    data, found = memoryview(client.connection.outbound.read()), []
    while data:
        frame, data = data[4 : (end := 4 + int.from_bytes(data[:4], "big"))], data[end:]
        found.append(frame[decode_response_header(api, version, frame)[1] :])
    return found


def produce_errors(client: produces.Client) -> list[int]:
    answers = (decode_produce_response(9, body) for body in bodies(client, ApiKey.PRODUCE, 9))
    return [answer.topics[0][1][0].error_code for answer in answers]


# -- Produce -------------------------------------------------------------------------------------------------


@pytest.fixture
def acls() -> Acls:
    return Acls()


def producer(root: Path, acls: Acls, *, runs: bool = True) -> produces.Client:
    """A client of a log with one record: what begins a segment is no run."""
    client = produces.Client(root, {}, runs=runs, access=Access(acls))
    client.broker.append()
    return client


def test_a_run_that_is_allowed_is_answered_where_it_was_read(tmp_path, acls) -> None:
    acls.set(allow(WRITE, name=TOPIC))
    client = producer(tmp_path / "log", acls)
    data = produces.produce_frame() + produces.produce_frame(correlation_id=2)
    client.receive(data)
    assert client.in_runs == len(data)


def test_a_run_that_is_denied_writes_nothing(tmp_path, acls) -> None:
    acls.set(allow(READ, name=TOPIC))
    client = producer(tmp_path / "log", acls)
    client.receive(produces.produce_frame() + produces.produce_frame(correlation_id=2))
    assert client.in_runs == 0
    assert client.broker.replicas.partitions[TOPIC, 0].log.log_end_offset == 1
    assert produce_errors(client) == [DENIED, DENIED]


def test_without_acks_a_denied_producer_loses_its_connection(tmp_path, acls) -> None:
    client = producer(tmp_path / "log", acls)
    client.receive(produces.produce_frame(acks=0))
    assert client.connection.closing


def test_the_next_run_follows_a_change_of_acls(tmp_path, acls) -> None:
    acls.set(allow(WRITE, name=TOPIC))
    client = producer(tmp_path / "log", acls)
    client.receive(produces.produce_frame())
    served = client.in_runs
    acls.set(allow(READ, name=TOPIC))
    client.receive(produces.produce_frame())
    assert client.in_runs == served
    assert produce_errors(client) == [ErrorCode.NONE, DENIED]


def test_nothing_is_answered_without_its_line_in_the_audit_log(tmp_path, acls, caplog) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    acls.set(allow(WRITE, name=TOPIC))
    client = producer(tmp_path / "log", acls)
    client.receive(produces.produce_frame())
    assert client.in_runs == 0
    assert any("is Allowed Operation = Write" in message for message in caplog.messages)


# -- Fetch ---------------------------------------------------------------------------------------------------


def fetch_frame(*topics: str, version=12, session_id=0, epoch=-1, offset=10) -> bytes:
    ids = fetches.IDS
    asked = [FetchTopic(each, ids[each], [wants(offset=offset)]) for each in topics]
    fetch = FetchRequest(0, 0, 1 << 20, 0, asked, session_id=session_id, session_epoch=epoch)
    header = encode_request_header(ApiKey.FETCH, version, 1, "client")
    return framed(header + encode_fetch_request(version, fetch))


@pytest.mark.parametrize("version", [12, 13])
def test_a_fetch_is_answered_where_it_was_read_only_if_it_is_allowed(tmp_path, acls, version) -> None:
    client = fetches.Client(fetches.serving(tmp_path), runs=True, access=Access(acls))
    frame = fetch_frame(TOPIC, version=version, offset=0)
    client.receive(frame)
    assert client.in_runs == 0
    acls.set(allow(READ, name=TOPIC))
    client.receive(frame)
    assert client.in_runs == len(frame)


def last_fetched(client: fetches.Client) -> list[tuple[str | None, int]]:
    """The topics and errors of the last answer."""
    answer = read_entity(FetchResponse, bodies(client, ApiKey.FETCH, 12)[-1])
    return [(topic.topic, int(each.error_code)) for topic in answer.responses for each in topic.partitions]


def test_a_partition_of_a_session_is_refused_as_soon_as_it_may_not_be_read(tmp_path, acls) -> None:
    acls.set(allow(READ, name=TOPIC), allow(READ, name="large"))
    client = fetches.Client(fetches.serving(tmp_path), runs=True, access=Access(acls))
    client.receive(fetch_frame(TOPIC, "large", epoch=0))
    assert last_fetched(client) == [(TOPIC, 0), ("large", 0)]
    acls.set(allow(READ, name=TOPIC))
    # The error is told as long as it lasts.
    for epoch in (1, 2):
        client.receive(fetch_frame(session_id=1, epoch=epoch))
        assert last_fetched(client) == [("large", DENIED)]
    acls.set(allow(READ, name=TOPIC), allow(READ, name="large"))
    client.receive(fetch_frame(session_id=1, epoch=3))
    assert last_fetched(client) == [("large", 0)]


def test_records_of_one_topic_do_not_come_past_the_refusal_of_another(tmp_path, acls) -> None:
    acls.set(allow(READ, name=TOPIC), allow(READ, name="large"))
    client = fetches.Client(fetches.serving(tmp_path), runs=True, access=Access(acls))
    client.receive(fetch_frame(TOPIC, "large", epoch=0))
    acls.set(allow(READ, name=TOPIC))
    client.receive(fetch_frame(TOPIC, session_id=1, epoch=1, offset=0))
    assert last_fetched(client) == [(TOPIC, 0), ("large", DENIED)]


# -- OffsetCommit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group_allowed", "topic_allowed"), [(True, True), (True, False), (False, True)])
def test_commits_are_written_where_they_were_read_only_if_all_is_allowed(
    tmp_path, acls, group_allowed, topic_allowed
) -> None:
    group = commits.SIMPLE if group_allowed else "another"
    topic = commits.TOPIC if topic_allowed else "another"
    acls.set(allow(READ, AclResourceType.GROUP, group), allow(READ, name=topic))
    client = commits.Client(tmp_path / "log", runs=True, access=Access(acls), first=[commits.frame(1)])
    client.in_runs = 0
    frame = commits.frame(2)
    client.receive(frame)
    assert client.in_runs == (len(frame) if group_allowed and topic_allowed else 0)
