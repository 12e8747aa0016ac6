"""Checks that backups can be restored: that all their objects are there, and have the bytes that were
written.

Batches are checked against their own checksums and offsets, too, so that a mistake of the backup itself
shows.
"""

from __future__ import annotations

import hashlib
import random
import shlex
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from klog.backup import names
from klog.backup.catalogue import needed_by, read_catalogue, summary_problem
from klog.backup.contents import Contents
from klog.backup.model import (
    Manifest,
    PartitionRef,
    PartitionState,
    Piece,
    SnapshotObject,
    StoredObject,
)
from klog.backup.packing import reading_ahead
from klog.backup.reading import is_damage, open_piece
from klog.backup.repository import Repository
from klog.backup.store import missing
from klog.formats.errors import FormatError, KlogError, MissingInputError, StorageError
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.replicas.files import is_remote
from klog.storage.files.chunks import chunks
from klog.storage.reading.batch_search import MAX_BATCH_BYTES

_CURE: Final = "take it from a copy of the repository"


@dataclass(frozen=True, slots=True)
class Content:
    """What an object holds that a source may still have: a piece or a snapshot of `partition`, which was read
    from `source`, or a cluster's metadata.
    """

    stored: Piece | SnapshotObject | StoredObject
    partition: TopicPartition | None = None
    source: str = ""

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.stored.stored.name if isinstance(self.stored, SnapshotObject) else self.stored.name


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with the object `name` or a state in it; `backup` is the id of the newest that
    needs it. `content` is None if no source has what is lost.
    """

    what: KlogError
    backup: str
    name: str = ""
    content: Content | None = None


@dataclass(slots=True)
class Verified:
    """What was checked, and what is wrong."""

    backups: int = 0
    objects: int = 0
    read_objects: int = 0
    read_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How much to read: `share` of the pieces (1.0: all), chosen by `seed`, and those whose size is not the
    one that was written. With 0 only sizes are compared."""

    share: float = 1.0
    seed: int = 0
    jobs: int = 1
    on_total: Callable[[int], object] = lambda _bytes: None
    on_bytes: Callable[[int], object] = lambda _bytes: None


def verify(repository: Repository, identifiers: Sequence[str], options: VerifyOptions) -> Verified:
    """Check backups. Raises `StorageError` if the repository cannot be reached."""
    result = Verified()
    listed = repository.store.files()
    to_read, needed = _to_read(repository, identifiers, options)
    result.backups = len(identifiers) - len(to_read)
    documents = _Documents(repository, needed, result)
    manifests = side_by_side(options.jobs, lambda each: _manifest(repository, each), to_read)
    for identifier, manifest in zip(to_read, manifests, strict=True):
        if manifest is None:
            continue
        result.backups += 1
        if isinstance(manifest, FormatError):
            result.findings.append(Finding(manifest, identifier))
        else:
            documents.check(manifest)
    _check_summaries(repository, filter(names.ids_of_summary, listed), options, result)
    result.objects = len(needed)
    pieces = documents.pieces
    of_other_size: dict[str, int] = {}
    for name, user in needed.items():
        found = listed.get(name)
        if found is None:
            content = documents.contents.get(name)
            is_missing = _problem(repository, name, "is missing")
            is_missing.cure = remedy(repository, content)
            result.findings.append(Finding(is_missing, user, name, content))
            pieces.pop(name, None)
        elif name in pieces and found.size_bytes != pieces[name].stored_bytes:
            of_other_size[name] = found.size_bytes  # if it was stored anew, it may be packed otherwise
    chosen = _chosen(pieces.values(), of_other_size.keys(), options)
    options.on_total(sum(piece.size_bytes for piece in chosen))
    for piece, problem in zip(
        chosen,
        side_by_side(options.jobs, lambda each: _piece_problem(repository, each, options), chosen),
        strict=True,
    ):
        result.read_objects += 1
        result.read_bytes += piece.size_bytes
        if problem is not None:
            size_bytes, content = of_other_size.get(piece.name), documents.contents[piece.name]
            what = f"has {size_bytes} bytes, {piece.stored_bytes} were written"
            error = problem if size_bytes is None else _problem(repository, piece.name, what)
            error.cure = remedy(repository, content)
            result.findings.append(Finding(error, needed[piece.name], piece.name, content))
    return result


def remedy(repository: Repository, content: Content | None) -> str:
    """What to do about a damaged object."""
    if content is None:
        return _CURE
    place = shlex.quote(repository.place)
    if content.partition is None:
        source = "SOURCE --metadata SOURCE"
    elif is_remote(content.source):
        source = "--bootstrap-server HOST:PORT"
    else:
        source = shlex.quote(content.source)
    return f"if the source still has this: klog backup run {source} --to {place} --full; else {_CURE}"


def _to_read(
    repository: Repository, identifiers: Sequence[str], options: VerifyOptions
) -> tuple[list[str], dict[str, str]]:
    """The backups to read, the newest first, and what the others need, each object with a backup. All are
    read, or a share of those that are in summaries.
    """
    if options.share >= 1:
        return sorted(identifiers, reverse=True), {}
    needed = needed_by(repository, read_catalogue(repository), identifiers)
    rest = sorted(set(identifiers) - set(needed.to_read))
    some = random.Random(options.seed).sample(rest, round(len(rest) * options.share))  # noqa: S311
    return sorted([*needed.to_read, *some], reverse=True), dict(needed.objects)


def _manifest(repository: Repository, identifier: str) -> Manifest | FormatError | None:
    """A backup, or what is wrong with it; None if it was just pruned."""
    try:
        return repository.manifest(identifier)
    except MissingInputError:
        return None
    except FormatError as error:
        return error


def _check_summaries(
    repository: Repository, listed: Iterable[str], options: VerifyOptions, result: Verified
) -> None:
    """Check that summaries can be read."""
    summaries = sorted(listed)
    problems = side_by_side(options.jobs, lambda name: summary_problem(repository, name), summaries)
    for name, problem in zip(summaries, problems, strict=True):
        between = names.ids_of_summary(name)
        if problem is not None and between is not None:
            result.findings.append(Finding(problem, between[1], name))


def _problem(repository: Repository, name: str, what: str) -> StorageError:
    return StorageError(what, file=repository.store.path_of(name), cure=_CURE)


def _chosen(pieces: Iterable[Piece], surely: Set[str], options: VerifyOptions) -> list[Piece]:
    """The pieces to read, in the order of their names: those that are read `surely`, and of the others at
    least one, unless the share is 0.
    """
    ordered = sorted(pieces, key=lambda piece: piece.name)
    if options.share >= 1:
        return ordered
    others = [piece for piece in ordered if piece.name not in surely]
    count = min(len(others), max(1, round(len(others) * options.share))) if options.share > 0 else 0
    some = {piece.name for piece in random.Random(options.seed).sample(others, count)}  # noqa: S311
    return [piece for piece in ordered if piece.name in surely or piece.name in some]


class _Documents:
    """Checks what manifests lead to, the newest first, and collects what is to be read.

    `needed` are objects with the newest backup that needs each.
    """

    def __init__(self, repository: Repository, needed: dict[str, str], result: Verified) -> None:
        self.pieces: dict[str, Piece] = {}
        self.contents: dict[str, Content] = {}
        self._repository = repository
        self._needed = needed
        self._result = result
        self._objects = Contents(repository)
        self._seen: set[tuple[TopicPartition, str]] = set()
        self._damaged: set[str] = set()

    def check(self, manifest: Manifest) -> None:
        """Check what a backup leads to. What is damaged hides nothing else."""
        try:
            refs = self._repository.partitions(manifest)
        except FormatError as error:
            self._add(error, manifest.id)
            return
        for name in self._objects.objects_of(manifest, lambda error: self._add(error, manifest.id)):
            self._needed.setdefault(name, manifest.id)
        for partition, ref in sorted(refs.items()):
            if (partition, ref.states) not in self._seen:
                self._seen.add((partition, ref.states))
                self._check_state(partition, ref, manifest.id)
        if manifest.metadata is not None:
            self._check_small(manifest.metadata, Content(manifest.metadata), manifest.id)

    def _check_state(self, partition: TopicPartition, ref: PartitionRef, identifier: str) -> None:
        try:
            state = self._repository.state(partition, ref)
        except FormatError as error:
            self._add(error, identifier)
            return
        for piece in state.pieces:
            self.pieces[piece.name] = piece
            self.contents.setdefault(piece.name, Content(piece, partition, state.source))
        problem = state_problem(state)
        if problem is not None:
            wrong = FormatError(f"{partition}: {problem}", file=self._repository.store.path_of(ref.states))
            self._add(wrong, identifier, ref.states)
        if state.snapshot is not None:
            content = Content(state.snapshot, partition, state.source)
            self._check_small(state.snapshot.stored, content, identifier)

    def _check_small(self, stored: StoredObject, content: Content, identifier: str) -> None:
        if stored.name in self.contents:
            return
        self.contents[stored.name] = content
        try:
            self._repository.read_stored(stored)
        except StorageError as error:
            if not missing(error):  # that is found by the listing
                error.cure = remedy(self._repository, content)
                self._result.findings.append(Finding(error, identifier, stored.name, content))

    def _add(self, error: FormatError, identifier: str, name: str = "") -> None:
        """A damaged document, once: several partitions and backups lead to it."""
        if str(error) not in self._damaged:
            self._damaged.add(str(error))
            self._result.findings.append(Finding(error, identifier, name))


def state_problem(state: PartitionState) -> str | None:
    """What is wrong with the order of a state's pieces; None if nothing is."""
    end_offset, end_bytes, segment = -1, 0, -1
    for piece in state.pieces:
        if piece.segment_base_offset != segment:
            end_bytes = 0
        if piece.segment_base_offset < segment or piece.start_bytes < end_bytes:
            return f"{piece.name} does not follow the piece before it"
        if piece.first_offset < end_offset or piece.end_offset <= piece.first_offset:
            return f"{piece.name} has offsets that do not ascend"
        segment, end_offset = piece.segment_base_offset, piece.end_offset
        end_bytes = piece.start_bytes + piece.size_bytes
    return None


def _piece_problem(repository: Repository, piece: Piece, options: VerifyOptions) -> KlogError | None:
    """Read a piece once, and check its batches and its checksum."""
    try:
        with open_piece(repository, piece) as file, reading_ahead(file):
            hashed = _HashedFile(file)
            problem = _batches_problem(repository, piece, hashed, options)
            while hashed.readinto(bytearray(1 << 20)):  # after a bad batch: the checksum is of all bytes
                pass
    except StorageError as error:
        if not is_damage(error):
            raise
        return error
    if hashed.sha256.hexdigest() != piece.sha256:
        return _problem(repository, piece.name, "does not have the checksum of the backup")
    return problem


class _HashedFile:
    """Computes the checksum of a file while it is read once from its start."""

    def __init__(self, file: BinaryIO) -> None:
        self.sha256 = hashlib.sha256()
        self._file = file

    def seek(self, position: int, /) -> int:
        """Stay where it is: at the start."""
        return position

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill some of `buffer`."""
        got: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self.sha256.update(memoryview(buffer)[:got])
        return got


def _batches_problem(
    repository: Repository, piece: Piece, file: _HashedFile, options: VerifyOptions
) -> KlogError | None:
    table = BatchTable()
    next_offset = piece.first_offset
    for data in chunks(file, table, max_batch_bytes=MAX_BATCH_BYTES):  # type: ignore[arg-type]
        options.on_bytes(table.consumed_bytes)
        if len(table) and kernel.verify(data, table):
            row = list(table.valid).index(0)
            what = "a batch fails its own checksum"
            return _problem(repository, piece.name, what).at(position_bytes=table.position[row])
        rows = zip(table.base_offset, table.last_offset, table.position, strict=True)
        for base, last, position in rows:
            if (last if base == OFFSET_UNKNOWN else base) < next_offset or last >= piece.end_offset:
                what = f"a batch has offset {last}, which does not belong there"
                return _problem(repository, piece.name, what).at(position_bytes=position)
            next_offset = last + 1
    reached = table.origin + table.consumed_bytes
    if reached != piece.size_bytes or next_offset != piece.end_offset:
        return _problem(repository, piece.name, "does not end with a whole batch").at(position_bytes=reached)
    return None
