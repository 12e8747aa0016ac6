"""The levels of `metadata.version` and of the features beside it, by Kafka's names.

Rules: Kafka's `MetadataVersion`, and `Feature` with the defaults that `kafka-storage format` takes. A cluster
that is converted is none that is new: eligible leader replicas (KIP-966) and what is in preview stay off
until an operator turns them on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.formats.errors import UsageError

# In the order of their levels, of which the first is 7.
_NAMES: Final = """
3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4
3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1
"""
LEVELS: Final[Mapping[str, int]] = {name: level for level, name in enumerate(_NAMES.split(), 7)}
"""The levels by name. 3.3-IV3 is the first that Kafka 4 reads."""
LATEST: Final = "4.1-IV1"
"""The latest one that klog writes."""
SCRAM: Final = LEVELS["3.5-IV2"]
"""The first level with SCRAM credentials (KIP-900)."""
TOKENS: Final = LEVELS["3.6-IV2"]
"""The first level with delegation tokens."""

ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"
"""The feature of KIP-966."""


class _Feature(NamedTuple):
    """Since which level of metadata.version a feature is known, and its default from given levels on."""

    since: int
    defaults: tuple[tuple[int, int], ...] = ()


# The defaults of a new cluster, but for eligible leader replicas, which an upgrade does not turn on either.
_FEATURES: Final[Mapping[str, _Feature]] = {
    "group.version": _Feature(LEVELS["4.0-IV0"], ((LEVELS["4.0-IV0"], 1),)),
    "transaction.version": _Feature(LEVELS["4.0-IV0"], ((LEVELS["4.0-IV0"], 1), (LEVELS["4.0-IV2"], 2))),
    ELIGIBLE_LEADERS: _Feature(LEVELS["4.0-IV1"]),
    "share.version": _Feature(LEVELS["4.1-IV0"]),
    "streams.version": _Feature(LEVELS["4.1-IV0"]),
}


def level_of(text: str) -> int:
    """The level that a name says: `4.1-IV1`, `4.1` (its latest), or a number. Raises UsageError."""
    if text in LEVELS:
        return LEVELS[text]
    latest = [level for name, level in LEVELS.items() if name.startswith(f"{text}-")]
    if latest:
        return latest[-1]
    if text.isdecimal() and int(text) in LEVELS.values():
        return int(text)
    raise UsageError(
        f"metadata.version {text} is unknown",
        cure=f"name a release (3.9, 4.0, 4.1) or one of {', '.join(LEVELS)}",
    )


def name_of(level: int) -> str:
    """Kafka's name of a level; the number if there is none."""
    return next((name for name, each in LEVELS.items() if each == level), str(level))


def features_at(level: int, present: Mapping[str, int], chosen: Mapping[str, int]) -> dict[str, int]:
    """The levels of the features beside metadata.version: those chosen, else those that the cluster has,
    else the defaults. Features that the metadata version does not know are left out.

    Raises UsageError if one of those was chosen.
    """
    for name in chosen:
        if name not in _FEATURES or level < _FEATURES[name].since:
            raise UsageError(
                f"metadata.version {name_of(level)} has no feature {name}",
                cure=f"one of {', '.join(known for known, each in _FEATURES.items() if level >= each.since)}",
            )
    found = {
        name: max((value for since, value in feature.defaults if level >= since), default=0)
        for name, feature in _FEATURES.items()
    }
    kept = {name: value for name, value in present.items() if name in _FEATURES}
    merged = {**found, **kept, **chosen}
    return {name: value for name, value in merged.items() if value and level >= _FEATURES[name].since}
