"""The comparison of replicas finds what differs below the high watermark, and nothing above."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.checker.histories import Acknowledged, RecordId
from tests.cluster.agreement import check_acknowledged, differences
from tests.cluster.members import Kind, Member
from tests.corpora import REPOSITORY
from tests.peers.kafka import KafkaPeer

TOPIC, PARTITION = "t-gzip", ("t-gzip", 0)
LOGS = REPOSITORY / "fixtures" / "k011-codecs" / "logs"
SEGMENT = f"{TOPIC}-0/{0:020d}.log"


@pytest.fixture
def replicas(tmp_path: Path) -> list[Member]:
    """Two replicas with the same log, whose high watermarks are unknown."""
    members = [Member(number, tmp_path / f"{number}", Kind.KLOG, KafkaPeer(), {}) for number in range(2)]
    for each in members:
        shutil.copytree(LOGS / f"{TOPIC}-0", each.log_directories[0] / f"{TOPIC}-0")
    return members


def last_segment(member: Member) -> Path:
    return max((member.log_directories[0] / f"{TOPIC}-0").glob("*.log"))


def test_equal_logs_have_no_differences(replicas: list[Member]) -> None:
    assert list(differences(replicas, {PARTITION: 500})) == []


def test_another_batch_is_found(replicas: list[Member]) -> None:
    segment = replicas[1].log_directories[0] / SEGMENT
    data = bytearray(segment.read_bytes())
    data[17] ^= 1  # the checksum of the first batch
    segment.write_bytes(data)
    (found,) = differences(replicas, {PARTITION: 500})
    assert "base_offset=0" in found


def test_a_missing_end_is_found_if_it_was_acknowledged(replicas: list[Member]) -> None:
    base_offset = int(last_segment(replicas[1]).stem)
    last_segment(replicas[1]).write_bytes(b"")
    assert list(differences(replicas, {PARTITION: base_offset})) == []
    (found,) = differences(replicas, {PARTITION: base_offset + 1})
    assert "has None" in found


def test_an_acknowledged_record_without_an_offset_must_be_in_its_partition() -> None:
    there, missing = RecordId("p", 1), RecordId("p", 2)
    logs = {PARTITION: {7: there}}
    check_acknowledged([Acknowledged(there, PARTITION, 7), Acknowledged(there, PARTITION, None)], logs)
    with pytest.raises(AssertionError):
        check_acknowledged([Acknowledged(missing, PARTITION, None)], logs)
    with pytest.raises(AssertionError):
        check_acknowledged([Acknowledged(there, PARTITION, 8)], logs)
