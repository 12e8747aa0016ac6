"""Whatever clients, leaders and the log do: transactions are decided once, and everybody is answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from klog.coordinator.transactions.loading import TransactionReader
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.transaction import LAST_EPOCH
from klog.coordinator.transactions.values import NO_PRODUCER, Producer, TransactionState
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import Appended
from tests.coordinator.transaction.play import EXPIRATION_MS, TIMEOUT_MS, A, Answer, B, C, Play, read_batches

IDS = ("one", "two")
NONE = ErrorCode.NONE
# What happens, to which id, by which of the producers that it has had (the last ones), and how.
ACTIONS = (
    *("open", "open", "init", "add", "add", "commit", "abort", "write", "write", "mark", "mark"),
    *("fail", "hold", "wait", "time out", "expire", "reload", "fire"),
)
STEPS = st.tuples(
    st.sampled_from(ACTIONS), st.sampled_from(IDS), st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, 3)
)
# For how long a request waits for the end of the transaction before.
WAIT_MS = st.sampled_from([0, 20])
ERRORS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.REQUEST_TIMED_OUT,
)
PARTITIONS = ((A,), (B,), (A, B), (C,))
PREPARED = {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


@dataclass
class Sent:
    """A request of a producer, and its answer."""

    what: str
    transactional_id: str
    producer: Producer
    answer: Answer
    partitions: tuple[TopicPartition, ...] = ()


@dataclass
class History:
    """Clients of a coordinator, and all that they have asked."""

    play: Play
    sent: list[Sent] = field(default_factory=list)
    # The producers that clients were given, in order.
    given: dict[str, list[Producer]] = field(default_factory=dict)
    # The partitions that a producer knows to be in its open transaction.
    added: dict[tuple[str, Producer], set[TopicPartition]] = field(default_factory=dict)
    learned: set[int] = field(default_factory=set)

    def step(self, what: str, transactional_id: str, which: int, how: int) -> None:
        play = self.play
        known = self.given.get(transactional_id, [])
        producer = known[-1 - which % len(known)] if known else Producer(999, 0)
        if what == "init":
            expected = producer if how > 1 and known else NO_PRODUCER
            answer = play.init(expected, transactional_id)
            self.sent.append(Sent("init", transactional_id, expected, answer))
        elif what == "add":
            answer = play.add(producer, *PARTITIONS[how], transactional_id=transactional_id)
            self.sent.append(Sent("add", transactional_id, producer, answer, PARTITIONS[how]))
        elif what in ("commit", "abort"):
            answer = play.end(producer, commit=what == "commit", transactional_id=transactional_id)
            self.sent.append(Sent(what, transactional_id, producer, answer))
        elif what == "open":
            self.open(transactional_id, PARTITIONS[how])
        elif what == "hold":
            play.holds_appends = not play.holds_appends
        elif what in ("write", "fail"):
            if play.held:
                play.acknowledge(NONE if what == "write" else ERRORS[how])
        elif what == "mark":
            for wanted, on_written in list(play.markers.sent)[: which + 1]:
                on_written(sorted(wanted.partitions)[: how + 1])
        elif what == "reload":
            self.reload(written=which, forgets=how == 0)
        else:
            self.let_time_pass(what, how)
        self.learn()

    def open(self, transactional_id: str, partitions: tuple[TopicPartition, ...]) -> None:
        """A new producer opens a transaction, and nothing comes in between."""
        for _ in range(3):
            self.step("init", transactional_id, 0, 0)
            self.settle()
        producer = self.given[transactional_id][-1]
        answer = self.play.add(producer, *partitions, transactional_id=transactional_id)
        self.sent.append(Sent("add", transactional_id, producer, answer, partitions))
        self.settle()
        assert answer.error is NONE

    def reload(self, *, written: int, forgets: bool) -> None:
        """The leadership goes and comes back; of the appends under way the first ones are in the log."""
        held, self.play.held = self.play.held, []
        self.play.batches += (append.batch for append in held[:written])
        self.play.reload()
        if forgets:
            self.play.timer.tasks.clear()
        for append in held:
            append.on_done(Appended(NONE if written else ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def let_time_pass(self, what: str, how: int) -> None:
        if what == "wait":
            self.play.now_ms += (1, 500, TIMEOUT_MS // 2, TIMEOUT_MS)[how]
        elif what == "time out":
            self.play.now_ms += 1
            self.play.partition.abort_timed_out()
        elif what == "expire":
            self.play.now_ms += EXPIRATION_MS * (how == 0)
            self.play.partition.remove_expired(EXPIRATION_MS, 1 << 20, 1)
        else:
            self.play.timer.fire()

    def learn(self) -> None:
        """Clients take note of the answers that have come."""
        for number, each in enumerate(self.sent):
            if number in self.learned or not each.answer.came:
                continue
            self.learned.add(number)
            if each.answer.error is NONE:
                self.learn_success(each)

    def learn_success(self, sent: Sent) -> None:
        if sent.what == "init":
            self.given.setdefault(sent.transactional_id, []).append(sent.answer.value.producer)
        elif sent.what == "add":
            self.added.setdefault((sent.transactional_id, sent.producer), set()).update(sent.partitions)
        else:
            added = self.added.pop((sent.transactional_id, sent.producer), set())
            state = (
                TransactionState.PREPARE_COMMIT if sent.what == "commit" else TransactionState.PREPARE_ABORT
            )
            decisions = [
                record
                for batch in records_of(self.play.batches)
                if (record := batch.get(sent.transactional_id)) is not None and record.state in PREPARED
            ]
            assert decisions[-1].state is state
            assert decisions[-1].producer == sent.producer
            assert decisions[-1].partitions >= added

    def settle(self) -> None:
        """From now on nothing fails: all that is under way comes to its end."""
        play = self.play
        rounds = 0
        while play.held or play.timer.tasks or play.markers.sent:
            rounds += 1
            assert rounds < 50, "what is under way never ends"
            while play.held:
                play.acknowledge()
            play.timer.fire()
            play.markers.write_all()
        self.learn()

    # -- what must hold --------------------------------------------------------------------------------------

    def check(self) -> None:
        for transactional_id, transaction in self.play.partition.transactions.items():
            of_id = [
                append
                for append in self.play.held
                if append.leader_epoch == self.play.partition.leader_epoch
                and transactional_id in records_of([append.batch])[0]
            ]
            assert len(of_id) <= 1, "two changes of an id are under way"
            assert not of_id or transaction.pending is not None
            assert transaction.record.producer.epoch <= LAST_EPOCH + 1
        assert all(len(each.answer.results) <= 1 for each in self.sent)

    def check_log(self) -> None:
        for transactional_id in IDS:
            records = [
                batch[transactional_id]
                for batch in records_of(self.play.batches)
                if transactional_id in batch
            ]
            for before, after in zip([None, *records], records, strict=False):
                check_step(before, after)

    def check_markers(self) -> None:
        """Each decision has its markers, and a transaction is complete only when all are written."""
        decisions: Counter[tuple[object, ...]] = Counter()
        ends: Counter[tuple[object, ...]] = Counter()
        for transactional_id in IDS:
            last = None
            for batch in records_of(self.play.batches):
                record = batch.get(transactional_id)
                if record is not None and record.state in PREPARED:
                    last = record
                    decisions[transactional_id, record.producer, record.partitions, record.state] += 1
                elif record is not None and last is not None and record.state is COMPLETED[last.state]:
                    ends[transactional_id, last.producer, last.partitions, last.state] += 1
                    last = None
        marked: Counter[tuple[object, ...]] = Counter()
        for wanted, partitions in self.play.markers.reported:
            committed = wanted.marker.committed
            state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
            key = (wanted.transactional_id, wanted.marker.producer, wanted.partitions, state)
            assert key in decisions, "a marker without a decision in the log"
            marked[key] += partitions >= wanted.partitions
        assert ends == decisions
        assert marked >= ends

    def check_answers(self) -> None:
        for each in self.sent:
            assert len(each.answer.results) == 1, f"{each} is not answered"


def records_of(batches: list[bytes]) -> list[dict[str, TransactionRecord | None]]:
    """The records of each batch; None for removals."""
    found: list[dict[str, TransactionRecord | None]] = []
    for batch in batches:
        reader = TransactionReader("t-0")
        read_batches(reader, [batch])
        removed = [each for each in IDS if each not in reader.loaded and each.encode() in batch]
        found.append({**reader.loaded, **dict.fromkeys(removed)})
    return found


def check_step(before: TransactionRecord | None, after: TransactionRecord | None) -> None:
    """Two records of an id, one after the other in the log."""
    if before is None or after is None:
        assert before is None or before.state not in {*PREPARED, TransactionState.ONGOING}
        assert after is None or after.state is TransactionState.EMPTY
        return
    if after.producer.producer_id == before.producer.producer_id:
        assert after.producer.epoch >= before.producer.epoch
    else:
        assert before.producer.epoch >= LAST_EPOCH
        assert after.producer.epoch == 0
    if before.state in PREPARED:
        # A decision stays. The end may be written twice, if the first time was not seen.
        assert after.state is COMPLETED[before.state]
        assert after.producer == before.producer
    if before.state is TransactionState.ONGOING:
        assert after.state in {TransactionState.ONGOING, *PREPARED}
        assert after.partitions >= before.partitions
        if after.state is TransactionState.PREPARE_COMMIT:
            assert after.producer == before.producer
    elif after.state is not before.state:
        allowed = {TransactionState.EMPTY, TransactionState.ONGOING}
        assert before.state in PREPARED or after.state in allowed


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=60), st.sampled_from([0, LAST_EPOCH - 2]), WAIT_MS)
def test_transactions_are_decided_once_and_everybody_is_answered(
    steps, first_epoch: int, wait_ms: int
) -> None:
    history = History(Play(wait_ms))
    play = history.play
    if first_epoch:
        record = TransactionRecord(
            Producer(5, first_epoch), TIMEOUT_MS, TransactionState.EMPTY, frozenset(), play.now_ms
        )
        play.partition.install(dict.fromkeys(IDS, record))
    for step in steps:
        history.step(*step)
        history.check()
    history.settle()
    history.check_log()
    history.check_markers()
    history.check_answers()
    # All that is decided is complete, and what is in memory is what a load finds.
    for transactional_id, transaction in play.partition.transactions.items():
        assert transaction.record.state not in PREPARED
        assert transaction.pending is None
        written = play.written().get(transactional_id)
        if written is not None and transaction.record.state is not TransactionState.ONGOING:
            assert written._replace(start_ms=0) == transaction.record._replace(start_ms=0)
    # And every id can be used again.
    for transactional_id in IDS:
        for _ in range(3):
            answer = play.init(transactional_id=transactional_id)
            history.settle()
        assert answer.error is NONE
        producer = answer.value.producer
        for request in (
            lambda: play.add(producer, A, transactional_id=transactional_id),  # noqa: B023 (used at once)
            lambda: play.end(producer, transactional_id=transactional_id),  # noqa: B023
        ):
            answer = request()
            history.settle()
            assert answer.error is NONE


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60), WAIT_MS)
def test_a_fenced_producer_changes_nothing(steps, wait_ms: int) -> None:
    history = History(Play(wait_ms))
    for what, transactional_id, which, how in steps:
        newest = history.given.get(transactional_id, [NO_PRODUCER])[-1]
        count = len(history.sent)
        history.step(what, transactional_id, which, how)
        for each in history.sent[count:]:
            if what in ("add", "commit", "abort") and each.producer != newest:
                assert each.answer.came
                assert each.answer.error in {
                    ErrorCode.PRODUCER_FENCED,
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                }
