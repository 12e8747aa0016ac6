"""The least that any plan has to move: what the goal forces, and what brokers have too much or too little."""

from __future__ import annotations

from collections.abc import Sequence

from klog.admin.reassign.goals import Freedom, Scope
from klog.admin.reassign.layout import Layout
from klog.admin.reassign.placement import racks_to_have
from klog.admin.reassign.shares import Band


def least_movement(layout: Layout, scope: Scope, factors: Sequence[int], band: Band) -> int:
    """A lower bound of the bytes that a plan moves which is as even as this layout.

    Every broker may be as full as in the layout, or as the band allows if that is more; the same for empty.
    """
    forced = 0
    kept = dict.fromkeys(layout.targets, 0)
    total = 0  # on targets at the end
    for number, (part, factor, now) in enumerate(
        zip(layout.partitions, factors, layout.replicas, strict=True)
    ):
        staying = part.original - scope.leaving
        missing = max(0, factor - len(staying), racks_to_have(layout, scope, number) - layout.spread(staying))
        forced += part.size_bytes * missing
        total += part.size_bytes * len(now & layout.load.keys())
        for broker in staying & layout.load.keys():
            kept[broker] += part.size_bytes
    if scope.freedom is Freedom.NONE:
        return forced
    load = layout.load
    receivers = layout.targets if scope.freedom is Freedom.ALL else sorted(scope.added)
    least_in = sum(max(0, min(band.low[broker], load[broker]) - kept[broker]) for broker in receivers)
    if scope.freedom is Freedom.TO_ADDED:
        return max(forced, least_in)
    most_kept = sum(min(kept[broker], max(band.high[broker], load[broker])) for broker in layout.targets)
    return max(forced, least_in, total - most_kept)
