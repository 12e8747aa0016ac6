"""Writes many nodes in few multis, and retries writes whose reply was lost.

After a lost reply, it is read back whether the first try had succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

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
    missing_parents,
    required,
)

# How much one multi holds. ZooKeeper refuses requests above 1 MiB (jute.maxbuffer).
_OPERATIONS: Final = 50
_BYTES: Final = 256 * 1024


def write_all(
    store: MetadataStore, operations: Sequence[Operation], guard: Check | None = None
) -> list[OperationResult | StoreError]:
    """Writes each operation until its outcome is known. The operations do not depend on each other's success.

    With a `guard`, many go into one multi together with it. If one of them fails, the others are written
    without it. Waits while the connection is lost. `op_index` of an error is 0 if the guard caused it;
    without a guard it is always 0. Raises SessionExpiredError and StoreClosedError.
    """
    outcomes: dict[int, OperationResult | StoreError] = {}
    lost: set[int] = set()
    pending = [[index] for index in range(len(operations))] if guard is None else _together(operations)
    while pending:
        multis = [_guarded([operations[index] for index in group], guard) for group in pending]
        again: list[list[int]] = []
        is_lost = False
        for group, outcome in zip(pending, store.multi_many(multis), strict=True):
            if isinstance(outcome, ConnectionLossError):
                is_lost = True
                lost.update(group)
                again.append(group)
            elif not isinstance(outcome, StoreError):
                outcomes.update(zip(group, outcome[-len(group) :], strict=True))
            elif len(group) > 1 and outcome.op_index:
                again += [[index] for index in group]
            else:
                for index in group:
                    mine = index in lost and not _is_guards(outcome, guard)
                    outcomes[index] = (
                        _outcome_after_lost_reply(store, operations[index], outcome) if mine else outcome
                    )
        if is_lost:
            store.wait_connected()
        pending = again
    return [outcomes[index] for index in range(len(operations))]


def _together(operations: Iterable[Operation]) -> list[list[int]]:
    """The indexes of the operations, those of one multi together."""
    groups: list[list[int]] = []
    group: list[int] = []
    group_bytes = 0
    for index, size_bytes in enumerate(map(_size, operations)):
        if group and (len(group) == _OPERATIONS or group_bytes + size_bytes > _BYTES):
            groups.append(group)
            group, group_bytes = [], 0
        group.append(index)
        group_bytes += size_bytes
    return [*groups, group] if group else groups


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else None
    return len(operation.path) + len(data or b"")


def write(store: MetadataStore, operation: Operation) -> OperationResult:
    """Does one write like `write_all`. Raises its error."""
    return required(write_all(store, [operation])[0])


def create_missing(store: MetadataStore, node_paths: Iterable[str]) -> None:
    """Creates those nodes that do not exist, without data."""
    for path in node_paths:
        with suppress(NodeExistsError):
            write(store, Create(path))


def put(store: MetadataStore, path: str, data: bytes) -> None:
    """Sets the data of a node. Creates the node, and those above it, if they are missing."""
    while True:
        for operation in (SetData(path, data), Create(path, data)):
            with suppress(NoNodeError, NodeExistsError):
                write(store, operation)
                return
        create_missing(store, missing_parents(path))


def _guarded(operations: Sequence[Operation], guard: Check | None) -> list[Operation]:
    return [*operations] if guard is None else [guard, *operations]


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
