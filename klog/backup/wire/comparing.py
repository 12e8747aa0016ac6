"""Compares the log that a backup has with that of a leader: how far are they the same?

A leader that was elected uncleanly, or that lost what was not flushed, has other batches from some offset on.
Leader epochs show it (KIP-101, KIP-279). Brokers that do not know them, or do not tell them to this client,
are asked for the last batch of the backup instead. A leader whose own epoch the last batch has is not asked:
within its epoch it does not truncate its log.
"""

from __future__ import annotations

from dataclasses import replace

from klog.backup.model import PartitionState
from klog.backup.wire.reader import PartitionReader
from klog.client.epochs import UNKNOWN
from klog.client.errors import RefusedError
from klog.formats.constants import BATCH_HEADER_BYTES
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnsupportedApiError


def kept_of(
    state: PartitionState, reader: PartitionReader, log_start_offset: int, high_watermark: int
) -> PartitionState | None:
    """What of a state the leader has, too; None if nothing. Raises as `PartitionReader.fetch`."""
    if not state.pieces or state.end_offset <= log_start_offset:
        return None
    if _is_of_this_leader(state, reader.leader.leader_epoch) and state.end_offset <= high_watermark:
        return state
    end = _end_by_epochs(state, reader)
    if end is None:
        end = min(state.end_offset, high_watermark)
        if end == state.end_offset and not _has_last_batch(state, reader):
            return None
    return state if end >= state.end_offset else _cut(state, end)


def _is_of_this_leader(state: PartitionState, leader_epoch: int) -> bool:
    return bool(state.epochs) and state.epochs[-1].epoch == leader_epoch != UNKNOWN


def _end_by_epochs(state: PartitionState, reader: PartitionReader) -> int | None:
    """The offset up to which the epochs are the same, None if the leader does not say."""
    entries = list(state.epochs)
    end = state.end_offset
    while entries:
        try:
            found = reader.epoch_end(entries[-1].epoch)
        except UnsupportedApiError:
            return None
        except RefusedError as error:
            if error.code not in (
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ):
                raise
            return None
        if found.end_offset == UNKNOWN:
            return None
        end = min(end, found.end_offset)
        if found.leader_epoch in (UNKNOWN, entries[-1].epoch):
            return end
        while entries and entries[-1].epoch > found.leader_epoch:
            end = min(end, entries.pop().start_offset)
    return end if state.epochs else None


def _has_last_batch(state: PartitionState, reader: PartitionReader) -> bool:
    """Whether the leader has the last batch of a state."""
    header = bytes.fromhex(state.seen[-1].last_batch_header) if state.seen else b""
    found = reader.fetch(state.end_offset - 1)
    for position, last in zip(found.table.position, found.table.last_offset, strict=True):
        if last >= state.end_offset - 1:
            return (
                bool(header)
                and bytes(found.data[position:][: min(BATCH_HEADER_BYTES, len(header))]) == header
            )
    return False


def _cut(state: PartitionState, end_offset: int) -> PartitionState | None:
    """The pieces of a state that end at or before an offset."""
    pieces = tuple(piece for piece in state.pieces if piece.end_offset <= end_offset)
    if not pieces:
        return None
    end = pieces[-1].end_offset
    return replace(
        state,
        pieces=pieces,
        end_offset=end,
        epochs=tuple(entry for entry in state.epochs if entry.start_offset < end),
        damage=tuple(each for each in state.damage if each.end_offset is not None and each.end_offset <= end),
        seen=(),
    )
