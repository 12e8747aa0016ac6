"""`klog transactions`: lists and describes transactions of any Kafka, finds those that hang, aborts them.

Subcommands and options have the names of `kafka-transactions`, and its command lines work too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from klog.commands.kafka_tools.command_lines import tool_app
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_note
from klog.commands.shared.option_sets import argument, flag, optional, valued
from klog.commands.shared.output import WatchOptions
from klog.commands.shared.tables import Fields, row_of
from klog.commands.shared.terminal import agree
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError
from klog.formats.wording import first_of

if TYPE_CHECKING:
    from klog.admin.requests.transaction_admin import ActiveProducer, DescribedTransaction, ListedTransaction
    from klog.admin.transactions import OpenTransaction
    from klog.client.cluster import Cluster
    from klog.formats.names import TopicPartition

app = tool_app(
    "transactions",
    "List and describe transactions of any Kafka, find those that hang, and abort them.",
    {},
    (
        "klog transactions list",
        "klog transactions describe loader",
        "klog transactions find-hanging --broker-id 0",
        "klog transactions abort orders:0:71",
    ),
)

_MS_IN_MINUTE: Final = 60_000
_NONE: Final = -1
_NAMED_PARTITIONS: Final = 5

_TOPIC: Final[str | None] = valued("TOPIC", "The topic.")
_PARTITION: Final[int | None] = valued("N", "The partition.", least=0)
_BROKER_ID: Final[int | None] = valued("N", "Ask this broker, also as a follower.", least=0)


def _started(start: int) -> int | None:
    return None if start == _NONE else start


@app.command("list")
def list_transactions(
    connection: ConnectionOptions,
    output: WatchOptions,
    duration_filter: int = optional(
        _NONE,
        "Only transactions that began longer ago than this.",
        metavar="MS",
        show_default=False,
    ),
) -> None:
    """Show all transactional ids with their coordinators, producer ids and states.

    Examples:

        klog transactions list
        klog transactions list --duration-filter 60000 --json
    """
    from klog.admin.requests.transaction_admin import list_transactions as listed

    def show(cluster: Cluster) -> None:
        found = listed(cluster, longer_than_ms=duration_filter)
        output.show(
            [row_of(_LISTED, each) for each in found],
            fields=_LISTED,
            none="there are no such transactions" if duration_filter > 0 else "there are no transactions",
        )

    output.over(connection, show)


_LISTED: Final[Fields[ListedTransaction]] = {
    "transactionalId": lambda found: found.transactional_id,
    "coordinator": lambda found: found.coordinator_id,
    "producerId": lambda found: found.producer_id,
    "transactionState": lambda found: found.state,
}


@app.command("describe")
def describe_transaction(
    connection: ConnectionOptions,
    output: WatchOptions,
    name: str | None = argument("ID", "The transactional id."),
    transactional_id: str | None = valued("ID", "The same, as for kafka-transactions."),
) -> None:
    """Show the state of a transactional id, its epoch, and the partitions of its open transaction.

    Examples:

        klog transactions describe loader
    """
    from klog.admin import connect
    from klog.admin.transactions import describe

    wanted = transactional_id if name is None else name
    if wanted is None:
        raise missing("ID")

    def show(cluster: Cluster) -> None:
        output.show([_described_row(describe(cluster, wanted), connect.SYSTEM_CLOCK.wall_ms())])

    output.over(connection, show)


def _described_row(found: DescribedTransaction, now_ms: int) -> dict[str, object]:
    return {
        "coordinatorId": found.coordinator_id,
        "transactionalId": found.transactional_id,
        "producerId": found.producer.producer_id,
        "producerEpoch": found.producer.epoch,
        "transactionState": found.state,
        "transactionTimeoutMs": found.timeout_ms,
        "currentTransactionStartTimeMs": _started(found.start_ms),
        "transactionDurationMs": None if found.start_ms == _NONE else now_ms - found.start_ms,
        "topicPartitions": [str(partition) for partition in found.partitions],
    }


def _partition(topic: str | None, partition: int | None) -> TopicPartition:
    from klog.formats.names import TopicPartition

    if topic is None or partition is None:
        raise missing("--topic TOPIC and --partition N")
    return TopicPartition(topic, partition)


def _begin(text: str) -> tuple[TopicPartition, int]:
    from klog.formats.names import TopicPartition

    topic, _, rest = text.partition(":")
    partition, _, offset = rest.partition(":")
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise UsageError(
            f"{text!r} is not TOPIC:PARTITION:OFFSET", cure="`klog transactions find-hanging` shows them"
        )
    return TopicPartition(topic, int(partition)), int(offset)


_PRODUCER: Final[Fields[ActiveProducer]] = {
    "producerId": lambda found: found.producer.producer_id,
    "producerEpoch": lambda found: found.producer.epoch,
    "latestCoordinatorEpoch": lambda found: found.coordinator_epoch,
    "lastSequence": lambda found: found.last_sequence,
    "lastTimestamp": lambda found: found.last_timestamp_ms,
    "currentTransactionStartOffset": lambda found: _started(found.transaction_start),
}


@app.command("describe-producers")
def describe_producers(
    connection: ConnectionOptions,
    output: WatchOptions,
    topic: str | None = _TOPIC,
    partition: int | None = _PARTITION,
    broker_id: int | None = _BROKER_ID,
) -> None:
    """Show the producers that a partition remembers, and where their open transactions begin.

    Examples:

        klog transactions describe-producers --topic orders --partition 0
    """
    from klog.admin.transactions import producers

    wanted = _partition(topic, partition)

    def show(cluster: Cluster) -> None:
        output.show(
            [row_of(_PRODUCER, each) for each in producers(cluster, wanted, broker_id)],
            fields=_PRODUCER,
            none=f"{wanted} knows no producers",
        )

    output.over(connection, show)


@app.command("find-hanging")
def find_hanging(
    connection: ConnectionOptions,
    output: WatchOptions,
    topic: str | None = _TOPIC,
    partition: int | None = _PARTITION,
    broker_id: int | None = _BROKER_ID,
    max_transaction_timeout: int = optional(
        15,
        "transaction.max.timeout.ms of the brokers: younger transactions do not hang.",
        metavar="MINUTES",
        least=0,
    ),
) -> None:
    """Show transactions that partitions have open, but that no coordinator will end.

    It looks at all partitions, or at those of --topic, or at those with a replica on --broker-id.

    Examples:

        klog transactions find-hanging
        klog transactions find-hanging --broker-id 0
        klog transactions find-hanging --topic orders --max-transaction-timeout 60
    """
    from klog.admin import connect, transactions

    if partition is not None and topic is None:
        raise missing("--topic TOPIC")
    where = transactions.WherePartitions(topic, partition, broker_id)

    def show(cluster: Cluster) -> None:
        found = transactions.find_hanging(
            cluster,
            where,
            max_transaction_timeout * _MS_IN_MINUTE,
            connect.SYSTEM_CLOCK.wall_ms(),
            on_leaderless=_note_leaderless,
        )
        output.show([row_of(_HANGING, each) for each in found], fields=_HANGING, none="no transaction hangs")

    output.over(connection, show)


def _note_leaderless(partitions: Sequence[TopicPartition]) -> None:
    named = first_of(partitions, _NAMED_PARTITIONS)
    print_note(f"not looked at, because they have no leader: {named}")


def _minutes_since(moment_ms: int) -> int:
    from klog.admin.connect import SYSTEM_CLOCK

    return (SYSTEM_CLOCK.wall_ms() - moment_ms) // _MS_IN_MINUTE


_HANGING: Final[Fields[OpenTransaction]] = {
    "topic": lambda found: found.partition.topic,
    "partition": lambda found: found.partition.partition,
    "producerId": lambda found: found.producer.producer.producer_id,
    "producerEpoch": lambda found: found.producer.producer.epoch,
    "coordinatorEpoch": lambda found: found.producer.coordinator_epoch,
    "startOffset": lambda found: found.producer.transaction_start,
    "lastTimestamp": lambda found: found.producer.last_timestamp_ms,
    "duration(min)": lambda found: _minutes_since(found.producer.last_timestamp_ms),
}


@app.command("abort")
def abort_transaction(
    connection: ConnectionOptions,
    change: ChangeOptions,
    begin: str | None = argument(
        "[TOPIC:PARTITION:OFFSET]", "The partition, and the offset at which the transaction begins."
    ),
    topic: str | None = _TOPIC,
    partition: int | None = _PARTITION,
    start_offset: int | None = valued("N", "Where the transaction begins (brokers since 3.0).", least=0),
    producer_id: int | None = valued("N", "For older brokers.", least=0),
    producer_epoch: int | None = valued("N", "For older brokers.", least=0),
    coordinator_epoch: int | None = valued("N", "For older brokers."),
    yes: bool = flag("Abort without asking.", "--yes", "-y"),
) -> None:
    """Abort a hanging transaction in one partition. Asks on a terminal; elsewhere it needs --yes.

    The coordinator does not learn of it: a producer that lives could still commit in other partitions.

    Examples:

        klog transactions abort orders:0:71
        klog transactions abort --topic orders --partition 0 --start-offset 71
    """
    from klog.admin import transactions
    from klog.client.producer_id import ProducerId

    if begin is None:
        wanted = _partition(topic, partition)
    else:
        if (topic, partition, start_offset) != (None, None, None):
            raise UsageError("TOPIC:PARTITION:OFFSET and options for the same exclude each other")
        wanted, start_offset = _begin(begin)
    if start_offset is None and (producer_id is None or producer_epoch is None or coordinator_epoch is None):
        raise missing("--start-offset N (or --producer-id, --producer-epoch and --coordinator-epoch)")
    agree(f"Abort the transaction in {wanted}?", yes=yes or change.dry_run)
    with connection.cluster() as cluster:
        if start_offset is not None:
            find = transactions.open_at if change.dry_run else transactions.abort
            producer = find(cluster, wanted, start_offset).producer
        else:
            producer = ProducerId(producer_id or 0, producer_epoch or 0)
            if not change.dry_run:
                transactions.abort_of(cluster, wanted, producer, coordinator_epoch or 0)
    state = "would be aborted" if change.dry_run else "was aborted"
    done = f"the transaction of producer {producer.producer_id} {state}"
    fields = {"topic": wanted.topic, "partition": wanted.partition, "producerId": producer.producer_id}
    change.conclude([Outcome(str(wanted), fields, done)])
