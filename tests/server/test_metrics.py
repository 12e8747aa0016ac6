"""The metrics of a running broker in the text format of Prometheus."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from klog.admin import connect
from klog.admin.settings import settings_of
from klog.client.groups import CommittedOffset, commit_offsets, delete_offsets
from klog.client.membership import GroupMember, MemberSettings
from klog.client.transactions import Transaction
from klog.controller.events import ListReassignments
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import RecordData, build_batch
from klog.metadata.store import SessionState
from klog.protocol.apis import ApiKey
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.server.counters.request_times import Timing
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.metrics.broker import BrokerMetrics, SessionCounts, idle_share
from klog.server.metrics.exposition import Metric, Sample, render
from klog.server.metrics.recent import Recent
from klog.server.metrics.times import Times, quantile_ns
from klog.server.startup.broker import Broker
from klog.server.startup.broker_state import BrokerState
from tests.server.test_broker import broker as broker  # noqa: PLC0414 (a fixture)
from tests.server.test_broker import config, make_topic, started
from tests.waiting import eventually

LINE = re.compile(r'([a-z_:][a-z0-9_:]*)(\{[a-zA-Z_]+="[^"]*"(?:,[a-zA-Z_]+="[^"]*")*\})? (-?[0-9.e+-]+)')
PRODUCE, PRODUCE_VERSION = 0, 8
FETCH, FETCH_VERSION = 1, 11
TIMES = (
    "totaltimems",
    "requestqueuetimems",
    "localtimems",
    "remotetimems",
    "responsequeuetimems",
    "responsesendtimems",
)


def values(pieces: Sequence[str]) -> dict[str, float]:
    """The values by name and labels. Every line must be valid in the text format of Prometheus."""
    found = {}
    for line in "".join(pieces).splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, line
            found[f"{match[1]}{match[2] or ''}"] = float(match[3])
    return found


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(broker: Broker, clock: Clock) -> BrokerMetrics:
    made = BrokerMetrics(clock)
    made.state_changed(BrokerState.RUNNING)
    made.attach(broker)
    return made


def counted(metrics: BrokerMetrics, api: str, requests: int) -> dict[str, float]:
    """The values once so many requests are counted, which is after their answers were sent."""
    name = f'kafka_network_requestmetrics_totaltimems_count{{request="{api}"}}'
    eventually(lambda: values(list(metrics.text()))[name] == requests)
    return values(list(metrics.text()))


def exchange(broker: Broker, api_key: int, version: int, parts: Sequence[bytes | memoryview]) -> bytes:
    """Sends one request to the broker's port and waits for the answer."""
    frame = struct.pack(">hhih", api_key, version, 1, -1) + b"".join(parts)
    with socket.create_connection(("127.0.0.1", broker.network.port("PLAINTEXT")), 60) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(size, socket.MSG_WAITALL)


def make_known_topic(broker: Broker, name: str, partitions: int = 1) -> None:
    """Creates a topic and waits until the broker leads it and has it in its metadata."""
    make_topic(broker, name, partitions)
    known = PartitionLookup(broker.replicas, broker.cache).known
    eventually(lambda: all(known((name, number)) for number in range(partitions)))


def produce(broker: Broker, topic: str, records: bytes) -> None:
    request = ProduceRequest(None, 1, 1000, [(topic, [(0, memoryview(records))])])
    exchange(broker, PRODUCE, PRODUCE_VERSION, encode_produce_request(PRODUCE_VERSION, request))


def fetch(broker: Broker, topic: str, *, offset: int = 0, max_wait_ms: int = 0, replica_id: int = -1) -> None:
    wanted = FetchTopic(topic, None, [FetchPartition(0, -1, offset, -1, -1, 1 << 20)])
    request = FetchRequest(max_wait_ms, 1, 1 << 20, 0, [wanted], replica_id=replica_id)
    exchange(broker, FETCH, FETCH_VERSION, [encode_fetch_request(FETCH_VERSION, request)])


def test_labels_are_escaped() -> None:
    metric = Metric("m", "gauge", "h", (Sample({"x": 'a"b\\c\nd'}, 1.5),))
    assert "".join(render([metric])) == '# HELP m h\n# TYPE m gauge\nm{x="a\\"b\\\\c\\nd"} 1.5\n'


def test_the_text_of_many_partitions_comes_in_small_pieces() -> None:
    metric = Metric("m", "gauge", "h", (Sample({"partition": number}, 0) for number in range(1_000)))
    pieces = list(render([metric]))
    assert max(piece.count("\n") for piece in pieces) <= 100
    assert "".join(pieces).count("\nm{") == 1_000


def test_writes_and_reads_are_counted_by_topic_and_in_total(broker: Broker, metrics: BrokerMetrics) -> None:
    make_known_topic(broker, "a")
    make_known_topic(broker, "b")
    records = build_batch([RecordData(i, 1_700_000_000_000, b"k", b"v") for i in range(3)])
    produce(broker, "a", records)
    produce(broker, "b", records)
    fetch(broker, "a")
    found = counted(metrics, "Produce", 2)
    prefix = "kafka_server_brokertopicmetrics_"
    assert found[f'{prefix}messagesin_total{{topic="a"}}'] == 3
    assert found[f"{prefix}messagesin_total"] == 6
    assert found[f"{prefix}bytesin_total"] == 2 * len(records)
    assert found[f'{prefix}bytesout_total{{topic="a"}}'] == len(records)
    assert found[f'{prefix}totalfetchrequests_total{{topic="b"}}'] == 0
    assert found['kafka_network_requestmetrics_requests_total{request="Produce"}'] == 2
    for name in TIMES:
        assert found[f'kafka_network_requestmetrics_{name}_count{{request="Produce"}}'] == 2
    assert found['kafka_network_requestmetrics_requestqueuetimems_sum{request="Produce"}'] == 0
    assert found['kafka_network_requestmetrics_requestqueuetimems{request="Produce",quantile="0.99"}'] < 0.02
    assert found['kafka_network_requestmetrics_responsesendtimems_sum{request="Produce"}'] > 0
    assert found['kafka_log_log_numlogsegments{topic="a",partition="0"}'] == 1
    assert found['kafka_log_log_size{topic="a",partition="0"}'] == len(records)


def test_fetches_are_counted_in_total_and_by_consumer_or_follower(
    broker: Broker, metrics: BrokerMetrics
) -> None:
    make_known_topic(broker, "t")
    fetch(broker, "t")
    fetch(broker, "t")
    fetch(broker, "t", replica_id=5)
    found = counted(metrics, "Fetch", 3)
    prefix = "kafka_network_requestmetrics_"
    for name, count in (("Fetch", 3), ("FetchConsumer", 2), ("FetchFollower", 1)):
        label = f'{{request="{name}"}}'
        assert found[f"{prefix}requests_total{label}"] == count
        assert found[f"{prefix}totaltimems_count{label}"] == count
        assert found[f"{prefix}errors_total{label}"] == 0
    sums = [found[f'{prefix}localtimems_sum{{request="Fetch{who}"}}'] for who in ("", "Consumer", "Follower")]
    assert sums[0] == pytest.approx(sums[1] + sums[2])


def test_total_time_includes_the_wait_in_the_purgatory_and_local_time_does_not(
    broker: Broker, metrics: BrokerMetrics
) -> None:
    make_known_topic(broker, "t")
    fetch(broker, "t", max_wait_ms=1000)
    found = counted(metrics, "Fetch", 1)
    prefix = "kafka_network_requestmetrics_"
    assert found[f'{prefix}remotetimems_sum{{request="Fetch"}}'] >= 900
    for name in TIMES:
        assert found[f'{prefix}{name}_count{{request="Fetch"}}'] == 1
    parts_ms = sum(found[f'{prefix}{name}_sum{{request="Fetch"}}'] for name in TIMES[1:])
    assert found[f'{prefix}totaltimems_sum{{request="Fetch"}}'] == pytest.approx(parts_ms, rel=0.001)
    total_ms = found[f'{prefix}totaltimems_sum{{request="Fetch"}}']
    assert total_ms >= 900
    assert found[f'{prefix}totaltimems{{request="Fetch",quantile="0.50"}}'] >= 700
    # The time before and after the wait is some microseconds, or more on a busy machine.
    assert total_ms - found[f'{prefix}localtimems_sum{{request="Fetch"}}'] >= 500


def test_quantiles_cover_the_last_minute_and_counts_the_time_since_the_start(
    broker: Broker, metrics: BrokerMetrics, clock: Clock
) -> None:
    make_known_topic(broker, "t")
    fetch(broker, "t")
    totals = broker.counters.by_api[ApiKey.FETCH].totals
    eventually(lambda: sum(totals.counts) == 1)
    median = 'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.50"}'
    count = 'kafka_network_requestmetrics_totaltimems_count{request="Fetch"}'
    seen = []
    for _ in range(3):
        clock.now_s += 61
        found = values(list(metrics.text()))
        seen.append((median in found, found[count]))
    # The first scrape is compared with the start, the second with the first.
    assert seen == [(True, 1), (False, 1), (False, 1)]


def test_the_threads_of_an_idle_broker_are_idle(broker: Broker, metrics: BrokerMetrics, clock: Clock) -> None:
    waited_s = broker.network.waited_s
    eventually(
        lambda: all(now > then + 1 for now, then in zip(broker.network.waited_s, waited_s, strict=True))
    )
    clock.now_s += 1
    found = values(list(metrics.text()))
    assert found["kafka_network_socketserver_networkprocessoravgidle_percent"] > 0.5
    assert found["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"] > 0.5
    for name in broker.network.processors:
        assert found[f'kafka_network_processor_idle_percent{{networkProcessor="{name}"}}'] > 0.5
        assert found[f'kafka_network_requestchannel_responsequeuesize{{processor="{name}"}}'] == 0


@pytest.mark.parametrize(
    ("waited_s", "possible_s", "share"), [(1, 4, 0.25), (5, 4, 1), (-1, 4, 0), (0, 0, 1)]
)
def test_an_idle_share_is_between_0_and_1(waited_s: float, possible_s: float, share: float) -> None:
    assert idle_share(waited_s, possible_s) == share


def test_the_controller_counts_topics_partitions_and_brokers(broker: Broker, metrics: BrokerMetrics) -> None:
    make_known_topic(broker, "t", 3)
    prefix = "kafka_controller_kafkacontroller_"
    eventually(lambda: values(list(metrics.text()))[f"{prefix}globalpartitioncount"] == 3)
    found = values(list(metrics.text()))
    expected = {"activecontrollercount": 1, "activebrokercount": 1, "globaltopiccount": 1}
    nothing = ("offlinepartitionscount", "preferredreplicaimbalancecount", "topicstodeletecount")
    for name, value in (expected | dict.fromkeys(nothing, 0)).items():
        assert found[prefix + name] == value


def test_what_the_controller_did_is_counted_under_kafkas_names(
    broker: Broker, metrics: BrokerMetrics
) -> None:
    before = values(list(metrics.text()))
    answers: list[object] = []
    broker.controller.put(ListReassignments(answers.append))
    broker.controller_times.elected_unclean()
    stats, events = "kafka_controller_controllerstats_", "kafka_controller_controllereventmanager_"
    listed, waited = f"{stats}listpartitionreassignmentrateandtimems_count", f"{events}eventqueuetimems_count"
    eventually(lambda: values(list(metrics.text()))[listed] == before[listed] + 1)
    found = values(list(metrics.text()))
    assert answers == [{}]
    assert found[waited] > before[waited]
    assert found[f"{stats}uncleanleaderelections_total"] == before[f"{stats}uncleanleaderelections_total"] + 1
    # The only broker registered and was elected.
    assert found[f"{stats}controllerchangerateandtimems_count"] >= 1
    state, queued = "kafka_controller_kafkacontroller_controllerstate", f"{events}eventqueuesize"
    eventually(lambda: [values(list(metrics.text()))[name] for name in (state, queued)] == [0, 0])
    channels = "kafka_controller_controllerchannelmanager_"
    waiting = (f"{channels}totalqueuesize", f'{channels}queuesize{{broker_id="{broker.identity.broker_id}"}}')
    eventually(lambda: [values(list(metrics.text()))[name] for name in waiting] == [0, 0])
    labels = f'{{broker_id="{broker.identity.broker_id}"}}'
    assert values(list(metrics.text()))[f"{channels}requestrateandqueuetimems_count{labels}"] > 0


def test_a_failed_log_directory_is_named(broker: Broker, metrics: BrokerMetrics) -> None:
    (path,) = broker.logs.online
    name = f'kafka_log_logmanager_logdirectoryoffline{{logDirectory="{path}"}}'
    assert values(list(metrics.text()))[name] == 0
    broker.logs.directory_failed(path, OSError(5, "Input/output error"))
    assert values(list(metrics.text()))[name] == 1


def test_a_broker_that_starts_or_stops_exports_its_state_only(broker: Broker) -> None:
    metrics = BrokerMetrics()
    state = "kafka_server_kafkaserver_brokerstate"
    assert values(list(metrics.text()))[state] == BrokerState.NOT_RUNNING
    metrics.state_changed(BrokerState.RECOVERY)
    assert values(list(metrics.text()))[state] == 2
    metrics.attach(broker)
    metrics.state_changed(BrokerState.SHUTTING_DOWN)
    found = values(list(metrics.text()))
    assert found[state] == 7
    assert "kafka_server_replicamanager_partitioncount" not in found


def test_a_broker_reports_its_states_in_order(tmp_path) -> None:
    states: list[BrokerState] = []
    running = Broker(config(tmp_path / "other"), on_state=states.append)
    running.stop()
    running.stop()
    assert states == [
        BrokerState.STARTING,
        BrokerState.RECOVERY,
        BrokerState.RUNNING,
        BrokerState.SHUTTING_DOWN,
        BrokerState.NOT_RUNNING,
    ]


def test_a_session_is_in_one_state_and_each_change_counts() -> None:
    counts = SessionCounts()
    for state in (SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.SUSPENDED):
        counts.changed(state)
    found = values(list(render(counts.metrics())))
    prefix = "kafka_server_sessionexpirelistener_"
    assert found[f'{prefix}zookeepersessionstate{{state="CONNECTING"}}'] == 1
    assert found[f'{prefix}zookeepersessionstate{{state="CONNECTED"}}'] == 0
    assert found[f"{prefix}zookeeperdisconnects_total"] == 2


def test_a_quantile_is_exact_to_one_bucket() -> None:
    timing = Timing()
    for microseconds in range(1, 1001):
        timing.record(microseconds * 1000)
    counts = Times.of(timing).counts
    for share in (0.5, 0.9, 0.99):
        assert quantile_ns(counts, share) == pytest.approx(share * 1_000_000, rel=0.05)
    assert quantile_ns([0] * len(counts), 0.5) == 0.0


def test_a_time_above_all_bounds_is_counted_too() -> None:
    timing = Timing()
    timing.record(10**13)
    assert (timing.counts[-1], timing.sum_ns) == (1, 10**13)


def test_rates_compare_with_a_minute_ago_and_few_earlier_values_are_kept(clock: Clock) -> None:
    recent = Recent(clock, 0)
    for second in range(1, 600):
        clock.now_s += 1
        seconds, before = recent.compare(second)
        assert second - before == seconds
        assert seconds == second if second < 60 else 60 <= seconds <= 65
    assert len(recent._past) <= 14


def test_groups_transactions_and_their_loads_are_counted(tmp_path: Path, clock: Clock) -> None:
    names = (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    )
    with started(tmp_path / "a", **{name.replace(".", "_"): "1" for name in names}) as broker:
        check_coordinators(broker, clock)


def check_coordinators(broker: Broker, clock: Clock) -> None:
    metrics = BrokerMetrics(clock)
    metrics.state_changed(BrokerState.RUNNING)
    metrics.attach(broker)
    make_known_topic(broker, "t", 2)
    bootstrap = f"127.0.0.1:{broker.network.port('PLAINTEXT')}"
    manager = "kafka_coordinator_group_groupmetadatamanager_"
    rates = "kafka_server_group_coordinator_metrics_"
    before = values(list(metrics.text()))
    assert before[f"{manager}numgroups"] == before[f"{rates}offset_commit_count"] == 0
    with connect.cluster(settings_of({}, bootstrap=bootstrap, timeout_ms=60_000)) as cluster:
        partitions = [TopicPartition("t", number) for number in range(2)]
        commit_offsets(cluster, "g", {each: CommittedOffset(0) for each in partitions})
        member = GroupMember(cluster, lambda: ["t"], MemberSettings("members", session_timeout_ms=60_000))
        member.join()
        produce(broker, "t", build_batch([RecordData(i, 1_700_000_000_000, b"k", b"v") for i in range(3)]))
        assert member.commit({partitions[0]: CommittedOffset(1)})
        transaction = Transaction(cluster, "loader", 60_000)
        transaction.open()
        transaction.add(partitions)
        clock.now_s += 10
        found = values(list(metrics.text()))
        assert found[f"{manager}numgroups"] == 2
        assert found[f"{manager}numoffsets"] == 3
        assert found["klog_coordinator_group_lag"] == found["klog_coordinator_group_lag_max"] == 2
        assert found[f"{manager}numgroupsempty"] == found[f"{manager}numgroupsstable"] == 1
        assert found[f"{rates}offset_commit_count"] == 3
        assert found[f"{rates}offset_commit_rate"] == 0.3
        assert found[f"{rates}group_completed_rebalance_count"] == 1
        assert found[f"{rates}partition_load_time_max"] >= found[f"{rates}partition_load_time_avg"] > 0
        assert found['klog_coordinator_transactions{state="Ongoing"}'] == 1
        assert found["kafka_server_transaction_coordinator_metrics_partition_load_time_max"] > 0
        written = 'kafka_server_brokertopicmetrics_bytesin_total{topic="__transaction_state"}'
        assert found[written] > 0
        transaction.end(committed=True)
        delete_offsets(cluster, "g", partitions[:1])
        member.leave()
        eventually(
            lambda: values(list(metrics.text()))['klog_coordinator_transactions{state="CompleteCommit"}'] == 1
        )
        found = values(list(metrics.text()))
        assert found[f"{rates}offset_deletion_count"] == 1
        assert found[f"{manager}numoffsets"] == 2
        assert found[f"{manager}numgroupsempty"] == 2
