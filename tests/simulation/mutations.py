"""Defects put into the code on purpose: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from typing import Any
from unittest.mock import patch

from klog.coordinator.transactions import coordinator as transaction_coordinator
from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.coordinator.transactions.transaction import Transaction
from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.names import CONSUMER_OFFSETS
from klog.kernel.markers import Marker
from klog.protocol.error_codes import ErrorCode
from klog.replication import reading
from klog.replication.fetching import following as production
from klog.replication.fetching.values import FetchStart
from klog.replication.internal_append import InternalAppends
from klog.replication.isr import IsrState
from klog.replication.partition import Partition
from klog.replication.partition_state import PartitionState
from klog.server.fetching import manager
from klog.storage.log import loading
from klog.storage.log.append_values import BatchInfo
from klog.storage.log.producers import Producers
from tests.simulation.driver_mutations import DRIVER_MUTATIONS
from tests.simulation.fast_path_mutations import FAST_PATH_MUTATIONS

_APPEND_RECORDS = InternalAppends.append_records
_APPEND_BUILT = InternalAppends.append_built
_CHECK_MARKER = Producers.check_marker
_RECOVERED = loading._recovered


@contextmanager
def _replaced(*replaced: tuple[Any, str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for where, name, by in replaced:
            stack.enter_context(patch.object(where, name, by))
        yield


def _start_at_high_watermark(partition: Partition) -> FetchStart | None:
    start = production.start_of(partition)
    if start is None:
        return None
    log = partition.log
    log.truncate_to(log.high_watermark)
    return FetchStart(start.leader_epoch, log.log_end_offset)


def truncation_to_high_watermark() -> Any:
    """Followers truncate to their high watermark, and leaders never say where the logs diverge: as before
    KIP-101, which ended the loss of records by this.
    """
    return _replaced(
        (manager, "start_of", _start_at_high_watermark),
        (reading, "_divergence", lambda _log, _entry: None),
    )


def no_fencing() -> Any:
    """Requests of another leader epoch are served."""
    return _replaced((PartitionState, "epoch_error", lambda _state, _epoch: ErrorCode.NONE))


def _apply_early(state: IsrState) -> None:
    object.__setattr__(state, "maximal", state.committed if state.pending is None else state.pending)


def shrink_applied_early() -> Any:
    """The high watermark does not wait for members that the leader has only proposed to remove."""
    return _replaced((IsrState, "__post_init__", _apply_early))


def _append_unreplicated(
    appends: InternalAppends, key: Any, records: Any, on_done: Any, *, topic: str, **how: Any
) -> None:
    acks = 1 if key.topic == topic else how.pop("acks")
    _APPEND_RECORDS(appends, key, records, on_done, **{**how, "acks": acks})


def _append_built_unreplicated(
    appends: InternalAppends, key: Any, batch: Any, on_done: Any, *, topic: str, **how: Any
) -> None:
    if key.topic == topic:
        _APPEND_RECORDS(appends, key, batch.view(), on_done, acks=1, **how)
    else:
        _APPEND_BUILT(appends, key, batch, on_done, **how)


def _unreplicated(topic: str) -> Any:
    return _replaced(
        (InternalAppends, "append_records", partialmethod(_append_unreplicated, topic=topic)),
        (InternalAppends, "append_built", partialmethod(_append_built_unreplicated, topic=topic)),
    )


def transactions_answered_early() -> Any:
    """The transaction coordinator answers when its own log has a record, before its followers have it."""
    return _unreplicated(TRANSACTION_STATE)


def offsets_answered_early() -> Any:
    """The group coordinator acknowledges offsets before the high watermark has passed them."""
    return _unreplicated(CONSUMER_OFFSETS)


def decided_transactions_forgotten() -> Any:
    """A coordinator that loads a decided transaction sends no markers for it."""
    return _replaced((Transaction, "resume", lambda _transaction, _now_ms: None))


def transactions_not_loaded() -> Any:
    """A new coordinator begins with what it knew when it led before, or with nothing."""
    return _replaced((transaction_coordinator, "load_transactions", lambda *_: {}))


def _check_producer_only(producers: Producers, batch: BatchInfo, marker: Marker) -> None:
    _CHECK_MARKER(producers, batch, marker._replace(coordinator_epoch=INT32_MAX))


def stale_coordinators_obeyed() -> Any:
    """Logs take markers of a coordinator that has been replaced, as long as the producer's epoch is right."""
    return _replaced((Producers, "check_marker", _check_producer_only))


def no_recovery() -> Any:
    """After a loss of power a log is taken as it is."""

    def trusted(directory: Any, config: Any, settings: Any, files: Any, _recovery_point: Any) -> Any:
        return _RECOVERED(directory, config, settings, files, INT64_MAX)

    return _replaced((loading, "_recovered", trusted))


MUTATIONS: dict[str, Callable[[], Any]] = {
    "truncation to the high watermark": truncation_to_high_watermark,
    "no fencing by leader epoch": no_fencing,
    "a shrink of the ISR applied early": shrink_applied_early,
    "a transaction coordinator that answers before replication": transactions_answered_early,
    "an offset commit answered before the high watermark": offsets_answered_early,
    "a decided transaction without markers after a load": decided_transactions_forgotten,
    "a transaction coordinator that does not load": transactions_not_loaded,
    "markers of a replaced transaction coordinator": stale_coordinators_obeyed,
    "no recovery after a loss of power": no_recovery,
    **DRIVER_MUTATIONS,
    **FAST_PATH_MUTATIONS,
}
