"""Produce: where records go, who is refused and with which error, and when the answer comes."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from klog.formats.compression import DEFAULT_LIMIT_BYTES, ZSTD
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import MalformedMessageError
from klog.protocol.leader_hints import NO_HINT, LeaderHint, NodeEndpoint
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import PartitionProduced, decode_produce_response
from klog.replication.follower import FollowerFetch
from klog.server.handlers.data.produce import ProduceHandler
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, FakeRequest, batch, set_isr

LATEST = 11


def produce_request(
    partitions,
    *,
    version=LATEST,
    acks=1,
    timeout_ms=1000,
    transactional_id=None,
    topic=TOPIC,
    client_id="test",
) -> FakeRequest:
    body = b"".join(
        encode_produce_request(
            version, ProduceRequest(transactional_id, acks, timeout_ms, [(topic, list(partitions))])
        )
    )
    return FakeRequest(0, version, memoryview(bytearray(body)), client_id)


@pytest.fixture
def handler(broker: Broker) -> ProduceHandler:
    return broker.produce_handler()


def produced(request: FakeRequest) -> PartitionProduced:
    response = decode_produce_response(request.api_version, request.answer)
    ((_, (result,)),) = response.topics
    return result


def send(handler: ProduceHandler, records=None, **options) -> FakeRequest:
    records = memoryview(batch()) if records is None else records
    request = produce_request([(0, records)], **options)
    handler.handle(request)
    return request


@pytest.mark.parametrize("version", [3, 5, 8, 9, 10, 11])
def test_records_get_the_next_offsets(broker: Broker, handler: ProduceHandler, version: int) -> None:
    log = broker.lead().log
    send(handler, memoryview(batch(records=3)), version=version)
    result = produced(send(handler, memoryview(batch(records=2)), version=version))
    assert (result.error_code, result.base_offset, log.log_end_offset) == (ErrorCode.NONE, 3, 5)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_take_batches_of_any_magic(
    broker: Broker, handler: ProduceHandler, version: int
) -> None:
    log = broker.lead().log
    assert produced(send(handler, version=version)).error_code == ErrorCode.NONE
    assert log.log_end_offset == 1


@pytest.mark.parametrize("version", [0, 2])
def test_old_versions_may_send_no_records(broker: Broker, handler: ProduceHandler, version: int) -> None:
    broker.lead()
    result = produced(send(handler, memoryview(bytearray()), version=version, acks=-1))
    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, -1)


def test_a_batch_is_needed_from_version_3(broker: Broker, handler: ProduceHandler) -> None:
    broker.lead()
    assert produced(send(handler, memoryview(bytearray()))).error_code == ErrorCode.INVALID_RECORD


def test_magic_2_is_needed_from_version_3(broker: Broker, handler: ProduceHandler) -> None:
    broker.lead()
    data = batch()
    data[16] = 1
    assert produced(send(handler, memoryview(data), version=3)).error_code == ErrorCode.INVALID_RECORD


def test_zstd_is_refused_before_version_7(broker: Broker, handler: ProduceHandler) -> None:
    broker.lead()
    old = produced(send(handler, memoryview(batch(codec=ZSTD)), version=6))
    assert old.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produced(send(handler, memoryview(batch(codec=ZSTD)), version=7)).error_code == ErrorCode.NONE


def test_a_partition_that_the_cluster_does_not_know_is_unknown_even_where_its_log_is_here(
    broker: Broker, handler: ProduceHandler
) -> None:
    broker.lead(tell=False)
    assert produced(send(handler)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_on_another_broker_is_answered_with_its_leader(
    broker: Broker, handler: ProduceHandler
) -> None:
    broker.tell(leader=OTHER_BROKER, epoch=7)
    request = send(handler)
    response = decode_produce_response(LATEST, request.answer)
    result = response.topics[0][1][0]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader == LeaderHint(OTHER_BROKER, 7)
    assert response.node_endpoints == (NodeEndpoint(OTHER_BROKER, "host2", 9092, "rack2"),)


def test_a_leader_that_is_not_alive_is_told_without_an_address(
    broker: Broker, handler: ProduceHandler
) -> None:
    broker.tell(leader=OTHER_BROKER, epoch=7, brokers=[BROKER])
    response = decode_produce_response(LATEST, send(handler).answer)
    assert response.topics[0][1][0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.topics[0][1][0].current_leader == LeaderHint(OTHER_BROKER, 7)
    assert response.node_endpoints == ()


def test_a_follower_answers_with_the_leader_that_it_follows(broker: Broker, handler: ProduceHandler) -> None:
    broker.lead(leader=OTHER_BROKER, epoch=3, replicas=(BROKER, OTHER_BROKER))
    result = produced(send(handler))
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader == LeaderHint(OTHER_BROKER, 3)


def test_leaders_are_told_from_version_10(broker: Broker, handler: ProduceHandler) -> None:
    broker.tell(leader=OTHER_BROKER, epoch=7)
    result = produced(send(handler, version=9))
    assert (result.error_code, result.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_HINT)


def test_a_partition_of_a_failed_directory_is_a_storage_error(
    broker: Broker, handler: ProduceHandler
) -> None:
    partition = broker.lead()
    broker.replicas.directory_failed([partition.topic_partition])
    assert produced(send(handler)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_other_acks_than_kafkas_are_refused(broker: Broker, handler: ProduceHandler, acks: int) -> None:
    log = broker.lead().log
    assert produced(send(handler, acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert log.log_end_offset == 0


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_clients_may_not_write_to_internal_topics(
    broker: Broker, handler: ProduceHandler, topic: str
) -> None:
    log = broker.lead(topic, topic_id=None).log
    refused = produced(send(handler, topic=topic))
    assert (refused.error_code, log.log_end_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)
    allowed = produced(send(handler, topic=topic, client_id="__admin_client"))
    assert allowed.error_code == ErrorCode.NONE


def test_a_damaged_batch_is_refused_without_a_log_start_offset(
    broker: Broker, handler: ProduceHandler
) -> None:
    broker.lead()
    data = batch()
    data[-1] ^= 1
    result = produced(send(handler, memoryview(data)))
    assert (result.error_code, result.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def test_bad_records_are_named_and_the_log_start_offset_told(tmp_path) -> None:
    broker = Broker(tmp_path, {TOPIC: {"cleanup.policy": "compact"}})
    broker.lead()
    handler = broker.produce_handler()
    result = produced(send(handler, memoryview(batch(key=None))))
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in result.record_errors] == [0]
    assert result.log_start_offset == 0


def test_a_sequence_out_of_order_is_refused_and_a_repeated_batch_is_not(
    broker: Broker, handler: ProduceHandler
) -> None:
    log = broker.lead().log
    first = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    assert produced(send(handler, memoryview(batch(**first)))).base_offset == 0
    assert produced(send(handler, memoryview(batch(**first)))).base_offset == 0
    skipped = produced(send(handler, memoryview(batch(**first | {"base_sequence": 5}))))
    assert skipped.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 1


def test_transactional_records_are_refused_while_there_is_no_coordinator(
    broker: Broker, handler: ProduceHandler
) -> None:
    log = broker.lead().log
    fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    retriable = produced(send(handler, memoryview(batch(**fields)), transactional_id="payments"))
    assert retriable.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    nameless = produced(send(handler, memoryview(batch(**fields))))
    assert nameless.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert log.log_end_offset == 0


def test_acks_0_is_not_answered(broker: Broker, handler: ProduceHandler) -> None:
    log = broker.lead().log
    request = send(handler, acks=0)
    assert (request.answered, request.parts, request.closed, log.log_end_offset) == (True, None, False, 1)


def test_acks_0_learns_of_an_error_by_losing_the_connection(broker: Broker, handler: ProduceHandler) -> None:
    assert send(handler, acks=0).closed


def test_a_disk_that_fails_is_a_storage_error_and_is_reported(
    broker: Broker, handler: ProduceHandler, monkeypatch
) -> None:
    partition = broker.lead()

    def fails(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(partition.log.segments.active, "append", fails)
    assert produced(send(handler)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [where for where, _ in broker.logs.background.failures] == [partition.topic_partition]


def test_one_bad_partition_does_not_hold_up_the_others(broker: Broker, handler: ProduceHandler) -> None:
    broker.lead()
    request = produce_request([(0, memoryview(batch())), (8, memoryview(batch()))])
    handler.handle(request)
    ((_, results),) = decode_produce_response(LATEST, request.answer).topics
    assert [(r.partition, r.error_code) for r in results] == [
        (0, ErrorCode.NONE),
        (8, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


class TestAllInSync:
    """acks=-1 with a second replica in sync: the answer waits for it."""

    @pytest.fixture
    def partition(self, broker: Broker):
        return broker.lead(replicas=(BROKER, OTHER_BROKER))

    def test_the_answer_comes_when_the_follower_has_the_records(self, broker, handler, partition) -> None:
        request = send(handler, acks=-1)
        assert not request.answered
        broker.follow(1)
        assert produced(request)[:3] == (0, ErrorCode.NONE, 0)
        assert (broker.produce_purgatory.waiting, len(broker.timer)) == (0, 0)

    def test_time_over_is_a_timeout_that_keeps_the_offsets(self, broker, handler, partition) -> None:
        request = send(handler, acks=-1, timeout_ms=500)
        broker.pass_time(499)
        assert not request.answered
        broker.pass_time(1)
        assert produced(request)[:3] == (0, ErrorCode.REQUEST_TIMED_OUT, 0)
        assert partition.log.log_end_offset == 1

    def test_losing_leadership_ends_the_waiting_and_tells_the_new_leader(
        self, broker, handler, partition
    ) -> None:
        request = send(handler, acks=-1)
        broker.lead(leader=OTHER_BROKER, epoch=1, replicas=(BROKER, OTHER_BROKER))
        result = produced(request)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader == LeaderHint(OTHER_BROKER, 1)

    def test_a_failed_directory_ends_the_waiting(self, broker, handler, partition) -> None:
        request = send(handler, acks=-1)
        broker.replicas.directory_failed([partition.topic_partition])
        assert produced(request).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_too_few_in_sync_replicas_refuse_before_and_after_the_append(self, tmp_path) -> None:
        broker = Broker(tmp_path, {TOPIC: {"min.insync.replicas": "2"}})
        handler = broker.produce_handler()
        partition = broker.lead(replicas=(BROKER, OTHER_BROKER))
        request = send(handler, acks=-1)
        # The follower has the record, but the ISR has shrunk when the producer's wait is looked at.
        partition.record_fetch(FollowerFetch(OTHER_BROKER, -1, broker.clock()), 1, 0, 1)
        set_isr(partition, BROKER)
        broker.replicas.appended(partition.topic_partition, high_watermark_moved=True)
        assert produced(request).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert produced(send(handler, acks=-1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert produced(send(handler, acks=1)).error_code == ErrorCode.NONE
        assert partition.log.high_watermark == 1, "it stays while too few replicas are in sync"


def test_what_is_no_produce_request_is_said_to_be_malformed(handler: ProduceHandler) -> None:
    with pytest.raises(MalformedMessageError):
        handler.handle(FakeRequest(0, 9, memoryview(bytearray(b"\x00\x00"))))


def test_a_request_that_could_not_be_handled_has_its_error_in_every_partition(
    handler: ProduceHandler,
) -> None:
    request = produce_request([(0, memoryview(batch())), (3, None)])
    parts = handler.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    ((_, results),) = decode_produce_response(LATEST, memoryview(b"".join(parts))).topics
    assert [(r.partition, r.error_code) for r in results] == [(0, -1), (3, -1)]
    assert handler.failed(produce_request([(0, None)], acks=0), ErrorCode.UNKNOWN_SERVER_ERROR) is None


def compressed_zeros(size_bytes: int, codec: int = ZSTD) -> memoryview:
    """A batch of one record that decompresses to more than `size_bytes`, which are few when compressed."""
    return memoryview(batch(bytes(size_bytes), codec=codec))


@pytest.mark.parametrize("version", [8, LATEST])
def test_a_record_above_the_limit_of_decompression_is_too_large_and_the_log_says_so(
    broker: Broker, handler: ProduceHandler, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    log = broker.lead().log
    result = produced(send(handler, compressed_zeros(DEFAULT_LIMIT_BYTES), version=version))
    assert (result.error_code, log.log_end_offset) == (ErrorCode.MESSAGE_TOO_LARGE, 0)
    (line,) = caplog.messages
    assert line.startswith(f"{TOPIC}-0: records are refused with MESSAGE_TOO_LARGE: ")
    assert str(DEFAULT_LIMIT_BYTES) in line


def test_every_refusal_with_a_server_s_error_has_a_line_in_the_log(
    broker: Broker, handler: ProduceHandler, caplog: pytest.LogCaptureFixture
) -> None:
    broker.lead()
    records = batch(codec=ZSTD)
    records[61:70] = bytes(9)
    records[17:21] = crc32c(records[21:]).to_bytes(4, "big")
    result = produced(send(handler, memoryview(records)))
    assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert caplog.messages[0].startswith(f"{TOPIC}-0: records are refused with UNKNOWN_SERVER_ERROR: ")
    caplog.clear()
    records = batch()
    records[22] = 7
    records[17:21] = crc32c(records[21:]).to_bytes(4, "big")
    result = produced(send(handler, memoryview(records), version=6))
    assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "refused with UNKNOWN_SERVER_ERROR: there is no codec 7" in caplog.messages[0]
