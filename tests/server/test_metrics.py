"""A running broker's metrics, as Prometheus reads them."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

import pytest

from klog.config.broker import BrokerConfig
from klog.formats.errors import UsageError
from klog.server.broker import Broker
from klog.server.metrics import Metric, Sample, broker_metrics, render
from klog.server.metrics_server import MetricsServer

LINE = re.compile(r'[a-z_:][a-z0-9_:]*(\{([a-z]+="[^"]*",?)*\})? -?[0-9.e+]+')


@pytest.fixture
def broker(tmp_path):
    config = {
        "broker.id": "7",
        "log.dirs": str(tmp_path / "a"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    running = Broker(BrokerConfig(config))
    yield running
    running.stop()


def test_labels_are_escaped() -> None:
    metric = Metric("m", "gauge", "h", (Sample({"x": 'a"b\\c\nd'}, 1.5),))
    assert "".join(render([metric])) == '# HELP m h\n# TYPE m gauge\nm{x="a\\"b\\\\c\\nd"} 1.5\n'


def test_every_line_is_prometheus_text_and_names_are_those_of_kafkas_dashboards(broker: Broker) -> None:
    lines = "".join(render(broker_metrics(broker))).splitlines()
    values = [line for line in lines if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in values)
    names = {re.split(r"[{ ]", line)[0] for line in values}
    assert names >= {
        "kafka_server_replicamanager_partitioncount",
        "kafka_server_replicamanager_leadercount",
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "kafka_network_requestmetrics_requests_total",
        "process_cpu_seconds_total",
    }


def test_metrics_are_served_over_http_and_nothing_else_is(broker: Broker) -> None:
    server = MetricsServer(0, lambda: render(broker_metrics(broker)))
    try:
        url = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"kafka_server_kafkaserver_brokerstate 3\n" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen(f"{url}/")
        missing.value.close()
    finally:
        server.stop()


def test_a_port_that_is_taken_is_wrong_usage(broker: Broker) -> None:
    with pytest.raises(UsageError, match="metrics"):
        MetricsServer(broker.network.port("PLAINTEXT"), lambda: ())
