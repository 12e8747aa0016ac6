"""`klog reassign execute`: moves partitions as a file says, and waits until they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.cluster.reassigning.app import app
from klog.commands.cluster.reassigning.options import AssignmentFile, LogDirTimeout
from klog.commands.kafka_tools.command_lines import AsKafka
from klog.commands.shared.changing import ChangeOptions
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.interrupts import Interrupts
from klog.commands.shared.messages import print_error, print_note, print_report
from klog.commands.shared.option_sets import flag, option_set, optional, valued
from klog.commands.shared.terminal import agree, count_of
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.admin.reassign.execution import Execution, Limits
    from klog.admin.reassign.moves import Move
    from klog.admin.reassign.preparing import Prepared
    from klog.client.cluster import Cluster
    from klog.formats.names import TopicPartition

_NONE: Final = -1


@option_set("Throttles")
class ThrottleOptions:
    """How much to copy in a second."""

    throttle: int = optional(
        _NONE,
        "Copy at most so many bytes a second into each broker, and out of each.",
        metavar="BYTES",
        show_default=False,
    )
    replica_alter_log_dirs_throttle: int = optional(
        _NONE,
        "Copy at most so many bytes a second between the log directories of each broker.",
        metavar="BYTES",
        show_default=False,
    )

    def limits(self) -> Limits:
        """The limits; a negative number is none, as for Kafka's tool."""
        from klog.admin.reassign.execution import Limits

        between = [
            None if rate < 0 else rate for rate in (self.throttle, self.replica_alter_log_dirs_throttle)
        ]
        return Limits(*between)


@option_set("Batches")
class BatchOptions:
    """How much to move at the same time."""

    batch: int | None = valued(
        "N", "Move so many partitions at a time; the next ones begin when all of these are done.", least=1
    )
    max_bytes: int | None = valued(
        "BYTES", "Copy at most so many bytes in a batch, unless one partition alone has more.", least=1
    )


@app.command("execute")
def execute_reassignment(
    file: AssignmentFile,
    connection: ConnectionOptions,
    change: ChangeOptions,
    throttling: ThrottleOptions,
    batching: BatchOptions,
    additional: bool = flag("Begin also if other reassignments are running."),
    log_dir_timeout_ms: LogDirTimeout = 10_000,
    yes: bool = flag("Begin without asking.", "--yes", "-y"),
    as_kafka: AsKafka = False,
) -> None:
    """Move partitions to the brokers and log directories that the file says, and wait until they are there.

    Shows first what will move. Asks on a terminal; elsewhere it needs --yes. The assignment to go back to is
    printed on stdout; with -o json, rows of what was done and what was before. At the end, topics and brokers
    get back the throttles that they had.

    After Ctrl-C what was begun goes on, at the same throttle. The same command continues; `verify` gives the
    throttles back when the moves are done, and `cancel` ends them.

    `klog reassign --execute` does and prints what kafka-reassign-partitions does, and does not wait.

    Examples:

        klog reassign execute plan.json --dry-run
        klog reassign execute plan.json --throttle 50000000 > back.json
        klog reassign execute plan.json --yes --batch 20 --throttle 50000000
    """
    from klog.admin.reassign.json_files import format_assignments
    from klog.admin.reassign.preparing import prepare
    from klog.commands.cluster.reassigning.movement_view import show_movement
    from klog.commands.kafka_tools import reassign_partitions

    targets, limits = file.read(as_kafka=as_kafka), throttling.limits()
    if not as_kafka and 0 in (limits.between_brokers, limits.between_log_dirs):
        raise UsageError("a throttle of 0 would stop every copy", cure="without the option there is no limit")
    if not targets:
        return
    with connection.cluster() as cluster:
        if as_kafka and batching == BatchOptions() and not change.dry_run:
            reassign_partitions.execute(
                cluster, targets, limits, additional=additional, log_dir_timeout_ms=log_dir_timeout_ms
            )
            return
        prepared = prepare(cluster, targets, additional=additional)
        for broker, error in prepared.failures.items():
            print_note(f"sizes of replicas on broker {broker} are not known: {error}")
        moves = prepared.pending
        done = len(prepared.moves) - len(moves)
        if done:
            print_report(f"{count_of(done, 'partition')} already as wanted")
        if moves:
            show_movement(cluster, moves, limits, all_of_them=change.dry_run)
        if change.dry_run:
            _show_rows(change, prepared, {move.partition: "would be moved" for move in moves})
            return
        if moves:
            agree(f"Move {count_of(len(moves), 'partition')}?", yes=yes)
        if moves and change.for_people:
            typer.echo(format_assignments(prepared.former))
        became = {move.partition: "not moved" for move in moves}
        failure = None
        try:
            _execute(cluster, prepared, limits, batching, log_dir_timeout_ms, became)
        except KlogError as error:
            failure = error
            raise
        finally:
            _show_rows(change, prepared, became, failure)


def _show_rows(
    change: ChangeOptions,
    prepared: Prepared,
    became: Mapping[TopicPartition, str],
    failure: KlogError | None = None,
) -> None:
    """Tell programs what became of each partition of the file, and where it was before."""
    if change.for_people:
        return
    change.show(
        [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "replicas": list(move.target.replicas),
                "logDirs": list(move.target.log_dirs),
                "formerReplicas": list(former.replicas),
                "formerLogDirs": list(former.log_dirs),
                "result": (result := became.get(move.partition, "already there")),
                "error": str(failure) if failure is not None and result == "not moved" else None,
            }
            for move, former in zip(prepared.moves, prepared.former, strict=True)
        ]
    )


def _execute(
    cluster: Cluster,
    prepared: Prepared,
    limits: Limits,
    batching: BatchOptions,
    timeout_ms: int,
    became: dict[TopicPartition, str],
) -> None:
    """Move what is not where it is to be; `became` says "moved" for each partition that is there."""
    from klog.admin.reassign.execution import Execution
    from klog.admin.reassign.moves import batches_of
    from klog.client.errors import ClientError
    from klog.commands.cluster.reassigning.progress_view import ProgressLines

    lines, moves, everything = ProgressLines(), prepared.pending, prepared.moves
    execution = Execution(cluster, limits, log_dir_timeout_ms=timeout_ms, on_progress=lines.show)
    batches = list(batches_of(moves, batching.batch, batching.max_bytes))
    with Interrupts() as interrupts, _telling_what_goes_on(cluster, execution, everything, lines.clear):
        if moves:
            with interrupts.shield():
                _tell_former_rates(execution.limit(moves))
        for number, batch in enumerate(batches, 1):
            with interrupts.shield():
                execution.start(batch)
            of_all = f"batch {number} of {len(batches)}: " if len(batches) > 1 else ""
            print_report(f"{of_all}{count_of(len(batch), 'partition')} moving")
            execution.wait(batch)
            lines.clear()
            with interrupts.shield():
                execution.finish_batch(batch)
            missed = execution.not_reached(batch)
            became |= {move.partition: "moved" for move in batch if move.partition not in missed}
            if missed:
                raise ClientError(
                    f"{', '.join(map(str, missed))}: the move was ended by somebody else",
                    cure="the same command begins it again",
                )
        with interrupts.shield():
            _finish(execution, everything)  # an earlier run may have left throttles
    print_report("all partitions are where they are to be")


def _finish(execution: Execution, moves: Sequence[Move]) -> None:
    done = execution.finish(moves)
    if done.are_others_running:
        print_note(
            "other reassignments are running, so brokers keep their rates; `verify` gives them back later"
        )
    if done.restored or done.released:
        print_report("throttles are as they were before")
    for broker, error in done.failures.items():
        print_note(f"throttles of broker {broker} were not looked at: {error}")


def _tell_former_rates(before: dict[int, dict[str, int]]) -> None:
    for broker, rates in before.items():
        for name, value in rates.items():
            print_report(f"broker {broker} had {name}={value}; it gets it back")


@contextmanager
def _telling_what_goes_on(
    cluster: Cluster, execution: Execution, moves: Sequence[Move], clear: Callable[[], None]
) -> Iterator[None]:
    """If the block ends early, say what goes on in the cluster, and how to continue."""
    try:
        yield
    except BaseException:
        clear()
        _tell_what_goes_on(cluster, execution, moves)
        raise


def _tell_what_goes_on(cluster: Cluster, execution: Execution, moves: Sequence[Move]) -> None:
    from klog.admin.reassign.progress import Meter

    how = (
        "the same command continues; `klog reassign verify` gives the throttles back, `cancel` ends the moves"
    )
    try:
        progress = Meter(cluster, [move.partition for move in moves]).measure()
        if progress.is_done:
            _finish(execution, moves)
            print_note("nothing is moving; the same command continues")
            return
        moving = {each.partition for each in progress.running} | {c.key.partition for c in progress.copies}
        print_note(f"{count_of(len(moving), 'partition')} still moving in the cluster; {how}")
    except KlogError as error:
        print_error(error)
        print_note(f"moves that were begun go on in the cluster; {how}")
