"""Integers that wrap: Java's int and long, and the sequence numbers of producers.

Rules: KIP-98 and Kafka's `DefaultRecordBatch.incrementSequence`. Sequence numbers run from 0 to 2^31-1 and
start again at 0.
"""

from __future__ import annotations

from klog.formats.constants import INT32_MAX, NO_SEQUENCE


def wrap_int32(number: int) -> int:
    """The number as Java's int holds it."""
    return (number + 2**31) % 2**32 - 2**31


def wrap_int64(number: int) -> int:
    """The number as Java's long holds it."""
    return (number + 2**63) % 2**64 - 2**63


def sequence_after(sequence: int, increment: int) -> int:
    """The sequence number `increment` records after `sequence`.

    For a negative sequence or increment the result is the one of Java's int arithmetic.
    """
    total = sequence + increment
    if increment >= 0 and 0 <= total <= INT32_MAX:
        return total
    increment = wrap_int32(increment)
    if sequence > wrap_int32(INT32_MAX - increment):
        return wrap_int32(increment - wrap_int32(INT32_MAX - sequence) - 1)
    return wrap_int32(sequence + increment)


def sequence_before(sequence: int, decrement: int) -> int:
    """The sequence number `decrement` records before `sequence`, by Java's int arithmetic."""
    if sequence < decrement:
        return wrap_int32(INT32_MAX - (decrement - sequence) + 1)
    return wrap_int32(sequence - decrement)


def last_sequence(base_sequence: int, offset_delta: int) -> int:
    """The sequence number of the last record of a batch; -1 if the batch has no sequence numbers."""
    return NO_SEQUENCE if base_sequence == NO_SEQUENCE else sequence_after(base_sequence, offset_delta)
