"""Names of files and directories in a log directory, parsed to values and formatted to the same string.

The rules are those of Kafka's `LocalLog`, `LogFileUtils`, `Snapshots` (KIP-630) and `RemoteIndexCache`
(KIP-405). A name that Kafka itself does not write (an offset of 19 digits, a partition `01`) is refused;
otherwise one thing would have two names. `catalogue` says what a file holds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import FormatError

MAX_DIRECTORY_NAME_LENGTH: Final = 255
MAX_TOPIC_LENGTH: Final = 249
CONSUMER_OFFSETS: Final = "__consumer_offsets"
"""The topic of the group coordinators."""
_INT32_DIGITS: Final = 10


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionKey = tuple[str, int]
"""Topic and partition as a plain tuple, which is cheaper to make. It equals the `TopicPartition`."""


def partitions_by_topic(partitions: Iterable[PartitionKey]) -> dict[str, list[int]]:
    """The numbers of the partitions of each topic."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


class DirectoryState(StrEnum):
    """The state of a replica, from the suffix of its directory's name."""

    CURRENT = "current"
    DELETE = "delete"  # scheduled for deletion
    FUTURE = "future"  # destination of a move between log directories that is not complete
    STRAY = "stray"  # the metadata no longer assigns the replica to this broker


class DirectoryName(NamedTuple):
    """The name of a partition's directory. The topic of a deleted or stray one may be truncated."""

    partition: TopicPartition
    state: DirectoryState = DirectoryState.CURRENT
    unique_id: str | None = None

    def __str__(self) -> str:
        if self.state is DirectoryState.CURRENT:
            return str(self.partition)
        return f"{self.partition}.{self.unique_id}-{self.state}"


class FileKind(StrEnum):
    """The kind of a file of a log directory or partition directory, from its name without transient
    suffixes.
    """

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    METADATA_SNAPSHOT = "checkpoint"
    LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
    LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
    REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
    CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
    META_PROPERTIES = "meta.properties"
    CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
    LOCK = ".lock"
    QUORUM_STATE = "quorum-state"
    BOOTSTRAP_SNAPSHOT = "bootstrap.checkpoint"


class FileState(StrEnum):
    """The transient suffix after the usual name; NORMAL has none."""

    NORMAL = ""
    DELETED = ".deleted"  # no longer in the log; deleted later
    CLEANED = ".cleaned"  # output of the cleaner or of a segment split, still being written
    SWAP = ".swap"  # complete output that is replacing the old segments
    TEMPORARY = ".tmp"  # written, not yet renamed into place
    PARTIAL = ".part"  # a metadata snapshot still being written


SEGMENT_KINDS: Final = frozenset(
    {
        FileKind.LOG,
        FileKind.OFFSET_INDEX,
        FileKind.TIME_INDEX,
        FileKind.TXN_INDEX,
        FileKind.PRODUCER_SNAPSHOT,
    }
)
"""Kinds whose name is a 20-digit offset: the segment's base offset, or a snapshot's (exclusive) end."""

PLAIN_KINDS: Final = frozenset(set(FileKind) - SEGMENT_KINDS - {FileKind.METADATA_SNAPSHOT})
"""Kinds whose name is fixed."""

OFFSET_CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINT_CHECKPOINT,
    FileKind.LOG_START_CHECKPOINT,
    FileKind.REPLICATION_CHECKPOINT,
    FileKind.CLEANER_CHECKPOINT,
)
"""Kinds with one offset for each partition of a log directory."""


class FileName(NamedTuple):
    """The name of one file.

    `offset` is None for fixed names. `epoch` and `writer_id` (the random number of a partial one) belong to
    metadata snapshots, `remote_segment_id` (22 characters) to copies of remote segments' indexes.
    """

    kind: FileKind
    offset: int | None = None
    state: FileState = FileState.NORMAL
    epoch: int | None = None
    writer_id: str | None = None
    remote_segment_id: str | None = None

    def __str__(self) -> str:
        if self.offset is None:
            return f"{self.kind}{self.state}"
        if self.remote_segment_id is not None:
            return f"{self.offset}_{self.remote_segment_id}.{self.kind}{self.state}"
        if self.epoch is not None:
            writer = "" if self.writer_id is None else f"-{self.writer_id}"
            return f"{self.offset:020d}-{self.epoch:010d}{writer}.{self.kind}{self.state}"
        return f"{self.offset:020d}.{self.kind}{self.state}"


class NameRule(NamedTuple):
    """One rule of the grammar: the shape for people, the pattern for the parser, and the meaning."""

    shape: str
    pattern: re.Pattern[str]
    meaning: str


_NUMBER = r"0|[1-9][0-9]*"
_MARKED_SUFFIX = re.compile(r"-(delete|future|stray)\Z")
CURRENT_DIRECTORY: Final = NameRule(
    "<topic>-<partition>",
    re.compile(rf"(?P<topic>[^/]+)-(?P<partition>{_NUMBER})", re.DOTALL),
    "directory of a current replica; the last dash divides, for a topic may have dashes",
)
MARKED_DIRECTORY: Final = NameRule(
    "<topic>-<partition>.<32 hex>-delete|-future|-stray",
    re.compile(
        rf"(?P<topic>[^\s/]+)-(?P<partition>{_NUMBER})\.(?P<id>[^\s./]+)-(?P<state>delete|future|stray)"
    ),
    "replica scheduled for deletion, being moved here, or no longer assigned; the topic may be cut",
)
SEGMENT_FILE: Final = NameRule(
    "<offset, 20 digits>.log|.index|.timeindex|.txnindex|.snapshot [.deleted|.cleaned|.swap|.tmp]",
    re.compile(
        r"(?P<offset>[0-9]{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)"
        r"(?P<state>\.deleted|\.cleaned|\.swap|\.tmp)?"
    ),
    "part of the segment with this base offset; of a .snapshot, the offset up to which it speaks",
)
METADATA_SNAPSHOT: Final = NameRule(
    "<offset, 20 digits>-<epoch, 10 digits>[-<random>].checkpoint [.part|.deleted]",
    re.compile(
        r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})(?:-(?P<writer>[0-9]+))?\.checkpoint"
        r"(?P<state>\.part|\.deleted)?"
    ),
    "snapshot of the metadata log up to this offset, taken in this epoch; .part has a random number",
)
REMOTE_INDEX: Final = NameRule(
    "<offset>_<segment id, 22 characters>.index|.timeindex|.txnindex [.deleted|.tmp]",
    re.compile(
        rf"(?P<offset>{_NUMBER})_(?P<id>[A-Za-z0-9_-]{{22}})\.(?P<kind>index|timeindex|txnindex)"
        r"(?P<state>\.deleted|\.tmp)?"
    ),
    "in remote-log-index-cache: a copy of a remote segment's index",
)
CONVERSION_FILE: Final = re.compile(r"klog-convert(-[0-9]{8})?\.json(\.[0-9]+\.tmp)?")
"""The state of a conversion of a partition by klog that did not end. Kafka ignores such files."""

PLAIN_FILE: Final = NameRule(
    "<fixed name> [.tmp]",
    re.compile(rf"(?P<kind>{'|'.join(map(re.escape, sorted(PLAIN_KINDS)))})(?P<state>\.tmp)?"),
    ", ".join(sorted(PLAIN_KINDS)),
)
DIRECTORY_RULES: Final = (CURRENT_DIRECTORY, MARKED_DIRECTORY)
FILE_RULES: Final = (SEGMENT_FILE, METADATA_SNAPSHOT, REMOTE_INDEX, PLAIN_FILE)

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal_topic(topic: str) -> bool:
    """Whether Kafka allows the name for a topic (1 to 249 of `a-z A-Z 0-9 . _ -`, not `.` or `..`)."""
    return (
        topic not in (".", "..")
        and len(topic) <= MAX_TOPIC_LENGTH
        and _LEGAL_TOPIC.fullmatch(topic) is not None
    )


def parse_directory(name: str) -> DirectoryName:
    """The partition and state from a directory's name. Raises `FormatError` for any other directory."""
    marked = _MARKED_SUFFIX.search(name) is not None
    match = (MARKED_DIRECTORY if marked else CURRENT_DIRECTORY).pattern.fullmatch(name)
    if match is None or len(match["partition"]) > _INT32_DIGITS or int(match["partition"]) > INT32_MAX:
        raise _not_a_partition(name)
    partition = TopicPartition(match["topic"], int(match["partition"]))
    if not marked:
        return DirectoryName(partition)
    return DirectoryName(partition, DirectoryState(match["state"]), match["id"])


def _not_a_partition(name: str) -> FormatError:
    return FormatError(
        f"directory name {name!r} is not topic-partition, nor that with .<id>-delete, -future or -stray",
        cure="a broker refuses to start with such a directory in its log directory: move it elsewhere",
    )


def marked_directory(partition: TopicPartition, state: DirectoryState, unique_id: str) -> DirectoryName:
    """Kafka's name for a directory that is deleted, moved or stray; `unique_id` is 32 hex digits of a random
    UUID.

    Names of deleted and stray replicas are limited to 255 characters, by truncating the topic. That of a
    future replica is not; Kafka refuses the move instead.
    """
    marked = DirectoryName(partition, state, unique_id)
    excess = len(str(marked)) - MAX_DIRECTORY_NAME_LENGTH
    if excess <= 0 or state is DirectoryState.FUTURE:
        return marked
    return marked._replace(partition=TopicPartition(partition.topic[:-excess], partition.partition))


def parse_file(name: str) -> FileName:
    """The meaning of a file's name. Raises `FormatError` if it is not one of Kafka's names."""
    if match := SEGMENT_FILE.pattern.fullmatch(name):
        return FileName(FileKind(match["kind"]), _offset(match["offset"], name), _state(match))
    if match := METADATA_SNAPSHOT.pattern.fullmatch(name):
        epoch, state = int(match["epoch"]), _state(match)
        # Only a partial snapshot has its writer's random number.
        if epoch <= INT32_MAX and (match["writer"] is not None) == (state is FileState.PARTIAL):
            offset = _offset(match["offset"], name)
            return FileName(FileKind.METADATA_SNAPSHOT, offset, state, epoch, match["writer"])
    if match := REMOTE_INDEX.pattern.fullmatch(name):
        offset = _offset(match["offset"], name)
        return FileName(FileKind(match["kind"]), offset, _state(match), remote_segment_id=match["id"])
    if match := PLAIN_FILE.pattern.fullmatch(name):
        return FileName(FileKind(match["kind"]), state=_state(match))
    raise FormatError(
        f"file name {name!r} is none that Kafka gives to a file of a log directory",
        cure="name the format yourself if the file is a copy under another name",
    )


def _state(match: re.Match[str]) -> FileState:
    return FileState(match["state"] or "")


def _offset(digits: str, name: str) -> int:
    offset = int(digits) if len(digits) <= 20 else INT64_MAX + 1
    if offset > INT64_MAX:
        raise FormatError(f"file name {name!r} holds an offset above 2^63-1")
    return offset


def build_name(name: FileName | DirectoryName) -> str:
    """The name as in a directory listing."""
    return str(name)


def segment_file(kind: FileKind, offset: int, state: FileState = FileState.NORMAL) -> str:
    """The file name of one part of the segment with this base offset."""
    return f"{offset:020d}.{kind}{state}"


def encode_uuid(raw: bytes) -> str:
    """16 bytes as Kafka writes ids in text: 22 characters of unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def decode_uuid(text: str) -> bytes:
    """The 16 bytes of an id in Kafka's text form; raises `FormatError` for any other text."""
    if re.fullmatch(r"[A-Za-z0-9_-]{22}", text) is not None:
        raw = base64.urlsafe_b64decode(text + "==")
        if encode_uuid(raw) == text:
            return raw
    raise FormatError(f"{text[:80]!r} is not an id of 16 bytes in URL-safe base64")
