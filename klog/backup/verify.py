"""Checks that backups can be restored: that all their objects are there, and have the bytes that were
written.

Batches are checked against their own checksums and offsets, too, so that a mistake of the backup itself
shows.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from klog.backup import names
from klog.backup.catalogue import needed_by, read_catalogue, summary_problem
from klog.backup.contents import Contents
from klog.backup.model import Manifest, PartitionState, Piece, StoredObject
from klog.backup.reading import is_damage, open_piece
from klog.backup.repository import Repository
from klog.formats.errors import FormatError, KlogError, MissingInputError, StorageError
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.storage.files.chunks import chunks
from klog.storage.reading.batch_search import MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with an object or a state; `backup` is the id of the newest that needs it."""

    what: KlogError
    backup: str


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
    """How much to read: `share` of the pieces (1.0: all), chosen by `seed`. With 0 only sizes are
    compared."""

    share: float = 1.0
    seed: int = 0
    jobs: int = 1
    on_total: Callable[[int], object] = lambda _bytes: None
    on_bytes: Callable[[int], object] = lambda _bytes: None


def verify(repository: Repository, identifiers: Sequence[str], options: VerifyOptions) -> Verified:
    """Check backups. Raises `StorageError` if the repository cannot be reached."""
    result = Verified()
    listed = repository.store.files()
    contents = Contents(repository)
    pieces: dict[str, Piece] = {}
    seen_states: set[tuple[TopicPartition, str]] = set()
    to_read, needed = _to_read(repository, identifiers, options)
    result.backups = len(identifiers) - len(to_read)
    manifests = side_by_side(options.jobs, lambda each: _manifest(repository, each), to_read)
    for identifier, manifest in zip(to_read, manifests, strict=True):
        if manifest is None:
            continue
        result.backups += 1
        if isinstance(manifest, FormatError):
            result.findings.append(Finding(manifest, identifier))
            continue
        try:
            for name in contents.objects_of(manifest):
                needed.setdefault(name, identifier)
            _check_states(repository, manifest, seen_states, pieces, result)
        except FormatError as error:
            result.findings.append(Finding(error, identifier))
    _check_summaries(repository, filter(names.ids_of_summary, listed), options, result)
    result.objects = len(needed)
    for name, user in needed.items():
        found = listed.get(name)
        expected = pieces[name].stored_bytes if name in pieces else None
        if found is None:
            result.findings.append(Finding(_problem(repository, name, "is missing"), user))
            pieces.pop(name, None)
        elif expected is not None and found.size_bytes != expected:
            what = f"has {found.size_bytes} bytes, {expected} were written"
            result.findings.append(Finding(_problem(repository, name, what), user))
            pieces.pop(name, None)
    chosen = _chosen(pieces.values(), options)
    options.on_total(sum(piece.size_bytes for piece in chosen))
    for piece, problem in zip(
        chosen,
        side_by_side(options.jobs, lambda each: _piece_problem(repository, each, options), chosen),
        strict=True,
    ):
        result.read_objects += 1
        result.read_bytes += piece.size_bytes
        if problem is not None:
            result.findings.append(Finding(problem, needed[piece.name]))
    return result


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
            result.findings.append(Finding(problem, between[1]))


def _problem(repository: Repository, name: str, what: str) -> StorageError:
    cure = "take it from a copy of the repository"
    return StorageError(what, file=repository.store.path_of(name), cure=cure)


def _chosen(pieces: Iterable[Piece], options: VerifyOptions) -> list[Piece]:
    """The pieces to read, in the order of their names; at least one, unless the share is 0."""
    ordered = sorted(pieces, key=lambda piece: piece.name)
    if options.share >= 1 or not ordered:
        return ordered
    count = min(len(ordered), max(1, round(len(ordered) * options.share))) if options.share > 0 else 0
    return sorted(random.Random(options.seed).sample(ordered, count), key=lambda piece: piece.name)  # noqa: S311


def _check_states(
    repository: Repository,
    manifest: Manifest,
    seen: set[tuple[TopicPartition, str]],
    pieces: dict[str, Piece],
    result: Verified,
) -> None:
    """Check the states of a backup, and the small objects that they name."""
    for partition, ref in sorted(repository.partitions(manifest).items()):
        if (partition, ref.states) in seen:
            continue
        seen.add((partition, ref.states))
        state = repository.state(partition, ref)
        pieces.update({piece.name: piece for piece in state.pieces})
        problem = state_problem(state)
        if problem is not None:
            error = FormatError(f"{partition}: {problem}", file=repository.store.path_of(ref.states))
            result.findings.append(Finding(error, manifest.id))
        if state.snapshot is not None:
            _check_small(repository, state.snapshot.stored, manifest.id, result)
    if manifest.metadata is not None:
        _check_small(repository, manifest.metadata, manifest.id, result)


def _check_small(repository: Repository, stored: StoredObject, identifier: str, result: Verified) -> None:
    try:
        repository.read_stored(stored)
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):  # that is found by the listing
            result.findings.append(Finding(error, identifier))


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
    if end_offset > state.end_offset:
        return f"the pieces reach to offset {end_offset}, but the log ends at {state.end_offset}"
    return None


def _piece_problem(repository: Repository, piece: Piece, options: VerifyOptions) -> KlogError | None:
    """Read a piece once, and check its batches and its checksum."""
    try:
        with open_piece(repository, piece) as file:
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
