"""What must hold of transactions and of committed offsets, beside what `history` checks.

A transaction is all or nothing: read_committed readers of all partitions see its records, or none does. What
the coordinator has acknowledged is what they see. A committed offset that was acknowledged is the group's
offset until a later commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.history import Committed

NO_OFFSET = -1


@dataclass(slots=True)
class Attempt:
    """One transaction of a producer. `outcome` is what the coordinator has acknowledged: committed or not.

    `kept_in` is the partition of `__transaction_state` that has the transactional id, and `losses` how often
    that had lost records when the transaction began. `is_uncertain` if the end was acknowledged by a
    coordinator that was replaced and does not know it, and that took the request for a repeated one.
    """

    name: str
    kept_in: Committed
    losses: int
    records: set[int] = field(default_factory=set)
    commit_sent: bool = False
    outcome: bool | None = None
    seen: bool | None = None
    is_uncertain: bool = False

    @property
    def is_excused(self) -> bool:
        """Whether the coordinator may have lost what it knew of the transaction, or may not have known it, by
        Kafka's rules.
        """
        return self.is_uncertain or self.kept_in.losses != self.losses

    def end_acknowledged(self, committed: bool) -> None:
        """The coordinator has acknowledged the end."""
        if not self.is_excused:
            assert self.seen in (None, committed), f"{self.name}: readers saw another end than {committed=}"
            self.outcome = committed

    def saw(self, committed: bool, who: str) -> None:
        """A read_committed reader has passed a record of the transaction, and took it or not."""
        if self.is_excused:
            return
        end = "committed" if committed else "aborted"
        assert self.outcome in (None, committed), f"{who}: {self.name} is {end}, which is not its end"
        assert self.commit_sent or not committed, f"{who}: {self.name} is {end}, which nobody asked for"
        assert self.seen in (None, committed), f"{who}: {self.name} is {end}, but not everywhere"
        self.seen = committed


class Outcomes:
    """The transactions by the ids of their records."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._of_record: dict[int, Attempt] = {}

    def begin(self, name: str, kept_in: Committed) -> Attempt:
        attempt = Attempt(name, kept_in, kept_in.losses)
        self.attempts.append(attempt)
        return attempt

    def add_record(self, attempt: Attempt, record_id: int) -> None:
        attempt.records.add(record_id)
        self._of_record[record_id] = attempt

    def is_committed(self, record_id: int, losses: int) -> bool | None:
        """Whether a record counts: it is not in a transaction, or in one that is committed; None: unknown.

        A partition that has lost records (`losses`) may have lost markers, too. Then the marker of the
        producer's next transaction ends this one.
        """
        attempt = self._of_record.get(record_id)
        if attempt is None:
            return True
        return None if losses or attempt.is_excused else attempt.outcome

    def may_repeat(self, record_id: int) -> bool:
        """Whether a log may take a record for one that the producer wrote before: a coordinator that has lost
        records may give a producer an epoch again, whose sequence numbers the log knows.
        """
        attempt = self._of_record.get(record_id)
        return attempt is not None and attempt.kept_in.losses > 0

    def saw(self, model: Committed, record_id: int, committed: bool, who: str) -> None:
        """A reader of a partition has passed a record, and took it or not."""
        attempt = self._of_record.get(record_id)
        # A partition that has lost records may have lost markers, too.
        if attempt is not None and not model.losses:
            attempt.saw(committed, f"{who} of {model.name}")


@dataclass(slots=True)
class Arrival:
    """A commit that has reached a coordinator, of a transaction or not.

    `losses` is how often the partition of `__consumer_offsets` had lost records until then.
    """

    value: int
    generation: int
    attempt: Attempt | None
    losses: int

    @property
    def may_count(self) -> bool:
        """Whether the commit may be the group's offset.

        A coordinator that has lost what it knew of a transaction may send the markers of the producer's last
        one again, and these end this one, too.
        """
        attempt = self.attempt
        if attempt is None or attempt.is_excused:
            return True
        return attempt.commit_sent and attempt.outcome is not False


class CommittedOffsetModel:
    """The offset of one group for one partition: what it may be.

    Commits count in the order in which they reach the coordinator. One that is acknowledged ends what those
    before it may do.
    """

    def __init__(self, name: str, kept_in: Committed) -> None:
        self.name = name
        self._kept_in = kept_in
        self._losses = kept_in.losses
        self._arrivals: list[Arrival] = []
        self._first_possible = NO_OFFSET
        self._generation = -1
        # What was read last, in this leader epoch of the coordinator.
        self._read = (NO_OFFSET, NO_OFFSET)

    def _forgive(self) -> None:
        """If the partition has lost records, nothing is certain any more, or if the coordinator of the last
        transaction has.
        """
        if self._losses != self._kept_in.losses:
            self._losses = self._kept_in.losses
            self._first_possible = self._generation = NO_OFFSET
            self._read = (NO_OFFSET, NO_OFFSET)
        first = self._first_possible
        if first != NO_OFFSET and (attempt := self._arrivals[first].attempt) and attempt.is_excused:
            # The coordinator may have lost the commit before it sent the marker to this partition.
            self._first_possible = NO_OFFSET

    def arrives(self, value: int, generation: int, attempt: Attempt | None = None) -> int:
        """A commit reaches a coordinator; its number."""
        self._arrivals.append(Arrival(value, generation, attempt, self._kept_in.losses))
        return len(self._arrivals) - 1

    def acknowledged(self, number: int) -> None:
        """The commit with this number counts, unless it is lost already."""
        self._forgive()
        arrival = self._arrivals[number]
        if arrival.losses != self._losses:
            return
        self._first_possible = max(self._first_possible, number)
        if arrival.attempt is None:
            self._generation = max(self._generation, arrival.generation)

    def check_generation(self, number: int, newest: int) -> None:
        """A commit was acknowledged; `newest` is the generation that had one acknowledged before it came."""
        self._forgive()
        generation = self._arrivals[number].generation
        assert generation >= min(newest, self._generation), (
            f"{self.name}: generation {generation} commits after generation {newest} did"
        )

    @property
    def generation(self) -> int:
        """The newest generation with an acknowledged commit."""
        self._forgive()
        return self._generation

    def check(self, value: int, epoch: int, who: str) -> None:
        """A coordinator that leads in this epoch, the newest one, answers this offset."""
        self._forgive()
        first = self._first_possible
        if self._read[0] == epoch:
            first = max(first, self._read[1])
        if value == NO_OFFSET:
            assert first == NO_OFFSET, f"{who}: the committed offset of {self.name} is lost"
            return
        possible = self._arrivals[max(first, 0) :]
        for number, each in enumerate(possible, max(first, 0)):
            if each.value == value and each.may_count:
                self._read = (epoch, number)
                return
        raise AssertionError(
            f"{who}: {self.name} has the offset {value}, not one of {[each.value for each in possible]}"
        )
