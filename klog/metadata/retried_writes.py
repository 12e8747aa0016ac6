"""Retries writes whose reply was lost, and reads back whether the first try had succeeded."""

from __future__ import annotations

from collections.abc import Sequence

from klog.metadata.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from klog.metadata.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    MetadataStore,
    Operation,
    OperationResult,
    SetData,
)


def write_all(
    store: MetadataStore, operations: Sequence[Operation], guard: Check | None = None
) -> list[OperationResult | StoreError]:
    """Writes each operation (with `guard` in its multi) until its outcome is known.

    Waits while the connection is lost. `op_index` of an error is 0 if the guard caused it; without a guard it
    is always 0. Raises SessionExpiredError and StoreClosedError.
    """
    outcomes: dict[int, OperationResult | StoreError] = {}
    lost: set[int] = set()
    pending = list(range(len(operations)))
    while pending:
        multis = [_guarded(operations[index], guard) for index in pending]
        again = []
        for index, outcome in zip(pending, store.multi_many(multis), strict=True):
            if isinstance(outcome, ConnectionLossError):
                lost.add(index)
                again.append(index)
            elif isinstance(outcome, StoreError):
                mine = index in lost and not _is_guards(outcome, guard)
                outcomes[index] = (
                    _outcome_after_lost_reply(store, operations[index], outcome) if mine else outcome
                )
            else:
                outcomes[index] = outcome[-1]
        if again:
            store.wait_connected()
        pending = again
    return [outcomes[index] for index in range(len(operations))]


def write(store: MetadataStore, operation: Operation) -> OperationResult:
    """Does one write like `write_all`. Raises its error."""
    outcome = write_all(store, [operation])[0]
    if isinstance(outcome, StoreError):
        raise outcome
    return outcome


def _guarded(operation: Operation, guard: Check | None) -> list[Operation]:
    return [operation] if guard is None else [guard, operation]


def _is_guards(error: StoreError, guard: Check | None) -> bool:
    return guard is not None and error.op_index == 0


def _outcome_after_lost_reply(
    store: MetadataStore, operation: Operation, error: StoreError
) -> OperationResult | StoreError:
    """After a lost reply, the second try fails if the first has succeeded.

    Then the outcome is that of the first.
    """
    nodes = store.get_many([operation.path])
    node = nodes[0]
    match operation, error:
        case Create(), NodeExistsError() if node is not None:
            owner = store.session_id if operation.ephemeral else 0
            if node.data == operation.data and node.stat.version == 0 and node.stat.ephemeral_owner == owner:
                return operation.path
        case SetData(), BadVersionError() if node is not None and operation.version != ANY_VERSION:
            if node.data == operation.data and node.stat.version == operation.version + 1:
                return node.stat
        case Delete(), NoNodeError():
            return None
    return error
