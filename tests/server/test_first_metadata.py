"""A broker that starts answers its clients once the controller has told it of its topics, not before."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from klog.controller.runner import Controller
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import RecordData, build_batch
from klog.metadata.cache import ClusterSnapshot
from klog.metadata.errors import WaitCancelledError
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.update_metadata import UpdateMetadataPartitionState
from klog.protocol.messages import build, decode_response, encode_request, request_class
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from klog.server.startup.broker import Broker
from klog.server.startup.first_metadata import is_complete
from tests.peers.broker import free_port
from tests.server.network.servers import Client, frame
from tests.server.test_broker import config, make_topic
from tests.threads import join, started
from tests.waiting import eventually

TOPICS = [f"topic-{number}" for number in range(5)]
PRODUCE_VERSION = 7
METADATA_VERSION = 1


class Address:
    """Where a client of the tests connects."""

    def __init__(self) -> None:
        self.number = free_port()

    def port(self, _: str) -> int:
        return self.number

    def listens(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.number)) == 0


def metadata_frame() -> bytes:
    asked = build(request_class(ApiKey.METADATA, METADATA_VERSION), topics=None)
    return frame(encode_request(asked), 1, ApiKey.METADATA, METADATA_VERSION)


def produce_frame(topic: str) -> bytes:
    batch = build_batch([RecordData(0, 1_700_000_000_000, b"k", b"v")])
    asked = ProduceRequest(None, 1, 30_000, [(topic, [(0, memoryview(batch))])])
    body = b"".join(encode_produce_request(PRODUCE_VERSION, asked))
    return frame(body, 2, ApiKey.PRODUCE, PRODUCE_VERSION)


def api_versions_frame() -> bytes:
    return frame(b"", 3, ApiKey.API_VERSIONS, 0)


@pytest.mark.parametrize("clean", [True, False])
def test_clients_that_connect_during_a_restart_find_their_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    address = Address()
    texts = {"listeners": f"PLAINTEXT://127.0.0.1:{address.number}"}
    first = Broker(config(tmp_path / "a", **texts))
    for topic in TOPICS:
        make_topic(first, topic)
    first.stop()
    if not clean:
        (tmp_path / "a" / ".kafka_cleanshutdown").unlink()
    # The controller of the second broker waits until clients have asked.
    asked = threading.Event()
    start = Controller.start

    def start_later(controller: Controller) -> None:
        assert asked.wait(60)
        start(controller)

    monkeypatch.setattr(Controller, "start", start_later)
    brokers: list[Broker] = []
    opening = started(lambda: brokers.append(Broker(config(tmp_path / "a", **texts))))
    try:
        eventually(address.listens)
        with Client(address, listener="") as client, Client(address, listener="") as other:
            client.send(metadata_frame() + produce_frame(TOPICS[-1]))
            # Answered at once, after the frames of the other connection were read.
            other.send(api_versions_frame())
            assert other.receive()[0] == 3
            asked.set()
            correlation_id, body = client.receive()
            assert correlation_id == 1
            found = decode_response(ApiKey.METADATA, METADATA_VERSION, memoryview(body))
            assert {topic.name for topic in found.topics} == set(TOPICS)
            assert {part.leader_id for topic in found.topics for part in topic.partitions} == {7}
            correlation_id, body = client.receive()
            produced = decode_produce_response(PRODUCE_VERSION, memoryview(body))
            assert [part.error_code for _, parts in produced.topics for part in parts] == [ErrorCode.NONE]
    finally:
        asked.set()
        join([opening])
        for broker in brokers:
            broker.stop()


def test_a_broker_that_is_stopped_while_it_waits_for_the_controller_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Broker(config(tmp_path / "a"))
    make_topic(first, "t")
    first.stop()
    monkeypatch.setattr(Controller, "start", lambda controller: None)
    with pytest.raises(WaitCancelledError, match="before the controller had sent the metadata"):
        Broker(config(tmp_path / "a"), is_stopping=lambda: True)
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def snapshot(**states: UpdateMetadataPartitionState) -> ClusterSnapshot:
    return ClusterSnapshot({topic: {0: state} for topic, state in states.items()})


def state(
    leader: int, isr: tuple[int, ...] = (7, 8), offline: tuple[int, ...] = ()
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=1,
        isr=isr,
        zk_version=0,
        replicas=(7, 8),
        offline_replicas=offline,
    )


@pytest.mark.parametrize(
    ("found", "led", "expected"),
    [
        (state(8), set(), True),
        (state(7), set(), False),
        (state(7), {("t", 0)}, True),
        # It will be elected.
        (state(-1), set(), False),
        # It cannot be elected: it is not in sync, or its log directory has failed.
        (state(-1, isr=(8,)), set(), True),
        (state(-1, offline=(7,)), set(), True),
    ],
)
def test_a_broker_waits_for_what_it_will_lead(
    found: UpdateMetadataPartitionState, led: set[tuple[str, int]], expected: bool
) -> None:
    def leads(partition: TopicPartition) -> bool:
        return partition in led

    assert is_complete(snapshot(t=found), 7, {"t"}, leads) is expected
    assert not is_complete(snapshot(t=found), 7, {"t", "u"}, leads)
    assert is_complete(snapshot(t=found, u=state(8)), 7, {"t", "u"}, leads) is expected
