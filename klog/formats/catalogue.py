"""Lists every format of a log directory, and of ZooKeeper's files, by name: what it is, the source of its
rules, the module that defines it.

A module is imported only when its definition, `parse` or `build` is needed.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

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
    definition_path: str
    parse_path: str
    build_path: str
    notes: str = ""

    @property
    def definition(self) -> Value:
        """The definition: a Construct, or for names and other text a declaration of this package."""
        return _member(self.definition_path)

    @property
    def parse(self) -> Callable[..., Any]:
        """Turns bytes (or a name) into a value; raises `FormatError`."""
        found: Callable[..., Any] = _member(self.parse_path)
        return found

    @property
    def build(self) -> Callable[[Any], Any]:
        """Turns a value into bytes (or a name); raises `FormatError`."""
        found: Callable[[Any], Any] = _member(self.build_path)
        return found


def _member(path: str) -> Value:
    module, _, name = path.partition(".")
    return getattr(importlib.import_module(f"klog.formats.{module}"), name)


def _formats(table: str) -> tuple[Format, ...]:
    """Entries `name | kind | pattern | source | definition`, with a title and notes in indented lines.

    Behind a definition are the functions that parse and build it, unless they are its module's.
    """
    found = []
    for entry in re.split(r"\n(?! )", table.strip()):
        head, title, *notes = map(str.strip, entry.split("\n"))
        name, kind, pattern, source, members = map(str.strip, head.split("|"))
        definition, *functions = members.split()
        module = definition.partition(".")[0]
        parse, build = functions or (f"{module}.parse", f"{module}.build")
        found.append(
            Format(name, title, cast("Kind", kind), pattern, source, definition, parse, build, *notes)
        )
    return tuple(found)


FORMATS: Final = _formats("""
segment | file | <offset>.log | Kafka documentation, Message Format | segment.Segment
    log segment: batches and messages of any magic, one after the other
    No header and no footer; `entries` reads one entry at a time.
record-batch | part | in .log and .checkpoint | KIP-98, KIP-534 | record_batch.RecordBatch
    batch of magic 2 with its records and headers (0.11 on)
    A compressed batch keeps its records as one block: `records` opens it.
message-set | part | in .log | KIP-31, KIP-32 | message_set.Message
    message of magic 0 or 1, also as wrapper of a compressed set (before 0.11)
    Inside a wrapper, offsets are absolute in magic 0 and relative in magic 1: `absolute_offsets`.
control-record | record | in control batches | KIP-98, KIP-595, KIP-630, KIP-853 |\
control_records.ControlRecord
    transaction marker, or record of the KRaft quorum
offset-index | file | <offset>.index | OffsetIndex | offset_index.OffsetIndex
    offset index of a segment
    No checksum. Ends at the first all-zero entry after entry 0 when pre-allocated.
time-index | file | <offset>.timeindex | KIP-33 | time_index.TimeIndex
    time index of a segment
    No checksum. Ends at the first all-zero entry after entry 0 when pre-allocated.
transaction-index | file | <offset>.txnindex | KIP-98 | transaction_index.TransactionIndex
    aborted transactions of a segment
    The file is there only when the segment has an aborted transaction.
producer-snapshot | file | <offset>.snapshot | KIP-98, KIP-360 | producer_snapshot.ProducerSnapshot
    state of the idempotent producers before an offset
consumer-offsets | record | in __consumer_offsets-<n> | KIP-848, KIP-932, KIP-1071 |\
consumer_offsets.GroupRecord
    record of __consumer_offsets: commits and groups of both coordinators
    The key's version is the record's type. A null value says that the thing is gone.
transaction-state | record | in __transaction_state-<n> | KIP-98, KIP-890 |\
transaction_state.TransactionRecord
    record of __transaction_state
    A null value forgets the transactional id.
cluster-metadata | record | in __cluster_metadata-0 and .checkpoint | KIP-500, KIP-631 |\
cluster_metadata.MetadataRecord
    record of KRaft's metadata log and its snapshots
    The record's value; it has no key. Unknown types keep their fields as bytes.
share-group-state | record | in __share_group_state-<n> | KIP-932 | share_group_state.ShareGroupRecord
    record of __share_group_state
remote-log-metadata | record | in __remote_log_metadata-<n> | KIP-405 | remote_log_metadata.RemoteLogRecord
    record of __remote_log_metadata: segments in remote storage
    The record's value; its key means nothing.
recovery-point-checkpoint | file | recovery-point-offset-checkpoint | OffsetCheckpointFile |\
checkpoint_files.OffsetCheckpointFile checkpoints.parse_offsets checkpoints.build_offsets
    first offset not known flushed, per partition of a log directory
log-start-checkpoint | file | log-start-offset-checkpoint | OffsetCheckpointFile |\
checkpoint_files.OffsetCheckpointFile checkpoints.parse_offsets checkpoints.build_offsets
    log start offset, per partition of a log directory
replication-checkpoint | file | replication-offset-checkpoint | OffsetCheckpointFile |\
checkpoint_files.OffsetCheckpointFile checkpoints.parse_offsets checkpoints.build_offsets
    high watermark, per partition of a log directory
cleaner-checkpoint | file | cleaner-offset-checkpoint | OffsetCheckpointFile |\
checkpoint_files.OffsetCheckpointFile checkpoints.parse_offsets checkpoints.build_offsets
    first dirty offset, per partition of a log directory
leader-epoch-checkpoint | file | leader-epoch-checkpoint | KIP-101 |\
checkpoint_files.LeaderEpochFile checkpoints.parse_epochs checkpoints.build_epochs
    leader epochs of a partition and where they start
meta-properties | file | meta.properties | KIP-631, KIP-858 | meta_properties.MetaPropertiesFile
    broker and cluster that a log directory belongs to
partition-metadata | file | partition.metadata | KIP-516 | partition_metadata.PartitionMetadataFile
    topic id of a partition's directory
clean-shutdown | file | .kafka_cleanshutdown | KIP-966 | clean_shutdown.CleanShutdownFile
    marker of a clean stop
    Its existence is what counts.
quorum-state | file | quorum-state | KIP-595, KIP-853 | quorum_state.QuorumStateFile
    what a KRaft node remembers of elections
zookeeper-snapshot | file | version-2/snapshot.<zxid> | FileSnap, zookeeper.jute |\
zookeeper_files.Snapshot zookeeper_files.parse_snapshot zookeeper_files.build_snapshot
    snapshot of ZooKeeper's tree
    Fuzzy: transactions after its zxid may be in it already. Checksums are not compared here.
zookeeper-log | file | version-2/log.<zxid> | FileTxnLog, zookeeper.jute |\
zookeeper_files.Log zookeeper_files.parse_log zookeeper_files.build_log
    transaction log of ZooKeeper
    Parts of a multi are records without a head. Checksums are not compared here.
file-names | name |  | LogFileUtils, KIP-405, KIP-630 | names.FILE_RULES names.parse_file names.build_name
    names of the files in a log directory
directory-names | name |  | LocalLog, KIP-113 | names.DIRECTORY_RULES names.parse_directory names.build_name
    names of the directories in a log directory
""")
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
