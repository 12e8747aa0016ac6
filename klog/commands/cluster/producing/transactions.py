"""The options with which `klog produce` writes in transactions, and when it commits.

Rules: `transactional.id` and `transaction.timeout.ms` of Kafka's producer, `--transaction-duration-ms` of
kafka-producer-perf-test. What was not committed is aborted: after an error, Ctrl-C and SIGTERM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from klog.commands.shared.interrupts import Interrupts
from klog.commands.shared.messages import print_note
from klog.commands.shared.option_sets import option_set, valued
from klog.commands.shared.terminal import count_of
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.client.producer import Producer
    from klog.client.transactions import Transaction

_TIMEOUT_MS: Final = 60_000


@option_set("Transactions")
class TransactionOptions:
    """Whether to write in transactions, and how large they are."""

    transactional_id: str | None = valued(
        "ID",
        "Write all records in one transaction of this id, and commit it at the end.",
        "--transactional-id",
        "-X",
    )
    transaction_records: int | None = valued(
        "N", "Commit after N records, and begin the next transaction.", least=1
    )
    transaction_duration_ms: int | None = valued(
        "MS", "Commit a transaction of this age, and whenever the input has to be waited for.", least=1
    )

    def settings(self, properties: Mapping[str, str]) -> tuple[str, int] | None:
        """The transactional id and the timeout in ms, None for no transactions. Raises UsageError."""
        if self.transactional_id == "":
            raise UsageError("--transactional-id is empty")
        transactional_id = self.transactional_id or properties.get("transactional.id")
        if not transactional_id:
            for name, value in (
                ("--transaction-records", self.transaction_records),
                ("--transaction-duration-ms", self.transaction_duration_ms),
            ):
                if value is not None:
                    raise UsageError(f"{name} is for transactions", cure="--transactional-id ID")
            return None
        from klog.admin.settings import milliseconds

        return transactional_id, milliseconds(properties, "transaction.timeout.ms", _TIMEOUT_MS)


class Commits:
    """Commits what a producer writes, if it writes in transactions: at the limits, and at the end."""

    def __init__(
        self,
        cluster: Cluster,
        producer: Producer,
        transaction: Transaction | None,
        limits: TransactionOptions,
    ) -> None:
        self._cluster = cluster
        self._producer = producer
        self._transaction = transaction
        self._limits = limits
        self._begun_s = 0.0
        self._open = 0
        self.transactions = 0
        self.records = 0

    def sent(self) -> None:
        """The producer has taken another record."""
        if self._transaction is None:
            return
        now_s = self._cluster.clock.monotonic_s()
        if not self._open:
            self._begun_s = now_s
        self._open += 1
        duration_ms = self._limits.transaction_duration_ms
        old = duration_ms is not None and (now_s - self._begun_s) * 1000 >= duration_ms
        if old or self._open == self._limits.transaction_records:
            self.commit()

    def waits(self) -> None:
        """The next record may come late."""
        if self._transaction is not None and self._limits.transaction_duration_ms is not None:
            self.commit()

    def commit(self) -> None:
        """Write everything, and commit it. Raises ClientError if a record was refused, ChannelError."""
        from klog.client.errors import ClientError

        self._producer.flush()
        if self._transaction is None or not self._open:
            return
        if self._producer.failures:
            raise ClientError(
                f"{count_of(self._producer.failed_count, 'record')} of the transaction were refused"
            )
        self._transaction.end(committed=True)
        self.transactions += 1
        self.records += self._open
        self._open = 0

    @contextmanager
    def aborting(self) -> Iterator[None]:
        """Abort the open transaction if the block fails or is interrupted, and say so."""
        if self._transaction is None:
            yield
            return
        with Interrupts():
            self._transaction.open()
            try:
                yield
            except BaseException:
                self._abort(self._transaction)
                raise

    def _abort(self, transaction: Transaction) -> None:
        if not transaction.partitions:
            return
        self._cluster.close()  # an answer may still be to come on a connection; it opens again
        count = count_of(self._open, "record")
        try:
            transaction.end(committed=False)
        except KlogError as error:
            print_note(f"the transaction with {count} could not be aborted, it will time out: {error}")
        else:
            print_note(f"the transaction with {count} was aborted")
