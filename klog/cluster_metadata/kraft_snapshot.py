"""Builds a snapshot of KRaft's metadata log (KIP-630): a header, the records of a cluster, a footer.

Rules: Kafka's `RecordsSnapshotWriter`. The voters of a dynamic quorum (KIP-853) are in the header's batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import construct as c

from klog.cluster_metadata.model import Voter
from klog.formats import control_records
from klog.formats.keyed import KeyValue
from klog.formats.names import FileKind
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch

KRAFT_VERSION_OF_VOTERS: Final = 1
"""`kraft.version` with voters in the log."""
# Kafka's readers take batches of up to 8 MiB; a record of a partition has some hundred bytes.
_RECORDS_MAX: Final = 1000


class SnapshotId(NamedTuple):
    """The offset after the last record that a snapshot stands for, and the epoch of that record."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of the snapshot's file."""
        return f"{self.end_offset:020}-{self.epoch:010}.{FileKind.METADATA_SNAPSHOT}"


def batches(
    values: Iterable[bytes], epoch: int, timestamp_ms: int, voters: Mapping[int, Voter]
) -> Iterator[bytes]:
    """The batches of a snapshot with records of these values. They count offsets from 0, as Kafka's do."""
    controls = [("SNAPSHOT_HEADER", _content(lastContainedLogTimestamp=timestamp_ms))]
    if voters:
        controls.append(("KRAFT_VERSION", _content(kRaftVersion=KRAFT_VERSION_OF_VOTERS)))
        controls.append(("KRAFT_VOTERS", _content(voters=[_voter(*each) for each in sorted(voters.items())])))
    yield _control_batch(controls, 0, epoch, timestamp_ms)
    offset = len(controls)
    remaining = iter(values)
    while part := list(islice(remaining, _RECORDS_MAX)):
        records = [RecordData(offset + index, timestamp_ms, None, value) for index, value in enumerate(part)]
        yield bytes(build_batch(records, BatchFields(leader_epoch=epoch)))
        offset += len(part)
    yield _control_batch([("SNAPSHOT_FOOTER", _content())], offset, epoch, timestamp_ms)


def _content(**fields: object) -> c.Container:
    return c.Container(version=0, **fields, taggedFields=[])


def _control_batch(
    records: Iterable[tuple[str, c.Container]], offset: int, epoch: int, timestamp_ms: int
) -> bytes:
    built = []
    for index, (kind, value) in enumerate(records):
        key = c.Container(version=0, type=kind, rest=b"")
        built.append(RecordData(offset + index, timestamp_ms, *control_records.build(KeyValue(key, value))))
    return bytes(build_batch(built, BatchFields(leader_epoch=epoch, is_control=True)))


def _voter(node_id: int, voter: Voter) -> c.Container:
    return c.Container(
        voterId=node_id,
        voterDirectoryId=voter.directory_id,
        endpoints=[
            c.Container(name=each.listener, host=each.host, port=each.port, taggedFields=[])
            for each in voter.endpoints
        ],
        kRaftVersionFeature=c.Container(
            minSupportedVersion=voter.kraft_versions.first,
            maxSupportedVersion=voter.kraft_versions.last,
            taggedFields=[],
        ),
        taggedFields=[],
    )
