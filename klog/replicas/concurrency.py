"""Makes several requests to an object store at a time: each mostly waits for an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

MAX_CONCURRENT_REQUESTS: Final = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_concurrently(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    remote: bool,
    most: int = MAX_CONCURRENT_REQUESTS,
) -> list[_Result]:
    """The results of `function` for the items, in their order.

    If the items are `remote`, up to `most` calls run at a time; otherwise one after the other.
    """
    if not remote or len(items) < 2:
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(most, len(items)), "klog-plan") as threads:
        return list(threads.map(function, items))
