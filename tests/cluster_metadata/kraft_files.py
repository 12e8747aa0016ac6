"""Writes metadata logs and snapshots for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import construct as c

from klog.cluster_metadata.kraft_log import METADATA_DIRECTORY
from klog.formats import cluster_metadata, control_records, meta_properties
from klog.formats.keyed import KeyValue
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch

CLUSTER_ID = "zsiXsM12QjO3SJygbMVE2g"
NOW_MS = 1_700_000_000_000


def metadata(
    kind: int, version: int = 0, tagged: Sequence[tuple[int, str, object]] = (), **fields: object
) -> bytes:
    """The value of a metadata record."""
    tags = [c.Container(tag=tag, name=name, value=value) for tag, name, value in tagged]
    content = c.Container(**fields, taggedFields=tags)
    return cluster_metadata.build(c.Container(frameVersion=1, type=kind, version=version, fields=content))


def batch(values: Sequence[bytes], offset: int, epoch: int = 1) -> bytes:
    records = [RecordData(offset + index, NOW_MS, None, value) for index, value in enumerate(values)]
    return bytes(build_batch(records, BatchFields(leader_epoch=epoch)))


def control(kind: str, value: c.Container, offset: int, epoch: int = 1) -> bytes:
    key = c.Container(version=0, type=kind, rest=b"")
    encoded_key, encoded_value = control_records.build(KeyValue(key, value))
    record = RecordData(offset, NOW_MS, encoded_key, encoded_value)
    return bytes(build_batch([record], BatchFields(leader_epoch=epoch, is_control=True)))


def snapshot(values: Sequence[bytes], epoch: int = 1, more: Sequence[bytes] = ()) -> bytes:
    """A snapshot of these records."""
    header = control(
        "SNAPSHOT_HEADER", c.Container(version=0, lastContainedLogTimestamp=NOW_MS, taggedFields=[]), 0, epoch
    )
    body = batch(values, 1, epoch) if values else b""
    footer = c.Container(version=0, taggedFields=[])
    return (
        header
        + body
        + b"".join(more)
        + control("SNAPSHOT_FOOTER", footer, 1 + len(values) + len(more), epoch)
    )


def directory(path: Path, node_id: int = 1, cluster_id: str = CLUSTER_ID) -> Path:
    """An empty KRaft directory; returns that of its metadata log."""
    log = path / METADATA_DIRECTORY
    log.mkdir(parents=True)
    identity = meta_properties.create(1, node_id=node_id, cluster_id=cluster_id)
    (path / "meta.properties").write_bytes(meta_properties.build(identity))
    return log
