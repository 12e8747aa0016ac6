"""Client commands go on after broken connections and lost answers; no record is lost or doubled."""

from __future__ import annotations

import random

import pytest

from klog.admin import connect
from klog.admin.consuming import ReadPlan, read
from klog.admin.settings import settings_of
from klog.client.fetcher import Jumped
from klog.client.producer import Producer, ProducerSettings, Record
from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.errors import ConnectionLostError
from klog.storage.reading.select import Bounds


class Faults:
    """Loses so many requests (the broker never sees them) or answers (the broker has acted) of one API."""

    def __init__(self, monkeypatch) -> None:
        self.requests = 0
        self.answers = 0
        self.api_key = ApiKey.PRODUCE
        self._exchange = Channel.exchange

        def exchange(channel, api_key, *args):
            return self._faulty(channel, api_key, *args)

        monkeypatch.setattr(Channel, "exchange", exchange)

    def _faulty(self, channel, api_key, *args):
        if api_key == self.api_key and self.requests:
            self.requests -= 1
            channel.close()
            raise ConnectionLostError("the connection broke")
        answer = self._exchange(channel, api_key, *args)
        if api_key == self.api_key and self.answers:
            self.answers -= 1
            channel.close()
            raise ConnectionLostError("the connection broke after the broker had acted")
        return answer


@pytest.fixture
def faults(monkeypatch):
    return Faults(monkeypatch)


def problems(problem: KlogError) -> None:
    raise problem


def values(cluster, topic, on_jump=pytest.fail, **plan):
    found = []
    for run in read(cluster, [(topic, 0)], ReadPlan(Bounds(), **plan), problems, on_jump):
        view = memoryview(run.payload)
        spans = zip(run.records.value_start, run.records.value_size, strict=True)
        found += [bytes(view[start : start + size]) for start, size in spans]
    return found


def test_lost_requests_and_lost_answers_neither_lose_nor_double_records(cluster, topic, faults):
    sent = [b"%d" % number for number in range(100)]
    with connect.cluster(settings_of({}, bootstrap=cluster)) as client:
        producer = Producer(client, topic, ProducerSettings(), random.choice)
        for number, value in enumerate(sent):
            producer.send(Record(b"k", value))
            if number % 10 == 9:
                faults.requests, faults.answers = number % 3, (number // 10) % 3
                producer.flush()
        assert (producer.delivered_count, producer.unsettled_count, producer.failures) == (100, 0, [])
        assert values(client, topic) == sent


def test_reading_continues_at_its_position_after_lost_connections(cluster, topic, faults):
    faults.api_key = ApiKey.FETCH
    with connect.cluster(settings_of({}, bootstrap=cluster)) as client:
        producer = Producer(client, topic, ProducerSettings(batch_bytes=200_000), random.choice)
        sent = [b"%01000d" % number for number in range(3000)]
        for value in sent:
            producer.send(Record(None, value))
        producer.flush()
        faults.requests, faults.answers = 2, 2
        assert values(client, topic) == sent


def test_a_cluster_that_stays_away_is_an_error_after_the_time_limit(cluster, topic, faults):
    faults.requests = 1 << 30
    with connect.cluster(settings_of({}, bootstrap=cluster)) as client:
        producer = Producer(client, topic, ProducerSettings(), random.choice)
        producer.send(Record(None, b"x"))
        client.timeout_ms = 300  # of the failures in a row; an answer of a busy broker may take longer
        with pytest.raises(ConnectionLostError):
            producer.flush()
        assert producer.unsettled_count == 1


def test_a_reader_whose_position_is_deleted_reports_the_jump_and_continues(cluster, topic, klog):
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    klog("produce", topic, "a", "b", "c")
    jumps: list[Jumped] = []
    with connect.cluster(settings_of({}, bootstrap=cluster)) as client:
        client.refresh([topic])
        plan = ReadPlan(Bounds(last_offset=4), follow=True)
        runs = read(client, [(topic, 0)], plan, problems, jumps.append)
        assert len(next(runs).records) == 3
        klog("produce", topic, "d", "e")
        admin = KafkaAdminClient(bootstrap_servers=cluster)
        admin.delete_records({TopicPartition(topic, 0): 4})
        admin.close()
        assert list(next(runs).records.offset) == [4]
        assert list(runs) == []
    assert jumps == [Jumped((topic, 0), 3, 4)]
