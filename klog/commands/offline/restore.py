"""`klog restore`: brings logs back from a backup, as they were at a moment."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.offline.backing.opening import open_patiently
from klog.commands.offline.options import DryRun
from klog.commands.offline.restore_cluster import TargetConnection
from klog.commands.offline.restore_output import (
    Planned,
    moment_option,
    note_compacted,
    note_damage,
    note_moment,
    row_of,
    say_what_would,
    saying_what_stays,
    summary,
    working,
)
from klog.commands.offline.zookeeper_access import ZooKeeperConfig, access_of
from klog.commands.shared.cells import human_bytes, zoned_time
from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.messages import print_error, print_line, print_note
from klog.commands.shared.moment_options import MomentOptions
from klog.commands.shared.option_sets import flag, optional, valued
from klog.commands.shared.output import OutputOptions
from klog.formats.errors import UsageError
from klog.jobs.cores import available_cores

if TYPE_CHECKING:
    from klog.backup.producing.run import ProducingOptions
    from klog.backup.repository import Repository
    from klog.backup.restoring.damage import LeftOut, OnDamage
    from klog.backup.restoring.histories import Detail
    from klog.backup.restoring.kraft import KraftTarget
    from klog.backup.restoring.plan import RestorePlan
    from klog.backup.restoring.request import RestoreRequest, Selected
    from klog.backup.restoring.run import Restored, TargetOptions
    from klog.metadata.store import MetadataStore

# Partitions that are written to a cluster at a time: most of the time is spent waiting for answers.
_CONNECTIONS: Final = 8

Place = Annotated[
    str,
    typer.Argument(metavar="REPOSITORY", show_default=False, help="A directory or an object store's URI."),
]


@dataclass(frozen=True, slots=True)
class RestoreOptions(MomentOptions):
    """What comes back, and under which names."""

    rename: list[str] | None = valued("OLD=NEW", "The topic OLD comes back as NEW (repeatable).")

    def request(self) -> RestoreRequest:
        """The request that the options make. Raises UsageError."""
        return replace(MomentOptions.request(self), names=_names(self.rename or ()))


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """Where to, and for which brokers."""

    to: Path | None = valued("DIR", "An empty or a new directory.")
    brokers: str | None = valued(
        "ID,ID", "The ids of the brokers of the new cluster [default: those of the backup]."
    )
    kraft: bool = flag("Make nodes of KRaft, for Kafka 3.9 or 4. Brokers are controllers, too.")
    controllers: str | None = valued(
        "ID,ID", "With --kraft: the ids of the controllers, if not all brokers are."
    )
    metadata_version: str | None = valued(
        "VERSION",
        "Of the Kafka that will start: 4.1, 4.0, 3.9, or a level's name (4.0-IV3). [default: that of the"
        " backup, or 4.1]",
        show_default=False,
    )
    replication_factor: int | None = optional(
        None,
        "The replicas of each partition [default: 1 with --brokers; a running cluster's own default].",
        least=1,
    )
    zookeeper: str | None = valued(
        "HOST:PORT/CHROOT",
        "Write the metadata into this empty ZooKeeper [default: klog's own tree, for one broker].",
    )
    zookeeper_config: ZooKeeperConfig = None
    mapping: Path = optional(
        Path("restored-offsets.jsonl"),
        "Write down here which offsets records have in a running cluster.",
        metavar="FILE",
    )
    jobs: int | None = optional(
        None, "Work on so many partitions at a time [default: the number of cores].", "--jobs", "-j", least=1
    )

    def target(self) -> TargetOptions:
        """The target that the options name. Raises UsageError."""
        from klog.backup.restoring.run import TargetOptions
        from klog.formats.names import encode_uuid

        if self.to is None:
            raise UsageError(
                "--to DIR is needed, or --bootstrap-server",
                cure="or --dry-run, to see what would come back",
            )
        return TargetOptions(
            str(self.to),
            encode_uuid(secrets.token_bytes(16)),
            _node_ids("--brokers", self.brokers),
            self.replication_factor or 1,
            None if self.zookeeper is None else _opening(self.zookeeper, self.zookeeper_config),
            self._kraft(),
            self.jobs_or_cores,
        )

    def _kraft(self) -> KraftTarget | None:
        """The nodes of KRaft, None for a cluster without. Raises UsageError."""
        if not self.kraft:
            if self.controllers is not None or self.metadata_version is not None:
                raise UsageError("--controllers and --metadata-version are for --kraft")
            return None
        from klog.backup.restoring.kraft import KraftTarget

        if self.zookeeper is not None:
            raise UsageError("--kraft and --zookeeper exclude each other")
        controllers = _node_ids("--controllers", self.controllers)
        now_ms = time.time_ns() // 1_000_000
        return KraftTarget(now_ms, secrets.token_bytes, controllers, self.metadata_version)

    def producing(self) -> ProducingOptions:
        """How to restore into a running cluster. Raises UsageError."""
        from klog.backup.producing.run import ProducingOptions
        from klog.client.admin import CLUSTER_DEFAULT

        if self.brokers is not None or self.zookeeper is not None or self.kraft:
            raise UsageError("--brokers, --zookeeper and --kraft are for directories", cure="leave them out")
        factor = CLUSTER_DEFAULT if self.replication_factor is None else self.replication_factor
        return ProducingOptions(str(self.mapping), factor, self.jobs or _CONNECTIONS)

    @property
    def jobs_or_cores(self) -> int:
        """How many partitions are worked on at a time."""
        return self.jobs or available_cores()


def restore(
    repository: Place,
    moment: RestoreOptions,
    place: PlaceOptions,
    keys: KeyOptions,
    connection: TargetConnection,
    output: OutputOptions,
    skip_damaged: bool = flag(
        "Leave out objects of the repository that are damaged or missing, and say which offsets are lost."
    ),
    dry_run: DryRun = False,
    quiet: bool = flag("Show no progress and no table.", "--quiet", "-q"),
) -> None:
    """Bring logs back from a backup, as they were at a moment, as directories or into a running cluster.

    Records keep their bytes, offsets, epochs and producers. A transaction that was decided by the moment is
    whole in all partitions; one that was not is aborted in all. Committed offsets are those of the moment.
    Time is that of arrival as far as runs of the backup know it, and else the records' timestamps; BASIS says
    which. A target that is not empty is refused. Until it is complete no broker starts on it; if the command
    is killed, run it again, and it goes on. Several brokers get a directory each, broker-ID.

    If an object of the repository is damaged, the restore ends there, and what it has written stays
    incomplete. With --skip-damaged all objects are read first, and those that are damaged are left out: the
    partition has a gap, as a compacted log has. Each lost offset is said, and the exit code is 1.

    With --bootstrap-server records are produced into a running cluster, which is the lesser way: offsets are
    new, and so are producers and leader epochs. What read_committed readers saw comes back, with keys,
    headers, timestamps and codecs, and groups go on where they were. The file of --mapping says which offset
    became which. Only the command line names that cluster, by --bootstrap-server or --profile; the
    environment and the current profile do not.

    Examples:

    klog restore /mnt/backup --at 2026-11-24T10:00:00Z --dry-run
    klog restore s3://backups/cluster --at 2026-11-24T10:00:00Z --to /var/lib/kafka
    klog restore /mnt/backup --topic 'orders.*' --rename orders=orders-before --to /tmp/orders
    klog restore /mnt/backup --to /mnt/new --brokers 1,2,3 --replication-factor 3 --zookeeper zk:2181
    klog restore /mnt/backup --at 1h --to /var/lib/kafka --kraft --metadata-version 4.1
    klog restore /mnt/backup --at 1h --topic orders --rename orders=orders-old --bootstrap-server kafka:9092
    """
    from klog.backup.restoring.damage import refuse, without_damaged_metadata
    from klog.backup.restoring.histories import Detail
    from klog.backup.restoring.request import select
    from klog.backup.restoring.target import require_empty

    request = moment.request()
    into_cluster = _is_into_cluster(place, connection)
    target = None if dry_run or into_cluster else place.target()
    producing = place.producing() if into_cluster else None
    if target is not None:
        require_empty(target.directory)
    opened = open_patiently(repository, keys)
    said: list[LeftOut] = []
    left_out: list[LeftOut] = []
    selected = select(opened, request, _saying(said, request) if skip_damaged else refuse)
    note_moment(selected)
    if skip_damaged:
        manifest = without_damaged_metadata(opened, selected.manifest, left_out.append)
        selected = replace(selected, manifest=manifest)
    if producing is not None:
        _look_at_cluster(opened, selected, request, connection, producing)
    if skip_damaged:
        selected = _without_damaged(opened, selected, left_out, place.jobs_or_cores, quiet=quiet)
    # Log directories of nodes without KRaft need nothing of most batches but to be copied. No record is
    # produced before all objects were read.
    detail = Detail.BATCHES if target is None or target.kraft is not None else Detail.CUT
    if into_cluster and not skip_damaged:
        detail = Detail.CHECKED
    planned = _planned(opened, request, selected, detail, place.jobs_or_cores, quiet=quiet)
    plan = planned.plan
    if producing is not None:
        from klog.commands.offline.restore_cluster import restore_into_cluster

        has_groups = restore_into_cluster(
            planned, connection, producing, output, dry_run=dry_run, quiet=quiet
        )
        _end_if_incomplete(said, left_out, plan, request)
        if not has_groups:
            raise typer.Exit(1)
        return
    rows = [row_of(each, text=output.for_people) for each in plan.partitions]
    if output.for_people and not quiet:
        output.show(rows)
    if target is None:
        say_what_would(plan, planned.read_s, output, rows)
        _end_if_incomplete(said, left_out, plan, request)
        return
    from klog.backup.restoring.run import run_restore

    target = replace(target, moment=moment_option(selected, request))
    with (
        saying_what_stays(target.directory, selected, request),
        working("Restoring", plan.size_bytes, quiet=quiet) as advance,
    ):
        restored = run_restore(opened, plan, selected.manifest, target, advance)
    if not output.for_people:
        output.show(rows)
    _say_what_came(plan, restored, quiet=quiet or not output.for_people)
    _end_if_incomplete(said, left_out, plan, request)


def _saying(said: list[LeftOut], request: RestoreRequest) -> OnDamage:
    """Says which documents of the repository are left out, as far as they concern what comes back."""

    def say(each: LeftOut) -> None:
        if each.partition is None or request.wants(each.partition.topic):
            print_error(str(each))
            said.append(each)

    return say


def _without_damaged(
    repository: Repository, selected: Selected, left_out: list[LeftOut], jobs: int, *, quiet: bool
) -> Selected:
    """What was selected but for damaged pieces, which are added to `left_out`."""
    from klog.backup.restoring.damage import without_damaged

    with working("Checking", selected.size_bytes, quiet=quiet) as advance:
        views, found = without_damaged(repository, selected.views, jobs, advance)
    left_out += found
    return replace(selected, views=tuple(views))


def _planned(
    repository: Repository,
    request: RestoreRequest,
    selected: Selected,
    detail: Detail,
    jobs: int,
    *,
    quiet: bool,
) -> Planned:
    """Make the plan, and say which last records of keys are not known."""
    from klog.backup.restoring.completeness import compacted_away
    from klog.backup.restoring.request import plan_of
    from klog.backup.restoring.selection import RepositoryPieces

    begin_s = time.monotonic()
    with working("Planning", selected.size_bytes, quiet=quiet) as advance:
        plan = plan_of(repository, request, selected, advance, jobs, detail=detail)
    note_compacted(compacted_away(RepositoryPieces(repository), plan.partitions, jobs))
    return Planned(repository, plan, selected.manifest, time.monotonic() - begin_s)


def _look_at_cluster(
    repository: Repository,
    selected: Selected,
    request: RestoreRequest,
    connection: TargetConnection,
    options: ProducingOptions,
) -> None:
    """Connect, and make all checks that need no plan. Raises `UsageError`, `KlogError`."""
    from klog.admin import connect
    from klog.backup.producing.run import look_first
    from klog.backup.restoring.request import metadata_of, targets_of

    known = metadata_of(repository, selected.manifest)
    with connect.cluster(connection.settings()) as cluster:
        look_first(cluster, targets_of(selected, request), known, options)


def _end_if_incomplete(
    said: Sequence[LeftOut], left_out: Sequence[LeftOut], plan: RestorePlan, request: RestoreRequest
) -> None:
    """Say what was left out of the partitions that come back, with exit code 1 if anything was."""
    ends = {
        each.view.partition: request.offsets.get(
            each.view.partition, max(each.cut.end_offset, each.view.known_end or 0)
        )
        for each in plan.partitions
    }
    lost = [
        each
        for each in left_out
        if each.partition is None
        or (each.partition in ends and (each.gap is None or each.gap.first_offset < ends[each.partition]))
    ]
    for each in lost:
        print_error(str(each))
    if lost or said:
        raise typer.Exit(1)


def _is_into_cluster(place: PlaceOptions, connection: TargetConnection) -> bool:
    """Whether the target is a running cluster. Raises `UsageError` if it is a directory, too."""
    if place.to is not None and connection.names_target:
        raise UsageError("--to and --bootstrap-server (or --profile) exclude each other")
    return connection.names_target


def _say_what_came(plan: RestorePlan, restored: Restored, *, quiet: bool) -> None:
    note_damage(plan)
    for loss in restored.losses:
        print_note(f"not restored: {loss}")
    for change in restored.changes:
        print_note(change)
    if quiet:
        return
    size_bytes = sum(each.size_bytes for each in restored.written.values())
    print_line(f"{summary(plan)} as of {zoned_time(plan.moment_ms)}, {human_bytes(size_bytes)}:")
    for broker_id, directory in restored.directories.items():
        print_line(f"node {broker_id}: {directory}")


def _names(pairs: Sequence[str]) -> Mapping[str, str]:
    from klog.formats.names import is_legal_topic

    found = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and is_legal_topic(new)):
            raise UsageError(f"--rename {pair}: a topic is renamed by OLD=NEW, with a valid name")
        found[old] = new
    return found


def _node_ids(option: str, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= 9 for part in parts) or len(set(parts)) < len(parts):
        raise UsageError(f"{option} {text}: write different ids, such as 1,2,3")
    return tuple(map(int, parts))


def _opening(zookeeper: str, config: Path | None) -> Callable[[], MetadataStore]:
    access = access_of(config)

    def open_tree() -> MetadataStore:
        from klog.metadata.zookeeper import ZooKeeperStore

        return ZooKeeperStore(zookeeper, access)

    return open_tree
