"""Reads back what a conversion wrote: nothing may be lost or changed but what its plan lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klog.cluster_metadata.comparison import Difference, differences
from klog.cluster_metadata.consistency import Problem
from klog.cluster_metadata.conversion_plan import Plan
from klog.cluster_metadata.losses import covers
from klog.cluster_metadata.model import Cluster


def check(source: Cluster, plan: Plan, read: Callable[[str], Cluster]) -> Iterator[Problem]:
    """What is not as the plan says: in each place that was written, and in the log directories.

    `read` reads the cluster of a place. Raises what it raises.
    """
    said = [covers(each) for each in (*plan.losses, *plan.changes)]
    lost = [
        found
        for found in differences(source, plan.written)
        if not any(covered(found.item) for covered in said)
    ]
    for place in plan.places:
        written = read(place)
        yield from (Problem(place, _text("was not to change", each)) for each in lost)
        if written != plan.written:
            for each in differences(plan.written, written):
                yield Problem(place, _text("is not as it was written", each))
    known = set(plan.problems)
    yield from (each for each in plan.look_again() if each not in known)


def _text(what: str, found: Difference) -> str:
    name = " ".join(filter(None, found.item))
    return f"{name} {what}: {_shown(found.a)} is now {_shown(found.b)}"


def _shown(value: object) -> str:
    return "(none)" if value is None else str(value)
