"""Lists every format of a log directory, and of ZooKeeper's files, by name: what it is, the source of its
rules, the module that defines it.

A module is imported only when its definition, `parse` or `build` is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from klog.formats.errors import UsageError
from klog.formats.values import Value

Kind = Literal["file", "part", "record", "name"]


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    `kind` says what `parse` takes: a whole file, a part of one, a record (key and value; only the value for
    the metadata log) or a name. `build` returns what `parse` took.
    """

    name: str
    title: str
    kind: Kind
    pattern: str
    source: str
    module: str
    definition_name: str
    notes: str = ""
    parse_name: str = "parse"
    build_name: str = "build"
    definition_module: str = ""

    def _member(self, name: str, module: str = "") -> Value:
        return getattr(importlib.import_module(f"klog.formats.{module or self.module}"), name)

    @property
    def definition(self) -> Value:
        """The definition: a Construct, or for names and other text a declaration of this package."""
        return self._member(self.definition_name, self.definition_module)

    @property
    def parse(self) -> Callable[..., Any]:
        """Turns bytes (or a name) into a value; raises `FormatError`."""
        found: Callable[..., Any] = self._member(self.parse_name)
        return found

    @property
    def build(self) -> Callable[[Any], Any]:
        """Turns a value into bytes (or a name); raises `FormatError`."""
        found: Callable[[Any], Any] = self._member(self.build_name)
        return found


def _checkpoint(name: str, pattern: str, what: str) -> Format:
    return Format(
        name,
        f"{what}, per partition of a log directory",
        "file",
        pattern,
        "OffsetCheckpointFile",
        "checkpoints",
        "OffsetCheckpointFile",
        parse_name="parse_offsets",
        build_name="build_offsets",
        definition_module="checkpoint_files",
    )


FORMATS: Final = (
    Format(
        "segment",
        "log segment: batches and messages of any magic, one after the other",
        "file",
        "<offset>.log",
        "Kafka documentation, Message Format",
        "segment",
        "Segment",
        "No header and no footer; `entries` reads one entry at a time.",
    ),
    Format(
        "record-batch",
        "batch of magic 2 with its records and headers (0.11 on)",
        "part",
        "in .log and .checkpoint",
        "KIP-98, KIP-534",
        "record_batch",
        "RecordBatch",
        "A compressed batch keeps its records as one block: `records` opens it.",
    ),
    Format(
        "message-set",
        "message of magic 0 or 1, also as wrapper of a compressed set (before 0.11)",
        "part",
        "in .log",
        "KIP-31, KIP-32",
        "message_set",
        "Message",
        "Inside a wrapper, offsets are absolute in magic 0 and relative in magic 1: `absolute_offsets`.",
    ),
    Format(
        "control-record",
        "transaction marker, or record of the KRaft quorum",
        "record",
        "in control batches",
        "KIP-98, KIP-595, KIP-630, KIP-853",
        "control_records",
        "ControlRecord",
    ),
    Format(
        "offset-index",
        "offset index of a segment",
        "file",
        "<offset>.index",
        "OffsetIndex",
        "offset_index",
        "OffsetIndex",
        "No checksum. Ends at the first all-zero entry after entry 0 when pre-allocated.",
    ),
    Format(
        "time-index",
        "time index of a segment",
        "file",
        "<offset>.timeindex",
        "KIP-33",
        "time_index",
        "TimeIndex",
        "No checksum. Ends at the first all-zero entry after entry 0 when pre-allocated.",
    ),
    Format(
        "transaction-index",
        "aborted transactions of a segment",
        "file",
        "<offset>.txnindex",
        "KIP-98",
        "transaction_index",
        "TransactionIndex",
        "The file is there only when the segment has an aborted transaction.",
    ),
    Format(
        "producer-snapshot",
        "state of the idempotent producers before an offset",
        "file",
        "<offset>.snapshot",
        "KIP-98, KIP-360",
        "producer_snapshot",
        "ProducerSnapshot",
    ),
    Format(
        "consumer-offsets",
        "record of __consumer_offsets: commits and groups of both coordinators",
        "record",
        "in __consumer_offsets-<n>",
        "KIP-848, KIP-932, KIP-1071",
        "consumer_offsets",
        "GroupRecord",
        "The key's version is the record's type. A null value says that the thing is gone.",
    ),
    Format(
        "transaction-state",
        "record of __transaction_state",
        "record",
        "in __transaction_state-<n>",
        "KIP-98, KIP-890",
        "transaction_state",
        "TransactionRecord",
        "A null value forgets the transactional id.",
    ),
    Format(
        "cluster-metadata",
        "record of KRaft's metadata log and its snapshots",
        "record",
        "in __cluster_metadata-0 and .checkpoint",
        "KIP-500, KIP-631",
        "cluster_metadata",
        "MetadataRecord",
        "The record's value; it has no key. Unknown types keep their fields as bytes.",
    ),
    Format(
        "share-group-state",
        "record of __share_group_state",
        "record",
        "in __share_group_state-<n>",
        "KIP-932",
        "share_group_state",
        "ShareGroupRecord",
    ),
    Format(
        "remote-log-metadata",
        "record of __remote_log_metadata: segments in remote storage",
        "record",
        "in __remote_log_metadata-<n>",
        "KIP-405",
        "remote_log_metadata",
        "RemoteLogRecord",
        "The record's value; its key means nothing.",
    ),
    _checkpoint(
        "recovery-point-checkpoint", "recovery-point-offset-checkpoint", "first offset not known flushed"
    ),
    _checkpoint("log-start-checkpoint", "log-start-offset-checkpoint", "log start offset"),
    _checkpoint("replication-checkpoint", "replication-offset-checkpoint", "high watermark"),
    _checkpoint("cleaner-checkpoint", "cleaner-offset-checkpoint", "first dirty offset"),
    Format(
        "leader-epoch-checkpoint",
        "leader epochs of a partition and where they start",
        "file",
        "leader-epoch-checkpoint",
        "KIP-101",
        "checkpoints",
        "LeaderEpochFile",
        parse_name="parse_epochs",
        build_name="build_epochs",
        definition_module="checkpoint_files",
    ),
    Format(
        "meta-properties",
        "broker and cluster that a log directory belongs to",
        "file",
        "meta.properties",
        "KIP-631, KIP-858",
        "meta_properties",
        "MetaPropertiesFile",
    ),
    Format(
        "partition-metadata",
        "topic id of a partition's directory",
        "file",
        "partition.metadata",
        "KIP-516",
        "partition_metadata",
        "PartitionMetadataFile",
    ),
    Format(
        "clean-shutdown",
        "marker of a clean stop",
        "file",
        ".kafka_cleanshutdown",
        "KIP-966",
        "clean_shutdown",
        "CleanShutdownFile",
        "Its existence is what counts.",
    ),
    Format(
        "quorum-state",
        "what a KRaft node remembers of elections",
        "file",
        "quorum-state",
        "KIP-595, KIP-853",
        "quorum_state",
        "QuorumStateFile",
    ),
    Format(
        "zookeeper-snapshot",
        "snapshot of ZooKeeper's tree",
        "file",
        "version-2/snapshot.<zxid>",
        "FileSnap, zookeeper.jute",
        "zookeeper_files",
        "Snapshot",
        "Fuzzy: transactions after its zxid may be in it already. Checksums are not compared here.",
        parse_name="parse_snapshot",
        build_name="build_snapshot",
    ),
    Format(
        "zookeeper-log",
        "transaction log of ZooKeeper",
        "file",
        "version-2/log.<zxid>",
        "FileTxnLog, zookeeper.jute",
        "zookeeper_files",
        "Log",
        "Parts of a multi are records without a head. Checksums are not compared here.",
        parse_name="parse_log",
        build_name="build_log",
    ),
    Format(
        "file-names",
        "names of the files in a log directory",
        "name",
        "",
        "LogFileUtils, KIP-405, KIP-630",
        "names",
        "FILE_RULES",
        parse_name="parse_file",
        build_name="build_name",
    ),
    Format(
        "directory-names",
        "names of the directories in a log directory",
        "name",
        "",
        "LocalLog, KIP-113",
        "names",
        "DIRECTORY_RULES",
        parse_name="parse_directory",
        build_name="build_name",
    ),
)
"""Every format, in the order in which a newcomer would read them."""


def find(name: str) -> Format:
    """The format with this name, or of the files with it. Raises `UsageError`."""
    for candidate in FORMATS:
        if name in (candidate.name, candidate.pattern):
            return candidate
    import difflib

    near = difflib.get_close_matches(name, [known.name for known in FORMATS], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"no format is called {name!r}", cure=f"{hint}`klog formats` lists them")


_BY_KIND: Final = {
    "log": "segment",
    "checkpoint": "segment",  # a metadata snapshot consists of batches, too
    "bootstrap.checkpoint": "segment",
    "index": "offset-index",
    "timeindex": "time-index",
    "txnindex": "transaction-index",
    "snapshot": "producer-snapshot",
    "recovery-point-offset-checkpoint": "recovery-point-checkpoint",
    "log-start-offset-checkpoint": "log-start-checkpoint",
    "replication-offset-checkpoint": "replication-checkpoint",
    "cleaner-offset-checkpoint": "cleaner-checkpoint",
    "leader-epoch-checkpoint": "leader-epoch-checkpoint",
    "meta.properties": "meta-properties",
    "partition.metadata": "partition-metadata",
    ".kafka_cleanshutdown": "clean-shutdown",
    "quorum-state": "quorum-state",
}


def of_file(name: str) -> Format | None:
    """The format of a file by its name, None for files without one (`.lock`).

    Raises `FormatError` if it is not a name of Kafka's files.
    """
    from klog.formats.names import parse_file

    found = _BY_KIND.get(parse_file(name).kind)
    return None if found is None else find(found)
