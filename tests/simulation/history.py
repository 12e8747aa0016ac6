"""What must hold, checked after every step: a model of each partition's committed records.

A record is committed when the high watermark of a leader has passed it. From then on every leader has it, at
its offset, and readers may have seen it. Two events change that, as in Kafka: an unclean election, after
which the log of the new leader is the truth; and the loss of what was not flushed on the disks of all members
of the ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field

from klog.formats.constants import NO_LEADER
from klog.metadata.values import LeaderAndIsr
from klog.replication.partition import Partition
from klog.replication.partition_state import PartitionState
from tests.simulation.log_content import LogContent, RecordId, key_of

NO_EPOCH = -1

IsCommitted = Callable[[int, int], bool | None]
"""Whether a client's record counts, in a partition that has lost records so often: it is not in a
transaction, or in one that commits; None: unknown."""


@dataclass(slots=True)
class Committed:
    """One partition of one topic id: the committed records from `start` on, and who wrote in which epoch.

    Leaders of epochs below `since_epoch` write what is lost; the first leader of that epoch or a later one
    says what is left (`is_rebased`).
    """

    topic_id: str
    name: str
    start: int = 0
    records: list[RecordId] = field(default_factory=list)
    writers: dict[int, int] = field(default_factory=dict)
    since_epoch: int = 0
    is_rebased: bool = True
    acknowledged: dict[int, int] = field(default_factory=dict)
    # How often committed records may have been lost, by Kafka's rules.
    losses: int = 0
    # What was committed when the leader of an epoch was first seen: it has all of that.
    committed_before: dict[int, int] = field(default_factory=dict)
    # Where DeleteRecords may have moved the log start offset.
    deleted_to: int = 0
    # The only member of the ISR lost its unflushed records and leads on in this epoch, because no controller
    # noticed that it was away. Followers cannot know then that their records of this epoch differ, as in
    # Kafka: it truncates where epochs differ. What is written in later epochs is compared again.
    excused_epoch: int = NO_EPOCH
    # The last excused epoch before, and where it ends in the log of the leader. Below that, replicas may
    # differ for good, also in what a later leader commits. Such records are None here.
    last_excused: int = NO_EPOCH
    known_from: int = 0
    state: LeaderAndIsr | None = None
    # Brokers that have lost unflushed records and have not yet been told that they are out of the ISR.
    lossy: set[int] = field(default_factory=set)
    # Brokers that have lost unflushed records outside of the ISR, until they have all that is committed. A
    # leader that saw one of them caught up may have proposed it before: the controller takes it all the same.
    behind: set[int] = field(default_factory=set)
    # Whether records are deleted by retention.
    has_retention: bool = False
    is_committed: IsCommitted = lambda _record_id, _losses: True
    # The offsets of the records of each key, in their order.
    _of_key: dict[object, list[int]] = field(default_factory=dict)
    # Offsets whose key had a later record that was committed and is lost: a replica may have been cleaned
    # before that.
    _replaced: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def is_excused(self) -> bool:
        return self.excused_epoch != NO_EPOCH

    def begin_again(self, offset: int) -> None:
        """A leader of a later epoch begins at this offset; what is below it is not compared any more."""
        self.last_excused, self.excused_epoch = self.excused_epoch, NO_EPOCH
        self.start, self.records = offset, []
        self._of_key.clear()
        self._replaced.clear()
        self.acknowledged.clear()

    def commit(self, records: Iterable[RecordId]) -> None:
        """These records are committed, too."""
        for each in records:
            record_id = each if self.end >= self.known_from else None
            key = key_of(record_id)
            if key is not None:
                self._of_key.setdefault(key, []).append(self.end)
            self.records.append(record_id)

    @property
    def was_unclean(self) -> bool:
        return self.losses > 0

    def forget_from(self, offset: int) -> None:
        """What was committed from this offset on is lost, by Kafka's rules."""
        del self.records[max(offset - self.start, 0) :]
        self.start = min(self.start, offset)
        for offsets in self._of_key.values():
            kept = [each for each in offsets if each < offset]
            if len(kept) < len(offsets):
                self._replaced.update(kept)
            offsets[:] = kept
        for each in [each for each in self.acknowledged if each >= offset]:
            del self.acknowledged[each]

    def lost_before(self, epoch: int) -> None:
        """Committed records may be lost at the election of this leader epoch, by Kafka's rules."""
        self.losses += 1
        self.since_epoch = max(self.since_epoch, epoch)
        self.is_rebased = False

    def agree(self, content: LogContent, log_start: int, up_to: int, who: str) -> None:
        """A log has all committed records from its log start offset up to an offset.

        Below its log start offset a replica may have records or not: the segments that DeleteRecords has
        left behind are removed at any time, on each replica for itself, and no reader gets to them.
        """
        start, end = max(log_start, content.start, self.start), min(up_to, self.end)
        if start >= end:
            return
        assert content.end >= end, (
            f"{who} has only the records below {content.end} of {self.name}: those below {end} are committed"
        )
        found, expected = content.between(start, end), self.records[start - self.start : end - self.start]
        if found == expected:
            return
        judged = content.judged
        for offset, (one, other) in enumerate(zip(found, expected, strict=True), start):
            if one == other or (one is None and offset in judged):
                continue
            if one is None and other is not None:
                judged.add(offset)
                assert self.may_lack(offset, other), (
                    f"{who} lacks the record at {offset} of {self.name}, which cleaning has to keep"
                )
            assert one == other or None in (one, other), (
                f"{who} has another record at {offset} of {self.name} than is committed"
            )

    def may_lack(self, offset: int, record_id: RecordId) -> bool:
        """Whether cleaning may leave out a record: it is aborted, or its key has a later one that counts."""
        if isinstance(record_id, int) and record_id >= 0 and not self.is_committed(record_id, self.losses):
            return True
        key = key_of(record_id)
        if key is None:
            return isinstance(record_id, tuple)
        if offset in self._replaced:
            return True
        return any(self._counts(each) for each in self._of_key.get(key, ()) if each > offset)

    def _counts(self, offset: int) -> bool:
        record_id = self.records[offset - self.start] if offset >= self.start else None
        return not isinstance(record_id, int) or self.is_committed(record_id, self.losses) is not False


@dataclass(slots=True)
class Seen:
    """What a broker's replica was like at the last check."""

    partition: Partition
    end: int = -1
    high_watermark: int = -1
    start: int = -1
    epoch: int = -1
    is_leader: bool = False
    state: PartitionState | None = None
    stable: int = -1
    content: LogContent = field(default_factory=LogContent)


class History:
    """The committed records of all partitions by (topic id, partition), and the checks of replicas."""

    def __init__(self, is_committed: IsCommitted, has_retention: Callable[[str], bool]) -> None:
        """`has_retention` says whether records of a topic are deleted by their size or age."""
        self.partitions: dict[tuple[str, int], Committed] = {}
        self._is_committed = is_committed
        self._has_retention = has_retention

    def of(self, topic_id: str, partition: int, name: str) -> Committed:
        key = (topic_id, partition)
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = Committed(
                topic_id,
                f"{name}-{partition}",
                has_retention=self._has_retention(name),
                is_committed=self._is_committed,
            )
        return found

    def check(self, broker_id: int, partition: Partition, seen: Seen) -> Committed | None:
        """Check a replica after a step of its broker; None if nothing has changed."""
        log, state = partition.log, partition.state
        if log.closed:
            return None
        topic, number = partition.topic_partition
        model = self.of(str(log.topic_id), number, topic)
        if model.is_excused and not (state.is_leader and state.leader_epoch > model.excused_epoch):
            return None
        who = f"broker {broker_id} in epoch {state.leader_epoch}"
        is_new_epoch = seen.epoch != state.leader_epoch
        content = seen.content
        content.update(log)
        start, high, end = log.log_start_offset, log.high_watermark, log.log_end_offset
        if model.is_excused:
            model.begin_again(high)
        if end >= model.end:
            model.behind.discard(broker_id)
        if not model.losses and not model.has_retention:
            assert start <= model.deleted_to, (
                f"{who}: nobody has deleted records of {model.name} up to {start}"
            )
        stable = log.last_stable_offset
        assert start <= stable <= high <= end, (
            f"{who}: {start} <= {stable} <= {high} <= {end} does not hold for {model.name}"
        )
        if state.is_leader and state.leader_epoch >= model.since_epoch:
            if model.last_excused != NO_EPOCH:
                model.known_from = log.epochs.end_of(model.last_excused, end).end_offset
            if not is_new_epoch and seen.is_leader:
                assert high >= seen.high_watermark, (
                    f"{who}: the high watermark of {model.name} fell to {high}"
                )
                assert end >= seen.end, f"{who}: the leader's log of {model.name} was cut to {end}"
                assert stable >= seen.stable, (
                    f"{who}: the last stable offset of {model.name} fell from {seen.stable} to {stable}"
                )
            self._check_leader(model, broker_id, content, (start, high), state.leader_epoch, who)
        elif not state.is_leader and not model.was_unclean:
            model.agree(content, start, high, who)
        seen.end, seen.high_watermark, seen.start, seen.stable = end, high, start, stable
        seen.epoch, seen.is_leader, seen.state = state.leader_epoch, state.is_leader, state
        return model

    def _check_leader(
        self,
        model: Committed,
        broker_id: int,
        content: LogContent,
        offsets: tuple[int, int],
        epoch: int,
        who: str,
    ) -> None:
        start, high = offsets
        if not model.is_rebased:
            model.is_rebased = True
            model.excused_epoch = epoch if epoch in model.writers else NO_EPOCH
            model.lossy.discard(broker_id)
            model.forget_from(self._end_of_same(model, content))
        # A leader that was replaced and does not know it yet has what was committed before its epoch, and
        # what it has committed itself. What its successors commit it cannot have.
        is_latest = epoch >= max(model.writers, default=NO_EPOCH)
        if is_latest:
            model.committed_before.setdefault(epoch, model.end)
        own = max(high, model.committed_before.get(epoch, 0))
        model.agree(content, start, model.end if is_latest else own, who)
        assert model.writers.setdefault(epoch, broker_id) == broker_id, f"{who}: two leaders in one epoch"
        if content.start > model.end:
            model.start, model.records = content.start, []
        if high > model.end:
            model.commit(content.between(model.end, high))

    @staticmethod
    def _end_of_same(model: Committed, content: LogContent) -> int:
        offset, end = max(model.start, content.start), min(model.end, content.end)
        while offset < end:
            found, expected = content.between(offset, offset + 1)[0], model.records[offset - model.start]
            if found != expected and None not in (found, expected):
                break
            offset += 1
        # A log that has lost its end twice may end below all that is still compared.
        return min(offset, content.end)

    @staticmethod
    def may_check_isr(model: Committed, broker_id: int) -> bool:
        """Whether a broker is the leader that the tree names and has written as such."""
        state = model.state
        return (
            state is not None
            and state.leader == broker_id
            and model.writers.get(state.leader_epoch) == broker_id
            and state.leader_epoch >= model.since_epoch
            and model.is_rebased
        )

    @staticmethod
    def check_isr(model: Committed, ends: dict[int, int]) -> None:
        """All members of the ISR in the tree have what is committed. `ends` are the ends of their logs."""
        state = model.state
        assert state is not None
        for member in state.isr:
            if member not in model.lossy and member in ends:
                assert ends[member] >= model.end, (
                    f"{model.name}: broker {member} is in the ISR {state.isr} of epoch {state.leader_epoch},"
                    f" but its log ends at {ends[member]}, below what is committed: {model.end}"
                )

    # -- what the tree says ----------------------------------------------------------------------------------

    def state_written(self, topic_id: str, name: str, partition: int, state: LeaderAndIsr) -> None:
        """A controller has written a partition's state."""
        model = self.of(topic_id, partition, name)
        before, model.state = model.state, state
        model.lossy &= set(state.isr)
        model.lossy |= model.behind & set(state.isr)
        model.behind -= model.lossy
        if before is None:
            return
        if model.lossy >= set(state.isr):
            # All that had kept the records were removed from the ISR because they had failed, too.
            model.lost_before(state.leader_epoch)
        assert state.leader_epoch >= before.leader_epoch, f"{model.name}: the leader epoch fell"
        assert state.leader == NO_LEADER or state.leader in state.isr, (
            f"{model.name}: the leader is not in the ISR"
        )
        is_elected = state.leader != NO_LEADER and state.leader_epoch != before.leader_epoch
        if is_elected and state.leader not in before.isr:
            model.lost_before(state.leader_epoch)

    def may_start(self, broker_id: int) -> bool:
        """A machine that has lost power is back after a controller has noticed, not before.

        If controllers do not notice, because the broker is registered again when the next one is elected, it
        stays in the ISR without the records, and they are lost when it leads. That is Kafka's rule with
        ZooKeeper: only KRaft tells an unclean shutdown from a clean one (KIP-966).
        """
        return not any(
            broker_id in model.lossy and model.state is not None and not model.lossy >= set(model.state.isr)
            for model in self.partitions.values()
        )

    def power_lost(self, broker_id: int, lost: Container[tuple[str, int]]) -> None:
        """A broker has lost what it had not flushed of these partitions, by topic id and number.

        If it was the last of an ISR, records are lost.
        """
        for key, model in self.partitions.items():
            state = model.state
            if state is None or key not in lost:
                continue
            if broker_id not in state.isr:
                model.behind.add(broker_id)
                continue
            model.lossy.add(broker_id)
            if model.lossy >= set(state.isr):
                model.lost_before(state.leader_epoch)

    # -- what clients are told -------------------------------------------------------------------------------

    def acknowledge(self, model: Committed, broker_id: int, epoch: int, offset: int, record_id: int) -> None:
        """A leader has acknowledged a record to a producer that wants all replicas to have it."""
        assert model.writers.setdefault(epoch, broker_id) == broker_id, (
            f"{model.name}: brokers {model.writers[epoch]} and {broker_id} acknowledge in epoch {epoch}"
        )
        if epoch < model.since_epoch or not model.is_rebased or model.is_excused:
            return
        assert offset < model.end, f"{model.name}: offset {offset} is acknowledged before it is committed"
        if offset < max(model.start, model.known_from):
            return  # it was written before, and is not compared any more
        assert model.records[offset - model.start] in (record_id, None), (
            f"{model.name}: record {record_id} is acknowledged at {offset}, where another is committed"
        )
        model.acknowledged[offset] = record_id

    def consumed(self, model: Committed, epoch: int, records: Iterable[tuple[int, int]]) -> None:
        """A consumer has read records (offset, id) from a leader of this epoch."""
        if epoch < model.since_epoch or not model.is_rebased or model.is_excused:
            return
        for offset, each in records:
            if offset >= model.start:
                assert offset < model.end, f"{model.name}: offset {offset} is read before it is committed"
                assert model.records[offset - model.start] in (each, None), (
                    f"{model.name}: a consumer reads another record at {offset} than is committed"
                )
