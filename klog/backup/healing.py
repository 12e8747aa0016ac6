"""Stores objects anew that a repository has lost, as far as the source of a run still has what was in them.

What a piece or a snapshot holds is known by its SHA-256. So what is stored anew is the same, under the same
name, and all backups that need it are whole again. Manifests, tables and states tell of the past: no source
has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from klog.backup import names
from klog.backup.catalogue import write_summary
from klog.backup.model import PartitionRef, Piece, Problem, SnapshotObject, StoredObject
from klog.backup.packing import Packer, compression_of
from klog.backup.repository import Repository
from klog.backup.sources import Candidate
from klog.backup.store import StoreError
from klog.backup.verify import Content, Finding
from klog.formats.checksums import Bytes
from klog.formats.errors import FormatError, KlogError
from klog.formats.names import TopicPartition


@dataclass(slots=True)
class Healed:
    """How many objects were stored anew, the names of those that were not, and why."""

    stored: int = 0
    lost: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


def heal(
    repository: Repository,
    findings: Sequence[Finding],
    candidates: Mapping[TopicPartition, Candidate],
    metadata: bytes | None,
) -> Healed:
    """Store anew what `findings` name. `metadata` is that of the cluster now. Raises `StoreError`."""
    result = Healed()
    for finding in findings:
        if names.ids_of_summary(finding.name) is not None:
            _summarise_again(repository, finding.name)
            why = ""
        elif finding.content is None:
            why = "no source has this"
        else:
            why = _stored_again(repository, finding.content, candidates, metadata)
        if why:
            partition = None if finding.content is None else finding.content.partition
            result.lost.add(finding.name)
            result.problems.append(Problem(partition, _text(finding, why)))
        else:
            result.stored += 1
    return result


def to_read_anew(
    repository: Repository, refs: Mapping[TopicPartition, PartitionRef], lost: Container[str]
) -> frozenset[TopicPartition]:
    """The partitions whose state cannot be read or needs an object that is `lost`. A run reads them from
    their beginning.
    """

    def is_whole(partition: TopicPartition, ref: PartitionRef) -> bool:
        try:
            state = repository.state(partition, ref)
        except FormatError:
            return False
        needed = [ref.states, *(piece.name for piece in state.pieces)]
        if state.snapshot is not None:
            needed.append(state.snapshot.stored.name)
        return not any(name in lost for name in needed)

    return frozenset(partition for partition, ref in refs.items() if not is_whole(partition, ref))


def _summarise_again(repository: Repository, name: str) -> None:
    """Write a summary anew. Without one, manifests say the same."""
    first, last = names.ids_of_summary(name) or ("", "")
    repository.store.remove(name)
    write_summary(repository, [each for each in repository.ids() if first <= each <= last])


def _text(finding: Finding, why: str) -> str:
    place = finding.what.file or finding.name
    stored = None if finding.content is None else finding.content.stored
    offsets = ""
    if isinstance(stored, Piece):
        offsets = f" (offsets {stored.first_offset} to {stored.end_offset - 1})"
    return f"{place}{offsets} {finding.what.what}, and {why}; backup {finding.backup} needs it"


def _stored_again(
    repository: Repository,
    content: Content,
    candidates: Mapping[TopicPartition, Candidate],
    metadata: bytes | None,
) -> str:
    """Store an object anew, or why that is not possible."""
    stored = content.stored
    if isinstance(stored, StoredObject):
        return (
            "this run reads no metadata" if metadata is None else _written(repository, content, [[metadata]])
        )
    candidate = None if content.partition is None else candidates.get(content.partition)
    if candidate is None:
        return "the sources of this run do not have the partition"
    problems: list[KlogError] = []
    try:
        why = _written(repository, content, candidate.readings(stored, problems))
    except StoreError:
        raise
    except KlogError as error:
        return str(error)
    return "; ".join([why, *map(str, problems)]) if why else ""


def _written(repository: Repository, content: Content, readings: Iterable[Iterable[Bytes]]) -> str:
    """Store the first of some readings that has the content, or why none has."""
    why = "the source no longer has it"
    stored = content.stored.stored if isinstance(content.stored, SnapshotObject) else content.stored
    for parts in readings:
        new = repository.store.create()
        try:
            packer = Packer(compression_of(content.name), new.write)
            digest, size_bytes = hashlib.sha256(), 0
            for part in parts:
                digest.update(part)
                size_bytes += len(part)
                packer.add(memoryview(part))
            packer.finish()
            if digest.hexdigest() == stored.sha256:
                new.seal(content.name)
                repository.store.commit(new)
                return ""
            if size_bytes:
                why = "the source has something else in its place now"
        finally:
            new.discard()
    return why
