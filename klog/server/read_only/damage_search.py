"""Looks for damage in all segments that a read-only broker serves, in the background, and logs each place.

The rules are those of `klog verify`: `verify_segment` reads the segments. It runs in a process of its own,
which gives way to all others and reads no faster than a limit, so that readers keep disk and processor.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Final, NamedTuple, cast

from klog.formats.errors import ChecksumCodeError, KlogError
from klog.formats.names import FileKind, TopicPartition, segment_file
from klog.jobs.processes import Advanced, Done, run_tasks
from klog.storage.cleaner.throttle import Throttle
from klog.storage.repair.index_reports import RebuildOptions, SegmentTask
from klog.storage.repair.problem import OFFLINE, Problem
from klog.storage.repair.segment_scan import IndexSettings
from klog.storage.repair.verify_segment import KEEPS, verify_segment

_log = logging.getLogger(__name__)

BYTES_PER_SECOND: Final = 64 << 20
"""How much is read at most: half of what an old disk gives."""

_LOWEST_PRIORITY: Final = 19
_STOP_SECONDS: Final = 10.0
_LONGEST_PAUSE_SECONDS: Final = 0.1
_CURE: Final = "klog verify checks the directories"
_CUT_BEFORE: Final = "the log is cut in a segment before, or this one does not fit"


class ServedSegment(NamedTuple):
    """A segment as it was given to the broker, and what it is in the backup.

    `directory` and `base_offset` say where the broker has it. It has `size_bytes` of `file`, from
    `start_bytes` on (of a gzipped copy these are plain bytes): `is_linked` or copied. Consumers find what
    follows it from `next_offset` on.
    """

    partition: TopicPartition
    directory: str
    base_offset: int
    size_bytes: int
    file: str
    start_bytes: int
    next_offset: int
    is_linked: bool

    @property
    def name(self) -> str:
        """The name that the broker knows."""
        return segment_file(FileKind.LOG, self.base_offset)

    @property
    def path(self) -> str:
        """Where the broker has it, unless recovery has removed it."""
        return os.path.join(self.directory, self.name)


class Damage(NamedTuple):
    """One damaged place in the backup; `position_bytes` is None if the file cannot be read at all."""

    file: str
    position_bytes: int | None
    what: str
    meaning: str

    def __str__(self) -> str:
        place = "" if self.position_bytes is None else f" at byte {self.position_bytes}"
        return f"{self.file}{place}: {self.what}; {self.meaning}"


class DamageSearch:
    """One pass over all segments in the background. `known` is the number of places that are logged already.

    `start` and `stop` are called once, by one thread; `stop` also if it was not started.
    """

    def __init__(
        self, segments: Sequence[ServedSegment], known: int = 0, bytes_per_second: int = BYTES_PER_SECOND
    ) -> None:
        self._segments = segments
        self._known = known
        self._bytes_per_second = bytes_per_second
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="klog-damage-search", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the pass has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def stop(self) -> None:
        """End the pass, wherever it is."""
        self._stopping.set()
        self.join(_STOP_SECONDS)

    def _run(self) -> None:
        checked = places = 0
        work = partial(find_damage, bytes_per_second=self._bytes_per_second)
        results = run_tasks(work, self._segments, 1, cure=_CURE, describe=lambda segment: segment.file)
        events = cast("Generator[Advanced | Done[list[Damage]], None, None]", results)
        try:
            with closing(events):
                for event in events:
                    if isinstance(event, Done):
                        checked += 1
                        places += len(event.result)
                        for damage in event.result:
                            _log.warning("damaged: %s", damage)
                    if self._stopping.is_set():
                        break
        except (KlogError, ChecksumCodeError, OSError) as error:
            _log.warning("the search for damage has ended: %s", error)
        self._summarise(checked, places)

    def _summarise(self, checked: int, places: int) -> None:
        total = len(self._segments)
        of = "" if checked == total else f" of {total}"
        level = logging.WARNING if places or self._known else logging.INFO
        _log.log(
            level,
            "%d%s segments checked, %d damaged places%s",
            checked,
            of,
            places + self._known,
            f" ({self._known} of them found at the start)" if self._known else "",
        )


def find_damage(
    segment: ServedSegment, on_bytes: Callable[[int], None], *, bytes_per_second: int
) -> list[Damage]:
    """The damaged places of a segment, each once, in their order. Runs in the other process."""
    _give_way()

    def wait(seconds: float) -> None:
        while seconds > 0:
            # A report is the moment at which the other side may end this process.
            on_bytes(0)
            time.sleep(min(seconds, _LONGEST_PAUSE_SECONDS))
            seconds -= _LONGEST_PAUSE_SECONDS

    throttle = Throttle(bytes_per_second, wait)

    def read(size_bytes: int) -> None:
        on_bytes(size_bytes)
        throttle.take(size_bytes)

    task = SegmentTask(_directory_to_read(segment), segment.base_offset, False, segment.size_bytes)
    options = RebuildOptions(now_ms=0, settings=IndexSettings(), check=True)
    facts = verify_segment(task, options, deep=True, on_bytes=read, with_indexes=False)
    places: dict[int | None, Problem] = {}
    for problem in facts.damage:
        places.setdefault(problem.position, problem)
    served_bytes = _served_bytes(segment)
    if served_bytes == segment.size_bytes:
        found = [_damage(segment, each, _meaning(segment, each)) for each in places.values()]
    else:
        found = _of_cut_segment(segment, served_bytes, places.values())
    return sorted(found, key=lambda damage: damage.position_bytes or 0)


def _directory_to_read(segment: ServedSegment) -> str:
    """Where all of the segment is, also if recovery has put another file in the place of the link."""
    original, name = os.path.split(segment.file)
    is_replaced = segment.is_linked and not os.path.islink(segment.path)
    return original if is_replaced and name == segment.name else segment.directory


def _served_bytes(segment: ServedSegment) -> int:
    """How much of the segment the broker's recovery has left."""
    try:
        return os.path.getsize(segment.path)
    except OSError:
        # Recovery has removed the file; or a link leads to a file that is lost, which is said as it is.
        return segment.size_bytes if os.path.islink(segment.path) else 0


def _of_cut_segment(segment: ServedSegment, served_bytes: int, problems: Iterable[Problem]) -> list[Damage]:
    """The damage of a segment that recovery has cut: up to the cut, and the one that it was cut for."""
    before: list[Problem] = []
    cut = Problem(segment.file, _CUT_BEFORE, "", position=served_bytes)
    for problem in sorted(problems, key=lambda each: each.position or 0):
        if (problem.position or 0) >= served_bytes:
            cut = problem
            break
        before.append(problem)
    found = [_damage(segment, each, _meaning(segment, each)) for each in before]
    return [*found, _damage(segment, cut, "the rest of the segment is not served")]


def _give_way() -> None:
    """Run only when nothing else wants to. A process that has done so stays as it is."""
    if hasattr(os, "nice"):
        os.nice(_LOWEST_PRIORITY)


def _damage(segment: ServedSegment, problem: Problem, meaning: str) -> Damage:
    position = None if problem.position is None else segment.start_bytes + problem.position
    return Damage(segment.file, position, problem.what, meaning)


def _meaning(segment: ServedSegment, problem: Problem) -> str:
    """What the damage means for consumers; where they can go on."""
    if problem.kafka == OFFLINE:
        return f"its records of {segment.partition} cannot be served"
    if problem.kafka != KEEPS:
        return f"Kafka {problem.kafka}"
    following = segment.next_offset
    # The offset may be what is damaged.
    if problem.offset is not None and segment.base_offset <= problem.offset < following:
        following = problem.offset + 1
    return (
        f"consumers of {segment.partition} fail there or get wrong records, "
        f"and can go on from offset {following}"
    )
