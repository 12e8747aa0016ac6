"""Values about leader epochs that requests, logs and followers share (KIP-101, KIP-279)."""

from __future__ import annotations

from typing import Final, NamedTuple

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record; both are -1 if the epoch is not known."""

    epoch: int = UNDEFINED_EPOCH
    end_offset: int = UNDEFINED_OFFSET
