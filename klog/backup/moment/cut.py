"""Makes the ends of all partitions consistent, so that each transaction is in all of them or in none.

A transaction is committed if `__transaction_state` decided so within its own end, or, if that topic is not in
the backup or has compacted the decision away, if any partition has its COMMIT marker before its end. Clocks
and reads of partitions differ, so the ends by time alone do not fit each other:

* If a partition has a COMMIT marker before its end, the decision comes in, too.
* If a transaction is committed, each partition is extended up to its last record there.
* If those records or that decision are not known, the transaction cannot be whole. Then the decision stays
  out, and each partition ends before the transaction's COMMIT marker.

An extension takes only what was there before the decision of a transaction that is in, so it does not go on
without end. What may be in gets smaller each time that a transaction cannot be whole. So this ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from klog.backup.moment.decisions import Decision, Decisions
from klog.backup.moment.values import AddedMarker, Cut, Gap, PartitionCut, PartitionHistory, Transaction
from klog.formats.names import TopicPartition
from klog.kernel.markers import Marker

Histories = Mapping[TopicPartition, PartitionHistory]


class ConsistentEnds:
    """Finds the ends that fit each other (`ends`), below the limits that they may not pass (`_caps`)."""

    def __init__(self, histories: Histories, decisions: Decisions) -> None:
        self._histories = histories
        self._decisions = decisions
        self.ends = {partition: each.end_offset for partition, each in histories.items()}
        self._caps = {partition: each.view_end for partition, each in histories.items()}
        self._decision_of: dict[tuple[TopicPartition, int], Decision | None] = {}
        self._complete: set[tuple[TopicPartition, TopicPartition, int]] = set()
        for partition, history in histories.items():
            for each in history.transactions:
                self._match(partition, each)
        while self._step():
            pass

    def _match(self, partition: TopicPartition, transaction: Transaction) -> None:
        decision = self._decisions.decision_of(partition, transaction)
        self._decision_of[partition, transaction.first_offset] = decision
        if decision is not None and transaction.marker is not None:
            self._complete.add((partition, decision.log, decision.offset))

    def _step(self) -> bool:
        """Look at all transactions once; whether an end has changed."""
        before = (dict(self.ends), dict(self._caps))
        self._leave_out_torn()
        committed = self._committed_by_markers()
        for partition, history in self._histories.items():
            for each in history.transactions:
                if self._log(partition, each) is None:
                    self._follow_markers(partition, each, committed)
                else:
                    self._follow_decision(partition, each)
        return before != (self.ends, self._caps)

    def _log(self, partition: TopicPartition, transaction: Transaction) -> TopicPartition | None:
        """The partition of `__transaction_state` that decides about a transaction; None if its markers do."""
        log = self._decisions.log_of(transaction.producer_id)
        if log not in self._histories:
            return None
        is_known = self._decision_of[partition, transaction.first_offset] is not None
        by_markers = transaction.is_committed and self._decisions.is_forgotten(transaction)
        return log if is_known or not by_markers else None

    def _is_in(self, decision: Decision) -> bool:
        return decision.end_offset <= self.ends.get(decision.log, 0)

    def _extend(self, partition: TopicPartition, end_offset: int) -> None:
        self.ends[partition] = max(self.ends[partition], min(end_offset, self._caps[partition]))

    def _limit(self, partition: TopicPartition, end_offset: int) -> None:
        self._caps[partition] = min(self._caps[partition], end_offset)
        self.ends[partition] = min(self.ends[partition], end_offset)

    def _follow_decision(self, partition: TopicPartition, transaction: Transaction) -> None:
        decision = self._decision_of[partition, transaction.first_offset]
        if transaction.is_committed and transaction.ends_before(self.ends[partition]):
            if decision is None or decision.end_offset > self._caps[decision.log]:
                self._limit(partition, transaction.marker_offset or 0)
            else:
                self._extend(decision.log, decision.end_offset)
        elif decision is not None and decision.is_commit and self._is_in(decision):
            if transaction.end_offset > self._caps[partition]:
                self._limit(decision.log, decision.offset)
            elif transaction.end_offset > transaction.first_offset:
                self._extend(partition, transaction.end_offset)

    def _leave_out_torn(self) -> None:
        """Limit `__transaction_state` to what it decided when all partitions were known."""
        for decision in self._decisions.all():
            if decision.is_commit and self._is_in(decision) and not self._is_whole(decision):
                self._limit(decision.log, decision.offset)

    def _is_whole(self, decision: Decision) -> bool:
        """Whether each partition is known up to the decision. What is lost in a gap is lost with the gap."""
        return all(
            max(self._histories[partition].complete_ms, self._histories[partition].decisions_lost_until_ms)
            >= decision.decided_ms
            or (partition, decision.log, decision.offset) in self._complete
            for partition in decision.partitions or ()
            if partition in self._histories
        )

    def open_since_ms(self) -> int | None:
        """When the first transaction began that is open at the end of its partition, and about which
        `__transaction_state` says nothing; None if there is none.
        """
        return min(
            (
                each.first_ms
                for partition, history in self._histories.items()
                for each in history.transactions
                if each.is_open_at(self.ends[partition]) and self._log(partition, each) is None
            ),
            default=None,
        )

    # -- without __transaction_state -------------------------------------------------------------------------

    def _committed_by_markers(self) -> dict[int, int]:
        """The time of each producer's last COMMIT marker that is in a partition's log, by its id."""
        found: dict[int, int] = {}
        for partition, history in self._histories.items():
            for each in history.transactions:
                if each.marker and each.is_committed and each.ends_before(self.ends[partition]):
                    found[each.producer_id] = max(found.get(each.producer_id, -1), each.marker.timestamp)
        return found

    def _is_committed_elsewhere(self, transaction: Transaction, committed: Mapping[int, int]) -> bool:
        if transaction.gap is not None:
            return self._next_is_commit(transaction)
        at_ms = committed.get(transaction.producer_id, -1)
        if transaction.marker is not None and transaction.marker.aborted:
            return False
        return at_ms > transaction.previous_ms and at_ms >= transaction.first_ms

    def _next_is_commit(self, transaction: Transaction) -> bool:
        """Whether the first known marker of the producer after the transaction began is a COMMIT."""
        markers = [
            each.marker
            for partition, history in self._histories.items()
            for each in history.transactions
            if each.producer_id == transaction.producer_id
            and each.marker is not None
            and each.marker.timestamp >= transaction.first_ms
            and each.ends_before(self.ends[partition])
        ]
        return bool(markers) and not min(markers, key=lambda marker: marker.timestamp).aborted

    def _follow_markers(
        self, partition: TopicPartition, transaction: Transaction, committed: Mapping[int, int]
    ) -> None:
        if not transaction.ends_before(self.ends[partition]) and self._is_committed_elsewhere(
            transaction, committed
        ):
            self._extend(partition, transaction.end_offset)

    # -- the result ------------------------------------------------------------------------------------------

    def cut(self, moment_ms: int, fenced: Mapping[int, int]) -> Cut:
        """The ends with the markers that end what is open there. No log ends before it begins.

        `moment_ms` is the time of markers for what was not decided; the producers in `fenced` get the epoch
        there in those.
        """
        committed = self._committed_by_markers()
        found = {}
        for partition, history in self._histories.items():
            end = max(self.ends[partition], history.start_offset)
            rule_end = max(history.end_offset, history.start_offset)
            added: list[AddedMarker] = []
            gaps: dict[Gap, tuple[AddedMarker, ...]] = {}
            for each in history.transactions:
                if not each.is_open_at(end):
                    continue
                marker = self._marker(partition, each, committed, moment_ms, fenced)
                if each.gap is None or end <= each.gap.first_offset:
                    added.append(marker)
                else:
                    gaps[each.gap] = (*gaps.get(each.gap, ()), marker)
            found[partition] = PartitionCut(end, rule_end, history.basis, tuple(added), gaps)
        return found

    def _marker(
        self,
        partition: TopicPartition,
        transaction: Transaction,
        committed: Mapping[int, int],
        moment_ms: int,
        fenced: Mapping[int, int],
    ) -> AddedMarker:
        producer_id, marker = transaction.producer_id, transaction.marker
        log = self._log(partition, transaction)
        decision = self._decision_of[partition, transaction.first_offset]
        if log is None:
            is_commit = self._is_committed_elsewhere(transaction, committed)
            is_decided = is_commit
        else:
            is_decided = decision is not None and self._is_in(decision)
            is_commit = is_decided and decision is not None and decision.is_commit
        if marker is None or not is_decided or marker.aborted is is_commit:
            known = self._histories[partition].coordinator_epochs.get(producer_id, 0)
            epoch = known if log is None else max(known, self._histories[log].leader_epoch)
            at_ms = decision.completed_ms if is_decided and decision is not None else moment_ms
            marker = Marker(not is_commit, epoch, at_ms)
        producer_epoch = transaction.epoch if is_decided else fenced.get(producer_id, transaction.epoch)
        return AddedMarker(producer_id, producer_epoch, marker, transaction.first_offset)
