"""How many bytes each broker should hold, and how far a layout is from that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from klog.admin.reassign.layout import Layout

_HALVINGS: Final = 100


@dataclass(frozen=True, slots=True)
class Band:
    """The bytes that each broker may hold without being too full (`high`) or too empty (`low`)."""

    shares: Mapping[int, float]
    low: Mapping[int, int]
    high: Mapping[int, int]

    def violation(self, broker: int, load: int) -> int:
        """The square of how far a load is from the band: many small distances are better than a large one."""
        if load > (high := self.high[broker]):
            return (load - high) ** 2
        return (self.low[broker] - load) ** 2 if load < self.low[broker] else 0


def fair_shares(layout: Layout, factors: Sequence[int]) -> dict[int, float]:
    """What each target should hold: the same bytes, as far as its rack may hold that many replicas.

    `factors` says how many replicas of each partition are to be on targets. A rack with few brokers may have
    to hold one replica of each partition, and a rack may not hold two while others have none.
    """
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in layout.targets:
        by_rack[layout.racks[broker]].append(broker)
    by_factor: Counter[int] = Counter()
    for factor, size in zip(factors, layout.sizes, strict=True):
        by_factor[factor] += size
    bounds = {rack: _bounds(len(brokers), len(by_rack), by_factor) for rack, brokers in by_rack.items()}
    total = sum(factor * size for factor, size in by_factor.items())

    def held(rack: str, per_broker: float) -> float:
        least, most = bounds[rack]
        return min(max(len(by_rack[rack]) * per_broker, least), most)

    low, high = 0.0, float(total)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(held(rack, middle) for rack in by_rack) < total else (low, middle)
    return {
        broker: held(rack, high) / len(brokers) for rack, brokers in by_rack.items() for broker in brokers
    }


def _bounds(brokers: int, racks: int, by_factor: Mapping[int, int]) -> tuple[int, int]:
    """The fewest and the most bytes that a rack of so many brokers has to hold and may hold."""
    least = most = 0
    for factor, size in by_factor.items():
        least += size if factor >= racks else 0
        most += size * (min(brokers, factor - racks + 1) if factor >= racks else min(1, factor))
    return least, most


def band_of(shares: Mapping[int, float], tolerance: float) -> Band:
    """The band around shares."""
    return Band(
        shares,
        {broker: int(share * (1 - tolerance)) for broker, share in shares.items()},
        {broker: -int(-share * (1 + tolerance) // 1) for broker, share in shares.items()},
    )


def band_to_fill(
    shares: Mapping[int, float], tolerance: float, had: Mapping[int, int], added: Set[int]
) -> Band:
    """A band that asks for nothing but to fill brokers that are added, and not to empty the others for it.

    `had` is what each broker held before: nobody has to give any of that.
    """
    band = band_of(shares, tolerance)
    total = -int(-sum(shares.values()) // 1)
    return Band(
        shares,
        band.low,
        {broker: max(high, had[broker]) if broker in added else total for broker, high in band.high.items()},
    )
