"""The dashboard and docs/metrics.md contain exactly the metrics that a broker exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.kernel.batch_builder import RecordData, build_batch
from klog.server.metrics.broker import BrokerMetrics, SessionCounts
from klog.server.metrics.exposition import render
from klog.server.startup.broker import Broker
from klog.server.startup.broker_state import BrokerState
from tests.server.test_broker import broker as broker  # noqa: PLC0414 (a fixture)
from tests.server.test_metrics import exchange, fetch, make_known_topic, produce

DOCS = Path(__file__).parents[2] / "docs"
METRIC = re.compile(r"\b(?:kafka|klog|process)_[a-z0-9_]+")
SAMPLE = re.compile(r"^([a-z0-9_]+)(?:\{(.*)\})? ", re.MULTILINE)
LABEL = re.compile(r'([a-zA-Z_]+)="([^"]*)"')
SELECTOR = re.compile(r"([a-z0-9_]+)\{([^}]*)\}")
FAMILY = re.compile(r"^# TYPE ([a-z0-9_]+) ", re.MULTILINE)
DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_BODY = 60, [b"\x00", b"\x00", b"\x00"]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[str]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


@pytest.fixture
def text(broker: Broker) -> str:
    """The metrics of a broker that has handled some requests of every kind."""
    metrics = BrokerMetrics()
    metrics.state_changed(BrokerState.RUNNING)
    metrics.attach(broker)
    make_known_topic(broker, "t")
    produce(broker, "t", build_batch([RecordData(0, 1_700_000_000_000, b"k", b"v")]))
    fetch(broker, "t")
    exchange(broker, DESCRIBE_CLUSTER, 0, DESCRIBE_CLUSTER_BODY)
    return "".join(metrics.text())


def test_every_query_of_the_dashboard_finds_its_metric_and_its_labels(text: str) -> None:
    exported: dict[str, list[dict[str, str]]] = {}
    with_zookeeper = text + "".join(render(SessionCounts().metrics()))
    for name, labels in SAMPLE.findall(with_zookeeper):
        exported.setdefault(name, []).append(dict(LABEL.findall(labels)))
    for query in queries():
        names = METRIC.findall(query)
        assert names, query
        for name in names:
            assert name in exported, query
        for name, selector in SELECTOR.findall(query):
            # Prometheus adds the label `instance`. A label value that is matched exactly must be exported.
            for label, value in re.findall(r'([a-zA-Z]+)="([^"]+)"', selector):
                assert any(sample.get(label) == value for sample in exported[name]), query


def test_labels_in_legends_and_sums_are_exported(text: str) -> None:
    exported = {label for _, labels in SAMPLE.findall(text) for label, _ in LABEL.findall(labels)}
    used = {label for query in queries() for label in re.findall(r"by \(([a-zA-Z]+)\)", query)}
    legends = [target["legendFormat"] for panel in panels() for target in panel["targets"]]
    used |= {label for legend in legends for label in re.findall(r"\{\{([a-zA-Z]+)\}\}", legend)}
    assert used - {"instance"} <= exported


def test_labels_are_spelt_as_the_keys_of_kafkas_mbeans(text: str) -> None:
    """The usual rules of the JMX exporter convert names, and only names, to lower case."""
    exported = {label for _, labels in SAMPLE.findall(text) for label, _ in LABEL.findall(labels)}
    # The JMX exporter writes the dash of `broker-id` as an underscore, because no label may have one.
    kafkas = {
        "broker_id",
        "clientId",
        "delayedOperation",
        "listener",
        "logDirectory",
        "networkProcessor",
        "partition",
        "processor",
        "request",
        "topic",
    }
    assert exported - kafkas == {"quantile", "version", "python", "state"}


def test_the_dashboard_has_the_fields_that_grafana_requires() -> None:
    found = dashboard()
    assert {"uid", "title", "schemaVersion", "templating", "time", "panels"} <= found.keys()
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for panel in found["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert max(x for x, _ in cells) < 24
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_document_lists_exactly_the_exported_metrics(text: str) -> None:
    exported = set(FAMILY.findall(text)) | set(FAMILY.findall("".join(render(SessionCounts().metrics()))))
    table = [line for line in (DOCS / "metrics.md").read_text().splitlines() if line.startswith("| `")]
    documented = {name for line in table for name in METRIC.findall(line.split("|")[1])}
    assert documented == exported
