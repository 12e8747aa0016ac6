"""Producers whose transaction the coordinator is being asked about, in one log (KIP-890).

Rules: Kafka's `VerificationGuard` and `VerificationStateEntry`. Transactional records may open a transaction
in a log only if the coordinator knows the partition as a part of it. Else a late request, after the marker,
would open a transaction that nobody ends. The guard of an entry shows at the append that no marker came in
between: every append of the producer drops the entry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

UNCHECKED: Final = object()
"""The guard of an append that is not checked: `transaction.partition.verification.enable` is off."""

OPEN: Final = object()
"""Stands for the guard of an append that needs none: the transaction is open in the log already."""


class Verification(NamedTuple):
    """What is known of a producer while the coordinator is asked.

    `lowest_sequence` is the lowest one that was seen in this epoch: a record before it was seen too early.
    `began_ms` is the wall clock's time.
    """

    guard: object
    lowest_sequence: int
    epoch: int
    began_ms: int

    def seen(self, sequence: int, epoch: int) -> Verification:
        """After one more request of the producer."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            return self._replace(lowest_sequence=sequence, epoch=epoch)
        return self
