"""Versions of requests that Kafka 3.9.1 and klog announce: docs/broker.md says where and why they differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from klog.protocol.api_versions import VersionRange, decode_api_versions_response
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.channel import Channel
from tests.peers.broker import ZooKeeperBroker
from tests.peers.kafka import KafkaPeer

_PAGE = Path(__file__).parents[2] / "docs/broker.md"
_ROW = re.compile(r"\| (\d+) \| (\w+) \| ([-\d]+) \| ([-\d]+) \| (.*)\|")


class Row(NamedTuple):
    """One API; a range is None if the broker does not announce it."""

    name: str
    kafka: VersionRange | None
    klog: VersionRange | None
    reason: str


def _range(text: str) -> VersionRange | None:
    if text == "-":
        return None
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


def _rows() -> Iterator[tuple[int, Row]]:
    for line in _PAGE.read_text().splitlines():
        if found := _ROW.fullmatch(line):
            key, name, kafka, klog, reason = found.groups()
            yield int(key), Row(name, _range(kafka), _range(klog), reason.strip())


TABLE = dict(_rows())


def test_the_page_says_what_klog_announces() -> None:
    ours = {key: VersionRange(api.min_version, api.max_version) for key, api in SERVED.items()}
    assert {key: row.klog for key, row in TABLE.items() if row.klog is not None} == ours
    assert {key: row.name for key, row in TABLE.items() if key in SERVED} == {
        key: ApiKey(key).title for key in SERVED
    }


def test_every_difference_has_a_reason_and_nothing_else_has() -> None:
    assert {row.name for row in TABLE.values() if row.reason} == {
        row.name for row in TABLE.values() if row.kafka != row.klog
    }


@pytest.mark.kafka
def test_the_page_says_what_kafka_announces(kafka3: KafkaPeer, tmp_path: Path) -> None:
    with (
        ZooKeeperBroker(tmp_path, {"unstable.api.versions.enable": "false"}, kafka3) as broker,
        Channel("127.0.0.1", broker.port) as channel,
    ):
        announced = decode_api_versions_response(0, channel.exchange(ApiKey.API_VERSIONS, 0, [b""]))
    assert {key: row.kafka for key, row in TABLE.items() if row.kafka is not None} == announced.apis
