"""The records of one group on their way to the log, and the answers that wait for them.

No answer is sent before the state that it tells is in the log. If records could not be written, the group
keeps its state, whoever waits gets the error, and the next write has these records again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from klog.coordinator.groups.consumer.records import ConsumerRecord, RecordKind
from klog.coordinator.groups.consumer.state import GroupRecords
from klog.coordinator.groups.values import Now
from klog.protocol.error_codes import ErrorCode

Answer = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Write records of a group as one batch.

    Then call `on_written` with the error that members see and the time, under the group's lock.
    """

    records: tuple[ConsumerRecord, ...]
    on_written: Callable[[ErrorCode, Now], None]


@dataclass(slots=True, eq=False)
class GroupWrite:
    """Records that are being written together, and what is called with the error of the write."""

    records: tuple[ConsumerRecord, ...]
    answers: list[Answer] = field(default_factory=list)


class GroupWrites:
    """All writes of one group. Not safe for threads."""

    def __init__(self, state: GroupRecords) -> None:
        self._state = state
        self._failed: dict[tuple[RecordKind, str], None] = {}
        self._last: GroupWrite | None = None

    def begin(self, answer: Answer | None) -> GroupWrite | None:
        """Take the changes of the group's state.

        Returns what is to be written, then reported to `done`. None if there is nothing to write: then
        `answer` was called, or will be by an earlier write.
        """
        changes = self._state.take_changes()
        if not changes and not self._failed:
            if answer is not None and self._last is not None:
                self._last.answers.append(answer)
            elif answer is not None:
                answer(ErrorCode.NONE)
            return None
        again = [ConsumerRecord(*key, self._state.value_of(*key)) for key in self._failed]
        self._failed.clear()
        write = GroupWrite((*again, *changes), [] if answer is None else [answer])
        self._last = write
        return write

    def done(self, write: GroupWrite, error: ErrorCode) -> None:
        """The records are replicated, or could not be written."""
        if self._last is write:
            self._last = None
        if error:
            self._failed.update(((record.kind, record.name), None) for record in write.records)
        for answer in write.answers:
            answer(error)
