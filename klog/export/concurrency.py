"""Several looks at remote files side by side: each is waiting for an answer, not work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

MAX_CONCURRENT_REQUESTS: Final = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_concurrently(
    look: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    remote: bool,
    at_once: int = MAX_CONCURRENT_REQUESTS,
) -> list[_Result]:
    """`look` at each of the items, results in their order; one after the other unless they are `remote`."""
    if not remote or len(items) < 2:
        return [look(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(at_once, len(items)), "klog-plan") as threads:
        return list(threads.map(look, items))
