"""The JSON documents of a repository: bytes to values and back. Errors are `FormatError`s with the place in
the document.

A document ends with a checksum of what is before it, so that a changed digit is not taken for good.

A state is written whole, or as what it adds to a whole one in another object: it keeps a range of the pieces
and of the seen segments of that one. So a log that only grows writes little, and no chain is longer than two.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from klog.backup.model import (
    FORMAT_VERSION,
    Damage,
    Encryption,
    Manifest,
    PartitionRef,
    PartitionState,
    Piece,
    Problem,
    ProducerSummary,
    RepositoryInfo,
    SegmentSeen,
    SnapshotObject,
    Source,
    StoredObject,
)
from klog.cluster_metadata.json_codecs import (
    BOOL,
    INT32,
    INT64,
    TEXT,
    Codec,
    Member,
    array,
    as_set,
    integer,
    invalid,
    keyed,
    optional,
    structure,
)
from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.names import TopicPartition

_Value = TypeVar("_Value")
_COUNT: Final = integer(0, INT64_MAX)
_PARTITION: Final = structure(
    TopicPartition, topic=Member("topic", TEXT), partition=Member("partition", integer(0, INT32_MAX))
)
_STORED: Final = structure(
    StoredObject,
    name=Member("name", TEXT),
    size_bytes=Member("sizeBytes", _COUNT),
    sha256=Member("sha256", TEXT),
)
_NUMBERS: Final = array(INT64)
_PRODUCER_FIELDS: Final = len(ProducerSummary._fields)


def _decode_producer(given: object, place: str) -> ProducerSummary:
    numbers = _NUMBERS.decode(given, place)
    if len(numbers) != _PRODUCER_FIELDS:
        raise invalid(place, f"a list of {_PRODUCER_FIELDS} numbers", given)
    return ProducerSummary(*numbers)


_PIECE: Final = structure(
    Piece,
    segment_base_offset=Member("segment", _COUNT),
    start_bytes=Member("startBytes", _COUNT),
    size_bytes=Member("sizeBytes", _COUNT),
    first_offset=Member("firstOffset", _COUNT),
    end_offset=Member("endOffset", _COUNT),
    max_timestamp_ms=Member("maxTimestampMs", INT64, -1),
    sha256=Member("sha256", TEXT),
    name=Member("name", TEXT),
    stored_bytes=Member("storedBytes", _COUNT),
    has_transactions=Member("hasTransactions", BOOL, True),
    producers=Member("producers", optional(array(Codec(list, _decode_producer))), None),
)
_SEEN: Final = structure(
    SegmentSeen,
    base_offset=Member("segment", _COUNT),
    stat=Member("stat", array(INT64), ()),
    end_bytes=Member("endBytes", _COUNT),
    is_complete=Member("isComplete", BOOL),
    last_batch_bytes=Member("lastBatchBytes", INT64, -1),
    last_batch_header=Member("lastBatchHeader", TEXT, ""),
)
_DAMAGE: Final = structure(
    Damage,
    file=Member("file", TEXT),
    position_bytes=Member("positionBytes", optional(_COUNT)),
    first_offset=Member("firstOffset", _COUNT),
    end_offset=Member("endOffset", optional(_COUNT)),
    what=Member("what", TEXT),
)
_EPOCH: Final = structure(EpochEntry, epoch=Member("epoch", INT32), start_offset=Member("startOffset", INT64))
_SNAPSHOT: Final = structure(
    SnapshotObject, offset=Member("offset", _COUNT), stored=Member("stored", _STORED, inline=True)
)


@dataclass(frozen=True, slots=True)
class Base:
    """Where a state goes on: in `states` there is a whole one. It keeps `pieces` and `seen` (first, end)."""

    states: str
    pieces: tuple[int, int]
    seen: tuple[int, int]


_BASE: Final = structure(
    Base,
    states=Member("states", TEXT),
    pieces=Member("pieces", array(_COUNT)),
    seen=Member("seen", array(_COUNT)),
)
_STATE: Final = structure(
    PartitionState,
    partition=Member("", _PARTITION, inline=True),
    topic_id=Member("topicId", TEXT, None),
    pieces=Member("pieces", array(_PIECE)),
    log_start_offset=Member("logStartOffset", _COUNT),
    end_offset=Member("endOffset", _COUNT),
    high_watermark=Member("highWatermark", _COUNT, None),
    epochs=Member("epochs", array(_EPOCH), ()),
    snapshot=Member("snapshot", _SNAPSHOT, None),
    source=Member("source", TEXT),
    broker_id=Member("brokerId", INT32, None),
    read_time_ms=Member("readTimeMs", INT64),
    empty_segments=Member("emptySegments", array(_COUNT), ()),
    damage=Member("damage", array(_DAMAGE), ()),
    seen=Member("seen", array(_SEEN), ()),
)
_REF: Final = structure(
    PartitionRef,
    states=Member("states", TEXT),
    source=Member("source", TEXT),
    fingerprint=Member("fingerprint", TEXT),
    log_start_offset=Member("logStartOffset", _COUNT),
    end_offset=Member("endOffset", _COUNT),
    size_bytes=Member("sizeBytes", _COUNT),
    read_time_ms=Member("readTimeMs", INT64),
    is_damaged=Member("isDamaged", BOOL, False),
    broker_id=Member("brokerId", INT32, None),
)


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state as it is written: if `base` is not None, only what it adds to a whole one."""

    state: PartitionState
    base: Base | None = None


_STORED_STATE: Final = structure(
    StoredState, state=Member("", _STATE, inline=True), base=Member("base", _BASE, None)
)


@dataclass(frozen=True, slots=True)
class _Change:
    """A reference, or that the partition is gone."""

    ref: PartitionRef | None = None
    is_removed: bool = False


_CHANGE: Final = structure(
    _Change, ref=Member("", _REF, None, inline=True), is_removed=Member("isRemoved", BOOL, False)
)
_CHANGES: Final = keyed(_PARTITION, _CHANGE)
_REFS: Final = keyed(_PARTITION, _REF)
_SOURCE: Final = structure(
    Source,
    directory=Member("directory", TEXT),
    broker_id=Member("brokerId", INT32, None),
    cluster_id=Member("clusterId", TEXT, None),
)
_PROBLEM: Final = structure(
    Problem, partition=Member("", _PARTITION, None, inline=True), what=Member("what", TEXT)
)
_MANIFEST: Final = structure(
    Manifest,
    id=Member("id", TEXT),
    begin_ms=Member("beginMs", INT64),
    end_ms=Member("endMs", INT64),
    klog_version=Member("klogVersion", TEXT),
    cluster_id=Member("clusterId", TEXT, None),
    sources=Member("sources", array(_SOURCE)),
    patterns=Member("patterns", array(TEXT), ()),
    table=Member("table", TEXT, None),
    changes=Member(
        "changes",
        Codec(
            lambda refs: _CHANGES.encode(
                {partition: _Change(ref, ref is None) for partition, ref in refs.items()}
            ),
            lambda given, place: {
                partition: change.ref for partition, change in _CHANGES.decode(given, place).items()
            },
        ),
    ),
    metadata=Member("metadata", _STORED, None),
    problems=Member("problems", array(_PROBLEM), ()),
    unseen=Member("unseen", as_set(_PARTITION), None),
    read_bytes=Member("readBytes", _COUNT),
    stored_bytes=Member("storedBytes", _COUNT),
)
_ENCRYPTION: Final = structure(
    Encryption, method=Member("method", TEXT), key=Member("key", TEXT), check=Member("check", TEXT)
)
_INFO: Final = structure(
    RepositoryInfo,
    id=Member("id", TEXT),
    compression=Member("compression", TEXT),
    encryption=Member("encryption", optional(_ENCRYPTION), None),
)


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key that is encrypted under what scrypt makes of a user's key. Bytes are in hex."""

    id: str
    cost: int
    block_size: int
    salt: str
    check: str
    sealed: str


_KEY: Final = structure(
    WrappedKey,
    id=Member("id", TEXT),
    cost=Member("scryptCost", integer(2, INT32_MAX)),
    block_size=Member("scryptBlockSize", integer(1, INT32_MAX)),
    salt=Member("salt", TEXT),
    check=Member("check", TEXT),
    sealed=Member("sealed", TEXT),
)


# -- A state as what it adds to another one -----------------------------------------------------------------

_MOST_ADDED: Final = 64
_MOST_ADDED_SHARE: Final = 4


def added_to(states: str, whole: PartitionState, state: PartitionState) -> StoredState:
    """A state as it is to be written, if `states` has the whole one."""
    pieces = _kept(whole.pieces, state.pieces)
    seen = _kept(whole.seen, state.seen)
    added = len(state.pieces) - (pieces[1] - pieces[0])
    if added > max(_MOST_ADDED, len(state.pieces) // _MOST_ADDED_SHARE) or pieces == (0, 0):
        return StoredState(state)
    rest = replace(state, pieces=state.pieces[pieces[1] - pieces[0] :], seen=state.seen[seen[1] - seen[0] :])
    return StoredState(rest, Base(states, pieces, seen))


def _kept(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """The range of `old` that `new` begins with."""
    if not new or new[0] not in old:
        return 0, 0
    first = old.index(new[0])
    end = next(
        (at for at, (one, other) in enumerate(zip(old[first:], new, strict=False)) if one != other),
        min(len(old) - first, len(new)),
    )
    return first, first + end


def resolved(stored: StoredState, whole: PartitionState | None) -> PartitionState:
    """The state that was written as an addition to `whole`."""
    if stored.base is None:
        return stored.state
    if whole is None:
        raise FormatError(f"{stored.base.states} has no whole state of {stored.state.partition}")
    (first, end), (first_seen, end_seen) = stored.base.pieces, stored.base.seen
    return replace(
        stored.state,
        pieces=(*whole.pieces[first:end], *stored.state.pieces),
        seen=(*whole.seen[first_seen:end_seen], *stored.state.seen),
    )


# -- Documents ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Document(Generic[_Value]):
    """A kind of documents of one value each. What is packed is compressed when it is written."""

    kind: str
    codec: Codec
    is_packed: bool = False

    def encode(self, value: _Value) -> bytes:
        """The document of a value."""
        return (_packed if self.is_packed else _encode)(self.kind, self.codec.encode(value))

    def decode(self, data: bytes) -> _Value:
        """The value of a document, whose bytes are decompressed. Raises `FormatError`."""
        value: _Value = self.codec.decode(_decode(self.kind, data), "")
        return value


INFO: Final[Document[RepositoryInfo]] = Document("klog backup repository", _INFO)
"""`klog-backup.json`."""
KEY: Final[Document[WrappedKey]] = Document("klog backup key", _KEY)
"""A data key."""
MANIFEST: Final[Document[Manifest]] = Document("klog backup manifest", _MANIFEST)
"""A backup."""


def description(info: RepositoryInfo) -> bytes:
    """What `klog-backup.json` says, without its checksum: the keys of an encrypted repository are bound to
    it."""
    return _text(INFO.kind, _INFO.encode(info)).encode() + b"\n"


def encode_table(refs: Mapping[TopicPartition, PartitionRef]) -> bytes:
    """A table of all partitions."""
    return _packed("klog backup table", {"partitions": _REFS.encode(refs)})


def decode_table(data: bytes) -> dict[TopicPartition, PartitionRef]:
    """The references of a table, whose bytes are decompressed."""
    given = _decode("klog backup table", data)
    refs: dict[TopicPartition, PartitionRef] = _REFS.decode(given.get("partitions"), "partitions")
    return refs


def encode_states(states: Sequence[StoredState]) -> bytes:
    """The states of several partitions."""
    encoded = [_STORED_STATE.encode(state) for state in states]
    return _packed("klog backup states", {"states": encoded})


def decode_states(data: bytes) -> dict[TopicPartition, StoredState]:
    """The states in an object, whose bytes are decompressed."""
    given = _decode("klog backup states", data)
    states: tuple[StoredState, ...] = array(_STORED_STATE).decode(given.get("states"), "states")
    return {each.state.partition: each for each in states}


def _packed(kind: str, body: dict[str, Any]) -> bytes:
    return gzip.compress(_encode(kind, body), 6, mtime=0)


def _encode(kind: str, body: dict[str, Any]) -> bytes:
    content = _text(kind, body).removesuffix("}").encode()
    return content + _CHECKSUM + _checksum(content).encode() + b'"}\n'


def _text(kind: str, body: dict[str, Any]) -> str:
    return json.dumps({"format": kind, "version": FORMAT_VERSION, **body}, separators=(",", ":"))


_CHECKSUM: Final = b',"checksum":"'
_CHECKSUM_DIGITS: Final = 16


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_CHECKSUM_DIGITS]


def _decode(kind: str, data: bytes) -> dict[str, Any]:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is not JSON: {error}", cure=_CURE) from None
    if not isinstance(given, dict) or given.pop("format", None) != kind:
        raise FormatError(f"is no {kind}", cure=_CURE)
    if (version := given.pop("version", None)) != FORMAT_VERSION:
        cure = "use a klog that is not older than the one that wrote it"
        raise UnsupportedFormatError(f"has version {str(version)[:20]} of the format", cure=cure)
    # The first documents had no checksum.
    stored = given.pop("checksum", None)
    if stored is not None and stored != _checksum(data.rpartition(_CHECKSUM)[0]):
        raise FormatError("does not have its checksum", cure=_CURE)
    return given


_CURE: Final = "take this object from a copy of the repository"
