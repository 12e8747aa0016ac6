"""What a conversion to another form will do. A plan is made without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.cluster_metadata.consistency import Problem


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write, and how: a file, directory or address, or the properties files of KRaft nodes."""

    now_ms: int
    random_bytes: Callable[[int], bytes]
    place: str | None = None
    configs: tuple[str, ...] = ()
    metadata_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)


class Step(NamedTuple):
    """A file or directory that is written, and what it gets."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is written, changed on the way, and lost; what is wrong; and the writing itself."""

    steps: tuple[Step, ...]
    write: Callable[[], object]
    losses: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
