"""Which requests a server answers before it is open to its clients.

A broker has to take its controller's requests, through the same listener as its clients', before it can
answer theirs. Until then their connections are accepted, and their requests wait where they are.
"""

from __future__ import annotations

from collections.abc import Collection


class Opening:
    """`served_before` holds the keys of the APIs that do not wait; None means that nothing ever waits.

    Any thread may set `is_open`; connections that wait are resumed by their network threads after that.
    """

    __slots__ = ("is_open", "served_before")

    def __init__(self, served_before: Collection[int] | None = None) -> None:
        self.is_open = served_before is None
        self.served_before = frozenset(served_before or ())

    def serves(self, api_key: int) -> bool:
        """Whether a request of this API is answered now."""
        return self.is_open or api_key in self.served_before
