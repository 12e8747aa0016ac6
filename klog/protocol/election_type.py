"""The types of the ElectLeaders request."""

from __future__ import annotations

from enum import IntEnum


class ElectionType(IntEnum):
    """PREFERRED makes the first replica the leader. UNCLEAN takes replicas that are not in sync."""

    PREFERRED = 0
    UNCLEAN = 1
