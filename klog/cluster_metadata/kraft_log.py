"""Reads one KRaft directory: its snapshots, its metadata log, and the files beside them.

Rules: Kafka's `KafkaMetadataLog`, `RecordsSnapshotReader` and `BootstrapDirectory`. The latest valid snapshot
counts, and the records of the log after it. Bytes of a batch that was not written to its end are ignored, as
at Kafka's start. A directory that was formatted and never used has bootstrap.checkpoint only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, TypeVar

from klog.cluster_metadata.forms import OnProblem
from klog.cluster_metadata.kraft_replay import MetadataReplay
from klog.formats import cluster_metadata, control_records, meta_properties, quorum_state
from klog.formats.errors import (
    CorruptRecordError,
    FormatError,
    KlogError,
    StorageError,
    UnsupportedFormatError,
    placed,
)
from klog.formats.fixed_fields import run
from klog.formats.meta_properties import MetaProperties
from klog.formats.metadata_records import RECORDS
from klog.formats.names import FileKind, FileState, parse_file
from klog.formats.quorum_state import QuorumState
from klog.storage.files.files import open_for_reading, read_whole, size_bytes
from klog.storage.files.kafka_files import KafkaFile, files_of
from klog.storage.reading.segment import Segment
from klog.storage.reading.values import Record

_Parsed = TypeVar("_Parsed")

METADATA_DIRECTORY: Final = "__cluster_metadata-0"
_FRAME: Final = run("RecordBatch").through("batchLength")
_DAMAGED: Final = (
    "read the directory of another controller; `klog recover` cuts a copy there, and all that follows is lost"
)
_SKIP: Final = "a later Kafka wrote it; --skip-unknown leaves out such records"


@dataclass
class KRaftLog:
    """What was read of a directory. `end_offset` is the offset after the last record, in `epoch`."""

    directory: str
    replay: MetadataReplay
    identity: MetaProperties | None = None
    quorum: QuorumState | None = None
    snapshot: str | None = None
    snapshot_end: int = 0
    end_offset: int = 0
    epoch: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        """What the quorum compares in elections: the log with the greatest one has all committed records."""
        return self.epoch, self.end_offset

    @property
    def voters(self) -> set[int]:
        """The ids of the quorum's voters, of a static quorum or in the log; empty if nothing says them."""
        in_file = self.quorum.field("currentVoters") if self.quorum is not None else None
        in_log = self.replay.voter_ids
        return in_log or {each["voterId"] for each in in_file or () if isinstance(each, dict)}


def read_log(directory: str, on_problem: OnProblem) -> KRaftLog:
    """Reads a log directory that holds `__cluster_metadata-0`, or that one itself.

    Raises StorageError, `FormatError`; what `on_problem` does not raise is left out.
    """
    root, metadata = _places(directory)
    files = files_of(metadata) if os.path.isdir(metadata) else []
    found = KRaftLog(
        root,
        MetadataReplay(),
        _parsed(os.path.join(root, FileKind.META_PROPERTIES), meta_properties.parse),
        _parsed(os.path.join(metadata, FileKind.QUORUM_STATE), quorum_state.parse),
    )
    reader = _LogReader(found, on_problem)
    reader.read_snapshot(_of_kind(files, FileKind.METADATA_SNAPSHOT))
    reader.read_segments(_of_kind(files, FileKind.LOG))
    if not reader.data_records:
        reader.read_bootstrap(os.path.join(root, FileKind.BOOTSTRAP_SNAPSHOT))
    if found.replay.is_in_transaction:
        found.notes.append("the last metadata transaction is not complete: its records do not count")
    return found


def is_kraft_directory(path: str) -> bool:
    """Whether a directory has a metadata log, or was formatted for KRaft."""
    root, metadata = _places(path)
    return os.path.isdir(metadata) or os.path.isfile(os.path.join(root, FileKind.BOOTSTRAP_SNAPSHOT))


def _places(directory: str) -> tuple[str, str]:
    """The log directory, and the directory of the metadata log in it."""
    absolute = os.path.abspath(directory)
    if os.path.basename(absolute) == METADATA_DIRECTORY:
        return os.path.dirname(absolute), absolute
    return directory, os.path.join(directory, METADATA_DIRECTORY)


def _parsed(path: str, parse: Callable[[bytes], _Parsed]) -> _Parsed | None:
    if not os.path.exists(path):
        return None
    with placed(path):
        return parse(read_whole(path))


def _of_kind(files: list[KafkaFile], kind: FileKind) -> list[KafkaFile]:
    return [each for each in files if each.kind is kind and each.state is FileState.NORMAL]


class _LogReader:
    def __init__(self, log: KRaftLog, on_problem: OnProblem) -> None:
        self._log = log
        self._on_problem = on_problem
        self.data_records = 0

    def read_snapshot(self, files: list[KafkaFile]) -> None:
        """Takes the latest snapshot that is whole."""
        for file in sorted(files, key=lambda each: os.path.basename(each.path), reverse=True):
            try:
                records = _whole_snapshot(file.path)
            except KlogError as error:
                error.cure = None  # that of a log is wrong here
                self._log.notes.append(f"a snapshot is not used: {error}")
                continue
            name = parse_file(os.path.basename(file.path).removesuffix(".gz"))
            self._log.snapshot = file.path
            self._log.snapshot_end = self._log.end_offset = name.offset or 0
            self._log.epoch = name.epoch or 0
            for record in records:
                self._apply(record)
            return

    def read_segments(self, files: list[KafkaFile]) -> None:
        """Takes the records of the log from the snapshot's end on."""
        files.sort(key=lambda each: each.base_offset or 0)
        begin = self._log.end_offset
        needed = [
            file
            for file, following in zip_longest(files, files[1:])
            if following is None or (following.base_offset or 0) > begin
        ]
        for file in needed:
            if (file.base_offset or 0) > self._log.end_offset:
                raise StorageError(
                    f"the metadata log goes on at offset {file.base_offset}, but the records from offset"
                    f" {self._log.end_offset} on are missing",
                    file=file.path,
                    cure="a segment or a snapshot was lost: read the directory of another controller",
                )
            for record in self._records(file.path, is_last=file is needed[-1]):
                if record.offset >= begin:
                    self._apply(record)
                    self._log.end_offset = record.offset + 1
                    self._log.epoch = max(self._log.epoch, record.batch.partition_leader_epoch)

    def read_bootstrap(self, path: str) -> None:
        """Takes the records that the first controller would write to the log."""
        if not os.path.exists(path):
            return
        for record in _whole_snapshot(path):
            self._apply(record)
        self._log.notes.append(
            f"there is no metadata log: the metadata is that of {path}, with which one begins"
        )

    def _records(self, path: str, *, is_last: bool) -> Iterator[Record]:
        """The records up to the first damage, which only the end of the last segment may have."""
        problems: list[KlogError] = []
        for record in Segment(path).records(control_records=True, on_problem=problems.append):
            if record.batch.position_bytes >= _first_position(problems, record.batch.position_bytes + 1):
                break
            yield record
        if not problems:
            return
        problem = min(problems, key=lambda each: each.position_bytes or 0)
        if is_last and _is_torn(path, problem.position_bytes or 0):
            problem.cure = None
            self._log.notes.append(f"the last batch was not written to its end and does not count: {problem}")
        else:
            problem.cure = _DAMAGED
            self._on_problem(problem)

    def _apply(self, record: Record) -> None:
        replay = self._log.replay
        try:
            if record.is_control:
                control = control_records.parse(record.key or b"", record.value)
                replay.apply_control(str(control.key.type), control.value)
                return
            self.data_records += 1
            if record.value is None:
                raise FormatError("is a metadata record without a value")
            parsed = cluster_metadata.read(record.value)
            if isinstance(parsed["fields"], bytes):
                raise _unknown(parsed["type"], parsed["version"])
            replay.apply(parsed)
        except FormatError as error:
            error.what = f"the metadata record at offset {record.offset} {error.what}"
            self._on_problem(error.at(record.batch.file, record.batch.position_bytes))


def _first_position(problems: list[KlogError], none: int) -> int:
    return min((each.position_bytes or 0 for each in problems), default=none)


def _unknown(kind: int, version: int) -> UnsupportedFormatError:
    if kind in RECORDS:
        last = RECORDS[kind].versions[-1]
        what = f"has version {version} of {RECORDS[kind].name}; klog knows versions 0 to {last}"
    else:
        what = f"has type {kind}, which klog does not know"
    return UnsupportedFormatError(what, cure=_SKIP)


def _whole_snapshot(path: str) -> list[Record]:
    """The records of a snapshot between header and footer. Raises `KlogError` if it is not whole."""
    segment = Segment(path)
    segment.base_offset = None  # The offset in a snapshot's name is its end.
    records = list(segment.records(control_records=True, strict=True))
    kinds = [record.control_type for record in records]
    if not kinds or kinds[0] != "SNAPSHOT_HEADER" or kinds[-1] != "SNAPSHOT_FOOTER":
        raise CorruptRecordError(
            "the snapshot has no header or no footer: it was not written to its end",
            file=path,
            position_bytes=0 if not kinds or kinds[0] != "SNAPSHOT_HEADER" else size_bytes(path),
        )
    return records


def _is_torn(path: str, position_bytes: int) -> bool:
    """Whether the batch at a position reaches the end of the file or beyond, or only zeros follow."""
    with open_for_reading(path) as file:
        file.seek(position_bytes)
        rest = file.read()
    if len(rest) < _FRAME.size or not any(rest):
        return True
    *_, length_bytes = _FRAME.unpack_from(rest)
    return _FRAME.size + int(length_bytes) >= len(rest)
