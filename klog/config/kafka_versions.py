"""The versions that `inter.broker.protocol.version` and `message.format.version` accept.

Rules: Kafka 3.9's `MetadataVersion`. A release stands for the last of its internal versions, which can also
be named (`2.8-IV1`). Further digits are ignored (`3.9.1` is `3.9`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Each release and the number of its internal versions. The oldest have none; the last was unfinished in 3.9.
_COUNTS: Final = """
0.8.0:0 0.8.1:0 0.8.2:0 0.9.0:0 0.10.0:2 0.10.1:3 0.10.2:1 0.11.0:3 1.0:1 1.1:1 2.0:2 2.1:3 2.2:2 2.3:2 2.4:2
2.5:1 2.6:1 2.7:3 2.8:2 3.0:2 3.1:1 3.2:1 3.3:4 3.4:1 3.5:3 3.6:3 3.7:5 3.8:1 3.9:1 4.0:2
"""
_RELEASES: Final[Mapping[str, int]] = {
    release: int(count) for release, count in (each.split(":") for each in _COUNTS.split())
}
_UNRELEASED: Final = "4.0"
_MAGIC_1_FROM: Final = list(_RELEASES).index("0.10.0")
_MAGIC_2_FROM: Final = list(_RELEASES).index("0.11.0")


def release_of(text: str) -> str | None:
    """The release of a version; None if the text is not a version."""
    parts = text.split(".")
    key = ".".join(parts[: 3 if text.startswith("0.") else 2])
    release, dash, internal = key.partition("-IV")
    count = _RELEASES.get(release)
    if count is None:
        return None
    if dash:
        return release if internal in map(str, range(count)) else None
    return None if release == _UNRELEASED else release


def is_before(text: str, release: str) -> bool:
    """Whether a version is older than a release; false if the text is not a version."""
    found, order = release_of(text), list(_RELEASES)
    return found is not None and order.index(found) < order.index(release)


def is_before_internal(text: str, internal: str) -> bool:
    """Whether a version is older than an internal one (`2.1-IV1`); false if the text is not a version."""
    found, bound = _order_of(text), _order_of(internal)
    return found is not None and bound is not None and found < bound


def _order_of(text: str) -> tuple[int, int] | None:
    """A release stands for the last of its internal versions."""
    release = release_of(text)
    if release is None:
        return None
    _, dash, internal = text.partition("-IV")
    return list(_RELEASES).index(release), int(internal) if dash else _RELEASES[release]


def magic_of(release: str) -> int:
    """The newest record format (magic) of a release."""
    at = list(_RELEASES).index(release)
    return (at >= _MAGIC_1_FROM) + (at >= _MAGIC_2_FROM)
