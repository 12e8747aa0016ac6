"""A repository that klog 0.1.0 wrote stays readable: `frozen` has two backups, the second an addition to the
first.

It has a log of two leader epochs with a producer snapshot, one with a damaged batch, one that was deleted
before the second backup, and the cluster's metadata.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from klog.backup import documents
from klog.backup.documents import INFO, MANIFEST, encode_states, encode_table
from klog.backup.restoring.request import metadata_of
from klog.backup.verify import VerifyOptions, verify
from klog.cluster_metadata.model import Cluster
from klog.formats.checkpoints import EpochEntry
from klog.formats.names import TopicPartition
from tests.backup.repositories import Backups

FROZEN = Path(__file__).parent / "frozen"
FIRST, SECOND = "20270115T080000000Z-0000", "20270115T080100000Z-0001"
ORDERS, PAID, OLD = TopicPartition("orders", 0), TopicPartition("paid", 0), TopicPartition("old", 1)


@pytest.fixture
def frozen() -> Backups:
    return Backups(FROZEN)


def test_its_logs_come_back(frozen: Backups) -> None:
    segments = {name: hashlib.sha256(data).hexdigest() for name, data in frozen.segments("orders").items()}

    assert segments == {
        "00000000000000000000.log": "c25c101e56f6ac6ae8ece9ec52937087fd5e7656ecfecbec4c848ab77b722ce4",
        "00000000000000000020.log": "6372d8a2bbef305e940f01da474d927710129b69aafed7a2fa69f0a5e6d74aa7",
        "00000000000000000040.log": "8a078f0eb87ed1c2364b40e60ffe229f77eb4995c0a980b70a3bc41a2e08d01f",
    }


def test_its_states_say_what_they_said(frozen: Backups) -> None:
    assert set(frozen.states(FIRST)) == {ORDERS, PAID, OLD}
    states = frozen.states(SECOND)
    assert set(states) == {ORDERS, PAID}
    orders = states[ORDERS]
    assert (orders.log_start_offset, orders.end_offset, orders.topic_id) == (0, 45, "AAAAAAAAQACAAAAAAAAAAQ")
    assert orders.epochs == (EpochEntry(0, 0), EpochEntry(1, 20))
    assert orders.snapshot is not None
    assert orders.snapshot.offset == 40
    [damage] = states[PAID].damage
    assert (damage.first_offset, damage.end_offset) == (5, 10)
    assert metadata_of(frozen.repository, frozen.repository.manifest(SECOND)) == Cluster()


def test_verify_finds_nothing(frozen: Backups) -> None:
    assert not verify(frozen.repository, [FIRST, SECOND], VerifyOptions()).findings


def _encode_states(states: Mapping[TopicPartition, documents.StoredState]) -> bytes:
    return gzip.decompress(encode_states(list(states.values())))


@pytest.mark.parametrize(
    ("pattern", "decode", "encode"),
    [
        ("klog-backup.json", INFO.decode, INFO.encode),
        ("manifests/*/*.json", MANIFEST.decode, MANIFEST.encode),
        ("tables/*.gz", documents.decode_table, lambda refs: gzip.decompress(encode_table(refs))),
        ("states/*.gz", documents.decode_states, _encode_states),
    ],
)
def test_its_documents_are_written_as_they_were(
    pattern: str, decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]
) -> None:
    found = sorted(FROZEN.glob(pattern))
    assert found
    for path in found:
        data = path.read_bytes()
        plain = gzip.decompress(data) if path.suffix == ".gz" else data
        assert _without_checksum(encode(decode(plain))) == plain, path.name


def _without_checksum(document: bytes) -> bytes:
    """Documents of klog 0.1.0 have none."""
    return document.rpartition(b',"checksum":')[0] + b"}\n"
