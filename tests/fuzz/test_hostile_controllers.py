"""A controller may send anything: no request ends a thread, leaves the log directory or loses records."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given

from klog.formats.names import TopicPartition, encode_uuid
from klog.protocol.apis import ApiKey
from klog.protocol.errors import ProtocolError
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrTopicState
from klog.protocol.interbroker.stop_replica import StopReplicaRequest
from klog.protocol.interbroker.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from klog.protocol.messages import encode_request
from klog.replication.purgatory import Purgatory
from klog.server.handlers.cluster.control import ControlHandler
from klog.server.handlers.topics.metadata import MetadataHandler
from tests.control_requests import leader_and_isr_state
from tests.peer_strategies import KNOWN_ID, KNOWN_TOPIC, control_frames
from tests.server.handlers.parts import BROKER, Broker, FakeRequest, answer_of, request_of

KEPT = TopicPartition("kept", 0)


def control(broker: Broker) -> ControlHandler:
    return ControlHandler(
        broker.replicas,
        broker.metadata,
        Purgatory("topic", broker.timer),
        Purgatory("elect-leader", broker.timer),
        lambda: 0,
        lambda _update, _known: None,
    )


def tell(broker: Broker, api_key: int, version: int, data: bytes) -> Any:
    """The answer, None if the bytes are no request."""
    sent = FakeRequest(api_key, version, memoryview(data))
    handler = control(broker)
    handle = {4: handler.leader_and_isr, 5: handler.stop_replica, 6: handler.update_metadata}[api_key]
    try:
        handle(sent)
    except ProtocolError:
        return None
    return answer_of(sent)


def ask_metadata(broker: Broker) -> None:
    for version in range(13):
        topics = () if version == 0 else None
        asked = request_of(
            ApiKey.METADATA,
            version,
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        MetadataHandler("cluster", broker.metadata, Mock()).handle(asked)
        answer_of(asked)


def partition(topic: str, index: int = 0) -> bytes:
    """LeaderAndIsr for one partition."""
    state = leader_and_isr_state(index, BROKER, (BROKER,), is_new=True)
    topics = (LeaderAndIsrTopicState(topic_name=topic, topic_id=KNOWN_ID, partition_states=(state,)),)
    return encode_request(
        LeaderAndIsrRequest(
            controller_id=1, controller_epoch=1, request_type=0, topic_states=topics, live_leaders=()
        )
    )


def registered(protocol: int) -> bytes:
    """UpdateMetadata with one broker."""
    endpoint = UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT", security_protocol=protocol)
    brokers = (UpdateMetadataBroker(id=5, endpoints=(endpoint,), rack=None),)
    return encode_request(
        UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=(), live_brokers=brokers)
    )


@given(control_frames())
def test_no_request_of_a_controller_does_harm(frame: tuple[Any, bytes]) -> None:
    entity, data = frame
    with tempfile.TemporaryDirectory() as work:
        root = Path(work, "root")
        root.mkdir()
        broker = Broker(root)
        for topic in (KNOWN_TOPIC, KEPT.topic):
            broker.lead(topic, topic_id=encode_uuid(KNOWN_ID.bytes))
            broker.append(1, topic)
        tell(broker, entity.__api_key__, entity.__version__, data)
        assert [path.name for path in Path(work).iterdir()] == ["root"]
        assert broker.logs.background.failures == []
        log = broker.logs.get(KEPT)
        assert log is not None
        assert log.log_end_offset == 1
        records = sum(path.stat().st_size > 0 for path in root.glob(f"{KNOWN_TOPIC}-0*/*.log"))
        assert records or isinstance(entity, StopReplicaRequest)
        ask_metadata(broker)
        broker.append(1, KEPT.topic)


@pytest.mark.parametrize("protocol", [4, -1, 99, 2**15 - 1])
def test_an_unknown_security_protocol_leaves_out_the_endpoint_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, protocol: int
) -> None:
    broker = Broker(tmp_path)
    assert tell(broker, 6, 8, registered(protocol)).error_code == 0
    assert broker.metadata.snapshot.brokers[5].endpoints == ()
    (line,) = caplog.messages
    assert f"broker 5 that is left out: listener 'PLAINTEXT', security protocol {protocol}" in line
    ask_metadata(broker)


@pytest.mark.parametrize(
    ("topic", "index"), [("../x", 0), ("", 0), ("a/b", 0), ("nul\0", 0), ("t", -1), ("x" * 249, 2**31 - 1)]
)
def test_a_partition_that_cannot_exist_gets_no_directory_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str, index: int
) -> None:
    caplog.set_level(logging.ERROR)
    root = tmp_path / "root"
    root.mkdir()
    broker = Broker(root)
    (answered,) = tell(broker, 4, 7, partition(topic, index)).topics
    assert [each.error_code for each in answered.partition_errors] == [17]
    assert (list(root.iterdir()), list(tmp_path.iterdir())) == ([], [root])
    (line,) = caplog.messages
    assert "cannot exist" in line
    assert broker.logs.background.failures == []
