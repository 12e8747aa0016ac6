"""Sums up what log directories hold, and says which brokers and directories have more than their share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from klog.client.log_dirs import LogDir
from klog.protocol.error_codes import ErrorCode

UNBALANCED_RATIO: Final = 1.1
"""A share is unbalanced from this multiple of the mean on, as for Cruise Control's disk usage goals."""

LEAST_UNBALANCED_BYTES: Final = 1 << 30
"""For less above the mean nobody moves partitions."""


@dataclass(frozen=True, slots=True)
class DirSummary:
    """A log directory with what its replicas add up to.

    The shares are the bytes divided by the mean of the broker's directories, and those of the broker by the
    mean of all brokers; None if nothing is there to compare with.
    """

    log_dir: LogDir
    size_bytes: int
    share_of_broker: float | None
    broker_share: float | None

    @property
    def future(self) -> int:
        """How many copies of moves between directories there are."""
        return sum(each.is_future for each in self.log_dir.replicas)

    @property
    def lagging(self) -> int:
        """How many replicas are behind."""
        return sum(each.offset_lag > 0 for each in self.log_dir.replicas)

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        found = self.log_dir
        return {
            "broker": found.broker_id,
            "logDir": found.path,
            "error": None if found.error is ErrorCode.NONE else found.error.name,
            "replicas": len(found.replicas),
            "size": self.size_bytes,
            "totalBytes": found.total_bytes,
            "usableBytes": found.usable_bytes,
            "lagging": self.lagging,
            "future": self.future,
            "shareOfBroker": self.share_of_broker,
            "brokerShare": self.broker_share,
        }


def summaries(dirs: Iterable[LogDir]) -> list[DirSummary]:
    """Each directory with its sums, in the order given."""
    found = list(dirs)
    sizes = [sum(replica.size_bytes for replica in each.replicas) for each in found]
    by_broker: dict[int, list[int]] = {}
    for each, size in zip(found, sizes, strict=True):
        if each.error is ErrorCode.NONE:
            by_broker.setdefault(each.broker_id, []).append(size)
    brokers = {broker_id: sum(of_dirs) for broker_id, of_dirs in by_broker.items()}
    return [
        DirSummary(
            each,
            size,
            _share(size, by_broker.get(each.broker_id, ())),
            _share(brokers.get(each.broker_id, 0), list(brokers.values())),
        )
        for each, size in zip(found, sizes, strict=True)
    ]


def _share(size: int, sizes: Sequence[int]) -> float | None:
    mean = sum(sizes) / len(sizes) if sizes else 0
    return round(size / mean, 3) if mean and len(sizes) > 1 else None


def _is_too_much(size_bytes: int, share: float | None) -> bool:
    """Whether a size, which is `share` times the mean, is above the mean by much."""
    return (
        share is not None
        and share >= UNBALANCED_RATIO
        and size_bytes - size_bytes / share >= LEAST_UNBALANCED_BYTES
    )


def _percent_more(share: float | None) -> int:
    return round(((share or 1) - 1) * 100)


def unbalanced(found: Sequence[DirSummary]) -> list[str]:
    """A sentence for each directory and each broker that holds too much, by share and by bytes."""
    said: dict[str, None] = {}
    for each in found:
        own = each.log_dir
        of_broker = sum(one.size_bytes for one in found if one.log_dir.broker_id == own.broker_id)
        if _is_too_much(of_broker, each.broker_share):
            more = _percent_more(each.broker_share)
            said[f"broker {own.broker_id} holds {more} % more than the mean of the brokers"] = None
    for each in found:
        own = each.log_dir
        if _is_too_much(each.size_bytes, each.share_of_broker):
            more = _percent_more(each.share_of_broker)
            said[
                f"{own.path} of broker {own.broker_id} holds {more} % more than the mean of its directories"
            ] = None
    return list(said)
