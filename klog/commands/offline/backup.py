"""`klog backup`: copies logs into a repository, and lists, checks and prunes the backups there."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands.offline.backing.cluster import cluster_origin, metadata_reader
from klog.commands.offline.backing.opening import open_patiently, retries
from klog.commands.offline.backing.running import (
    LateProgress,
    Origin,
    RunningOptions,
    run_all,
    serving_metrics,
)
from klog.commands.offline.options import DryRun
from klog.commands.shared.arguments import parse_span, parse_time
from klog.commands.shared.cells import human_bytes
from klog.commands.shared.changing import exit_if_failed
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.interrupts import Interrupts
from klog.commands.shared.key_options import KeyOptions, key_in
from klog.commands.shared.messages import print_error, print_line, print_note
from klog.commands.shared.option_sets import CommandGroup, argument, flag, optional, valued
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.terminal import agree, count_of
from klog.commands.shared.usage import missing
from klog.formats.errors import KlogError, MissingInputError, UsageError
from klog.replicas.files import is_remote, local_path

if TYPE_CHECKING:
    from klog.backup.catalogue import Catalogue

app = CommandGroup(
    name="backup",
    help=(
        "Back up the logs of brokers into a directory or an object store, and check and prune backups.\n\n"
        "    A backup is the log itself: the same bytes, offsets, epochs and producers.\n\n"
        "    Examples:\n\n"
        "    klog backup run /var/lib/kafka --to s3://backups/cluster\n\n"
        "    klog backup list s3://backups/cluster\n\n"
        "    klog backup verify s3://backups/cluster --sample 5\n\n"
        "    klog backup prune s3://backups/cluster --keep-last 2 --keep-daily 14 --keep-weekly 8 --dry-run"
    ),
    add_completion=False,
    rich_markup_mode=None,
)

Place = Annotated[
    str,
    typer.Argument(metavar="REPOSITORY", show_default=False, help="A directory or an object store's URI."),
]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="REPOSITORY", show_default=False, help="A directory or an object store's URI."
    ),
]


@app.command("run")
def run_backups(
    to: To,
    running: RunningOptions,
    keys: KeyOptions,
    connection: ConnectionOptions,
    output: OutputOptions,
    sources: list[str] | None = argument("[SOURCE...]", "Log directories, or directories with them."),
) -> None:
    """Back up log directories of running or stopped brokers, or a running cluster over the wire.

    Takes no lock, and changes nothing there. Without SOURCE the cluster is read that the options of the
    connection name, as by a consumer, but each batch byte for byte.

    Only what is new since the newest backup is read. Of a running broker the records below its high watermark
    are taken. Topics that --topic leaves out are carried over as they were. The exit code is 1 if something
    is not in the backup: damaged records, or what could not be read. If the first run has a key, everything
    in the repository is encrypted. Whoever loses the key has lost the backups. With --full all objects of the
    repository are read first, and damaged ones are stored anew.

    Examples:

    klog backup run /var/lib/kafka --to /mnt/backup
    klog backup run /disk1/kafka /disk2/kafka --to s3://backups/cluster --jobs 4
    klog backup run /var/lib/kafka --to s3://backups/cluster --every 10s --topic 'orders.*'
    klog backup run /var/lib/kafka --to s3://backups/cluster --encryption-key-file /etc/klog/backup.key
    klog backup run --bootstrap-server broker:9093 --command-config client.properties --to /mnt/backup
    """
    from klog.backup.model import RepositoryInfo
    from klog.backup.repository import open_or_create
    from klog.backup.store import open_store

    origin = _origin(sources or [], to, running, connection)
    running.patterns()  # bad options are refused before anything is made
    wanted = RepositoryInfo(secrets.token_hex(8), compression=running.compression)
    key = keys.key()
    with Interrupts() as interrupts, serving_metrics(running) as metrics:
        with metrics.noting_failure():
            repository = open_or_create(
                open_store(to, retries()),
                wanted,
                key,
                on_create=lambda: _begin(to, origin, running, is_encrypted=key is not None),
            )
        is_clean = run_all(repository, origin, running, output, metrics, interrupts)
    if not is_clean:
        raise typer.Exit(1)


def _begin(place: str, origin: Origin, running: RunningOptions, *, is_encrypted: bool) -> None:
    """Before a repository is made: a mistyped source makes none, whose key and compression would stay.

    Continuous runs wait for a source. Raises `KlogError`.
    """
    if running.every is None:
        origin.find()
    if is_encrypted:
        print_note(
            f"{place} is encrypted. Keep a copy of the key elsewhere: whoever loses it has lost the backups"
        )


def _origin(
    sources: Sequence[str], to: str, running: RunningOptions, connection: ConnectionOptions
) -> Origin:
    """The log directories, or the cluster. Raises `UsageError`."""
    from klog.backup.directories import LogDirectories
    from klog.backup.scanning import scan

    if running.full and running.every is not None:
        raise UsageError("--full and --every exclude each other", cure="make one run with --full beside")
    if sources:
        if connection.bootstrap_server not in (None, os.environ.get("KLOG_BOOTSTRAP_SERVER")):
            raise UsageError("SOURCE and --bootstrap-server exclude each other", cure="make two runs")
        _check_is_apart(to, sources)
        metadata = metadata_reader(running, connection)
        return Origin(lambda: nullcontext(LogDirectories(sources)), 1, metadata, lambda: scan(sources))
    if not connection.is_named:
        raise missing("SOURCE (or --bootstrap-server HOST:PORT)")
    if running.log_end:
        cure = "leave it out, or back up the brokers' log directories"
        raise UsageError("--log-end: over the wire no record above the high watermark can be read", cure=cure)
    return cluster_origin(running, connection)


def _check_is_apart(place: str, sources: Sequence[str]) -> None:
    """A broker does not start with other directories in its log directory. Raises `UsageError`."""
    if is_remote(place):
        return
    own = os.path.realpath(local_path(place))
    for source in sources:
        above = os.path.realpath(local_path(source))
        if own == above or own.startswith(os.path.join(above, "")):
            cure = "choose a directory elsewhere, best on another disk"
            raise UsageError(f"the repository lies in the source {source}", file=place, cure=cure)


@app.command("list")
def list_backups(repository: Place, keys: KeyOptions, output: OutputOptions) -> None:
    """List the backups of a repository, the oldest first.

    SIZE is that of the logs, STORED what the run has added to the repository. Manifests that are damaged are
    named, and the exit code is 1.

    Examples:

    klog backup list /mnt/backup
    klog backup list s3://backups/cluster -o json
    """
    from klog.backup.catalogue import read_catalogue
    from klog.commands.offline.backing.rows import backup_rows

    catalogue = read_catalogue(open_patiently(repository, keys))
    output.show(list(backup_rows(catalogue, text=output.for_people)), none=f"{repository} has no backups")
    exit_if_failed(_problems_of(catalogue))


@app.command("show")
def show_backup(
    repository: Place,
    keys: KeyOptions,
    output: OutputOptions,
    backup: str | None = argument("[ID]", "A backup. Without it all are looked at."),
) -> None:
    """Show from when to when each topic can be restored, or the partitions of one backup.

    Examples:

    klog backup show /mnt/backup
    klog backup show /mnt/backup 20261124T100000000Z-1f2e3d4c
    """
    from klog.backup.catalogue import read_catalogue
    from klog.commands.offline.backing.rows import partition_rows, problem_lines, topic_rows

    opened = open_patiently(repository, keys)
    if backup is None:
        catalogue = read_catalogue(opened)
        problems = _problems_of(catalogue)
        rows = list(topic_rows(opened, catalogue, problems.append, text=output.for_people))
        output.show(rows, none=f"{repository} has no backups")
        exit_if_failed(problems)
        return
    manifest = opened.manifest(backup)
    output.show(partition_rows(manifest, opened.partitions(manifest), text=output.for_people))
    for line in problem_lines(manifest.problems):
        print_note(line)


def _problems_of(catalogue: Catalogue) -> list[KlogError]:
    return [*catalogue.damaged.values(), *catalogue.problems]


@app.command("verify")
def verify_backups(
    repository: Place,
    keys: KeyOptions,
    output: OutputOptions,
    backup: str | None = valued("ID", "Only this backup."),
    sample: float | None = valued(
        "PERCENT",
        "Read only so many percent of the objects, chosen at random; 0 compares sizes only.",
        least=0,
        most=100,
    ),
    jobs: int = optional(1, "Read so many objects at a time.", "--jobs", "-j", least=1),
    quiet: bool = flag("Show no progress and no summary.", "--quiet", "-q"),
) -> None:
    """Check that backups can be restored: all objects are there, with the bytes that were written.

    Batches are checked against their own checksums and offsets, too. The exit code is 1 if anything is wrong.

    Examples:

    klog backup verify s3://backups/cluster --sample 5
    klog backup verify /mnt/backup --jobs 4
    """
    from klog.backup.verify import VerifyOptions, verify

    opened = open_patiently(repository, keys)
    identifiers = opened.ids() if backup is None else [opened.manifest(backup).id]
    if not identifiers:
        raise MissingInputError("has no backups", file=repository)
    share = 1.0 if sample is None else sample / 100
    with LateProgress("Verifying", quiet=quiet) as shown:
        options = VerifyOptions(share, time.time_ns(), jobs, on_total=shown.begin, on_bytes=shown.advance)
        done = verify(opened, identifiers, options)
    if not output.for_people:
        output.show(
            [{"what": str(finding.what), "backup": finding.backup} for finding in done.findings],
            fields=("what", "backup"),
        )
    else:
        for finding in done.findings:
            print_error(f"{finding.what}; backup {finding.backup} needs it")
    if output.for_people and not quiet:
        print_line(
            f"{count_of(done.backups, 'backup')}, {count_of(done.objects, 'object')}: "
            f"{count_of(done.read_objects, 'piece')} read ({human_bytes(done.read_bytes)}), "
            f"{count_of(len(done.findings), 'problem')}"
        )
    if done.findings:
        raise typer.Exit(1)


@app.command("prune")
def prune_backups(
    repository: Place,
    keys: KeyOptions,
    output: OutputOptions,
    keep_last: int | None = valued("N", "Keep the newest N backups.", least=1),
    keep_daily: int | None = valued(
        "N", "Keep the newest backup of each of the last N days that have one.", least=1
    ),
    keep_weekly: int | None = valued(
        "N", "Keep the newest backup of each of the last N weeks that have one.", least=1
    ),
    before: str | None = valued(
        "TIME", "Remove only backups before this time: ISO 8601, or a span back from now such as 30d."
    ),
    grace: str = optional("24h", "Keep all that is younger than this.", metavar="SPAN"),
    no_runs: bool = flag("No run is under way: a --grace of less than 6h is safe."),
    dry_run: DryRun = False,
    yes: bool = flag("Remove without asking.", "--yes", "-y"),
    quiet: bool = flag("Show only errors.", "--quiet", "-q"),
) -> None:
    """Remove backups that no rule keeps, and the objects that only they need.

    The newest backup is always kept, and so are those younger than the grace time, with the one before them.
    Days and weeks are in UTC.
    Objects that killed runs have left are removed when they are older than the grace time.

    Examples:

    klog backup prune /mnt/backup --keep-last 2 --keep-daily 14 --keep-weekly 8 --dry-run
    klog backup prune s3://backups/cluster --before 90d --yes
    """
    from klog.backup.prune import Rules, checked_grace, plan_prune, prune

    now_ms = time.time_ns() // 1_000_000
    before_ms = parse_time("--before", before, datetime.now(UTC))
    rules = Rules(keep_last, keep_daily, keep_weekly, before_ms)
    grace_ms = checked_grace(parse_span("--grace", grace), alone=no_runs)
    opened = open_patiently(repository, keys)
    plan = plan_prune(opened, rules, now_ms, grace_ms)
    shows = output.for_people and not quiet
    if shows:
        for identifier in plan.removed:
            print_line(f"{'would remove' if dry_run else 'removes'} backup {identifier}")
        young = f", {len(plan.young)} of them for their age" if plan.young else ""
        objects = f"{count_of(len(plan.objects), 'object')} ({human_bytes(plan.freed_bytes)})"
        print_line(
            f"{count_of(len(plan.kept), 'backup')} kept{young}; "
            f"{count_of(len(plan.removed), 'backup')} and {objects} to remove"
        )
    if plan.removes_something and not dry_run:
        agree("Remove them?", yes=yes)
        prune(opened, plan, lambda _name: None)
    if not output.for_people:
        removed: list[dict[str, object]] = [
            {"kind": "backup", "name": each, "size_bytes": None} for each in plan.removed
        ]
        removed += [
            {"kind": "object", "name": name, "size_bytes": size} for name, size in plan.objects.items()
        ]
        result = "could be removed" if dry_run else "removed"
        rows = [{**each, "result": result, "error": None} for each in removed]
        output.show(rows, fields=("kind", "name", "size_bytes", "result", "error"))


@app.command("rekey")
def rekey_backups(
    repository: Place,
    keys: KeyOptions,
    new_key_file: Path | None = valued("FILE", "A file with the new key."),
) -> None:
    """Let a new key open an encrypted repository instead of the old one. The objects stay as they are.

    Whoever has the old key and an old copy of the directory keys can still read. If the old key was stolen,
    make a new repository.

    Examples:

    klog backup rekey s3://backups/cluster --encryption-key-file old.key --new-key-file new.key
    """
    from klog.backup.repository import change_key
    from klog.backup.store import open_store

    if new_key_file is None:
        raise UsageError("--new-key-file FILE is needed")
    change_key(open_store(repository, retries()), keys.key(), key_in(new_key_file))
    print_note(f"{repository} is now opened by the key in {new_key_file} only; keep a copy of it elsewhere")
