"""The timestamps below zero in ListOffsets, which name a position in the log instead of a time.

Source: KIP-79, KIP-734 (maximum timestamp), KIP-405 and KIP-1005 (local and tiered offsets).
"""

from __future__ import annotations

from typing import Final

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
