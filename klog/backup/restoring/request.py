"""What a restore is asked for, and the plan that a repository gives for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from klog.backup.model import Manifest
from klog.backup.moment.decisions import TRANSACTION_TOPIC
from klog.backup.moment.view import PartitionView
from klog.backup.repository import Repository
from klog.backup.restoring.damage import OnDamage, refuse
from klog.backup.restoring.histories import Detail, OnBytes, ignore_bytes
from klog.backup.restoring.plan import Moment, PlannedPartition, RestorePlan, plan_restore
from klog.backup.restoring.selection import (
    RepositoryPieces,
    manifests_around,
    newest_backup,
    views_around,
    views_of_backup,
)
from klog.cluster_metadata import json_form
from klog.cluster_metadata.model import Cluster
from klog.formats.errors import MissingInputError, UsageError
from klog.formats.names import TopicPartition, encode_uuid


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A moment or the id of a backup (None: the newest), or the offset at which partitions end. `wants` says
    which topics come back, and `names` has the new names of some.
    """

    at_ms: int | None = None
    backup: str | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    wants: Callable[[str], bool] = lambda _topic: True
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selected:
    """The partitions that take part, and the backup whose metadata counts. `last_ms` is when the last of the
    runs began that were asked.
    """

    views: tuple[PartitionView, ...]
    manifest: Manifest
    moment_ms: int
    last_ms: int

    @property
    def is_before_all(self) -> bool:
        """Whether the moment is before the first backup, which may lack what had been removed by then."""
        return self.moment_ms < self.manifest.begin_ms

    @property
    def is_after_all(self) -> bool:
        """Whether the moment is after the newest backup, which lacks what came later."""
        return self.moment_ms > self.last_ms

    @property
    def behind(self) -> tuple[PartitionView, ...]:
        """The partitions that no run has looked at since the moment, those first that lack most."""
        found = (view for view in self.views if view.read_ms < self.moment_ms)
        return tuple(sorted(found, key=lambda view: view.read_ms))

    @property
    def size_bytes(self) -> int:
        """How much a plan reads."""
        return sum(view.size_bytes for view in self.views)


def select(repository: Repository, request: RestoreRequest, on_damage: OnDamage = refuse) -> Selected:
    """What a request is about. Raises `UsageError`, `MissingInputError`, `StorageError`, `FormatError`.

    Damaged manifests, tables and states are left out if `on_damage` does not raise.
    """
    if request.at_ms is not None:
        manifests = manifests_around(repository, request.at_ms, on_damage)
        earlier = [each for each in manifests if each.begin_ms <= request.at_ms]
        manifest = earlier[-1] if earlier else manifests[0]
        views = list(views_around(repository, manifests, request.at_ms, on_damage))
        moment_ms, last_ms = request.at_ms, manifests[-1].begin_ms
    else:
        identifier = request.backup
        if identifier is None:
            manifest = newest_backup(repository, on_damage)
        else:
            manifest = repository.manifest(identifier)
        views = list(views_of_backup(repository, manifest, on_damage))
        moment_ms = last_ms = manifest.begin_ms
    topics = {view.partition.topic for view in views}
    wanted = {topic for topic in topics if request.wants(topic)}
    if not wanted:
        raise MissingInputError(
            "has no such topic at that moment",
            file=repository.place,
            cure="klog backup show lists the topics",
        )
    _require_names(request.names, wanted)
    _require_offsets(request.offsets, {view.partition for view in views})
    return Selected(
        tuple(each for each in views if each.partition.topic in {*wanted, TRANSACTION_TOPIC}),
        manifest,
        moment_ms,
        last_ms,
    )


def targets_of(selected: Selected, request: RestoreRequest) -> dict[TopicPartition, TopicPartition]:
    """The partitions that come back, and what each is called then."""
    return {
        each.partition: TopicPartition(
            request.names.get(each.partition.topic, each.partition.topic), each.partition.partition
        )
        for each in selected.views
        if request.wants(each.partition.topic)
    }


def plan_of(
    repository: Repository,
    request: RestoreRequest,
    selected: Selected,
    on_bytes: OnBytes = ignore_bytes,
    jobs: int = 1,
    *,
    detail: Detail = Detail.BATCHES,
) -> RestorePlan:
    """The plan for what was selected, with as much `detail` as is asked for.

    Raises `UsageError`, `StorageError`, `FormatError`.
    """
    plan = plan_restore(
        RepositoryPieces(repository),
        selected.views,
        Moment(request.at_ms, request.offsets),
        selected.moment_ms,
        wanted=request.wants,
        names=request.names,
        jobs=jobs,
        on_bytes=on_bytes,
        detail=detail,
    )
    if not request.names:
        return plan
    own = identity(plan)
    return replace(plan, partitions=tuple(_with_own_topic_id(each, own) for each in plan.partitions))


def _with_own_topic_id(planned: PlannedPartition, restore: str) -> PlannedPartition:
    """A topic with a new name has a new id, as the old one may live on: the same for the same `restore`."""
    view, topic = planned.view, planned.target.topic
    if topic == view.partition.topic or view.topic_id is None:
        return planned
    digest = hashlib.sha256(f"{view.topic_id} {topic} {restore}".encode()).digest()
    topic_id = encode_uuid(b"\1" + digest[:15])  # Kafka gives no ids whose text begins with a dash
    return replace(planned, view=replace(view, topic_id=topic_id))


def identity(plan: RestorePlan) -> str:
    """Text that is the same for restores of the same partitions with the same ends."""
    described = [
        (
            str(each.view.partition),
            str(each.target),
            each.cut.end_offset,
            each.cut.added,
            each.view.gaps,
            sorted(each.cut.gaps.items()),
        )
        for each in plan.partitions
    ]
    return hashlib.sha256(json.dumps(described).encode("ascii")).hexdigest()


def metadata_of(repository: Repository, manifest: Manifest) -> Cluster | None:
    """The metadata that a backup has, None if it has none. Raises `FormatError`, `StorageError`."""
    if manifest.metadata is None:
        return None
    return json_form.decode(repository.read_stored(manifest.metadata))


def _require_names(names: Mapping[str, str], wanted: set[str]) -> None:
    missing = sorted(set(names) - wanted)
    if missing:
        raise UsageError(f"--rename: topic {missing[0]} is not among the restored ones")
    after = [names.get(topic, topic) for topic in wanted]
    twice = sorted({topic for topic in after if after.count(topic) > 1})
    if twice:
        raise UsageError(f"--rename: two topics would be named {twice[0]}")
    internal = sorted(topic for topic in names if topic.startswith("__"))
    if internal:
        raise UsageError(f"--rename: {internal[0]} keeps its name, as brokers look for it")


def _require_offsets(offsets: Mapping[TopicPartition, int], known: set[TopicPartition]) -> None:
    unknown = sorted(set(offsets) - known)
    if unknown:
        raise UsageError(f"--offsets: {unknown[0]} is not in the backup")
