"""Work on several things at a time, in threads that end with the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(threads: int, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """The results of the items in their order. `threads` of them are worked on at a time.

    One thread is the caller's own. What `work` raises is raised at its item, and what has begun is finished.
    """
    if min(threads, len(items)) <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="klog-work") as pool:
        yield from pool.map(work, items)
