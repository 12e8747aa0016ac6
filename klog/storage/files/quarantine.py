"""Names the directory into which recovery moves what it takes out of a log, and writes its manifest.

Kafka refuses to start if a log directory contains a directory that is not a partition's. So the quarantine is
outside of all log directories, by default in `<log directory>/../klog-quarantine/<log directory's
name>/<partition>/<time>/`. The manifest says how to put everything back.

A broker that starts removes what is older than `MAX_AGE_MS`, and the oldest above `MAX_BYTES`. `klog recover`
removes nothing of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from klog.formats.errors import FormatError, StorageError, UsageError
from klog.formats.names import FileKind, FileState, parse_file

DIRECTORY_NAME: Final = "klog-quarantine"
MANIFEST_NAME: Final = "manifest.json"
MANIFEST_VERSION: Final = 1
TAIL_SUFFIX: Final = ".tail"
REPLACED_SUFFIX: Final = ".replaced"
MAX_AGE_MS: Final = 30 * 86_400_000
MAX_BYTES: Final = 10 << 30
"""Limits of the quarantine of one log directory; the documentation names them."""

_UNFINISHED: Final = re.compile(r".*\.[0-9]+\.tmp")


@dataclass(frozen=True, slots=True)
class Kept:
    """One entry of the quarantine.

    `how` is `moved` (move it back), `tail` (append it to the file if that is `position_bytes` long),
    `renamed` (`kept_as` is its new name in the partition: rename it back) or `replaced` (the old content of a
    derived file; klog wrote a valid one). To undo a recovery, take the entries in reverse order.
    """

    original: str
    kept_as: str
    how: str
    why: str
    position_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The manifest's entry."""
        entry: dict[str, Any] = {"file": self.original, "keptAs": self.kept_as, "how": self.how}
        if self.position_bytes is not None:
            entry["position"] = self.position_bytes
        return entry | {"why": self.why}


def default_root(log_directory: str) -> str:
    """The quarantine of a log directory, beside it."""
    parent, name = os.path.split(os.path.abspath(log_directory))
    return os.path.join(parent, DIRECTORY_NAME, name)


def require_outside(root: str, log_directory: str) -> None:
    """Raise `UsageError` if the quarantine would be in a log directory."""
    above = os.path.realpath(root)
    while True:
        inside = os.path.exists(os.path.join(above, FileKind.META_PROPERTIES))
        if inside or above == os.path.realpath(log_directory):
            raise UsageError(
                "the quarantine may not lie in a log directory, where Kafka refuses unknown directories",
                file=root,
                cure="name a directory elsewhere, best on the same disk",
            )
        parent = os.path.dirname(above)
        if parent == above:
            return
        above = parent


def new_directory(root: str, partition_directory: str, now_ms: int) -> str:
    """A directory name with the time, which no earlier recovery has used."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms / 1000))
    base = os.path.join(root, os.path.basename(os.path.abspath(partition_directory)), stamp)
    for attempt in range(10_000):
        path = base if attempt == 0 else f"{base}-{attempt}"
        if not os.path.exists(path):
            return path
    cure = "name another with --quarantine"
    raise StorageError("no free name for a quarantine directory", file=base, cure=cure)


def manifest(partition_directory: str, now_ms: int, kept: list[Kept], *, complete: bool) -> bytes:
    """The manifest of one recovery. Until it is `complete`, some entries may not have happened yet."""
    content = {
        "version": MANIFEST_VERSION,
        "partitionDirectory": os.path.abspath(partition_directory),
        "createdMs": now_ms,
        "complete": complete,
        "putBack": "from last to first: moved: move keptAs to file; tail: append keptAs to file at position; "
        "renamed: in the partition directory, rename keptAs to file; replaced: copy keptAs over file",
        "files": [entry.to_json() for entry in kept],
    }
    return (json.dumps(content, indent=2) + "\n").encode()


def is_unfinished(name: str) -> bool:
    """Whether a file is one that klog was writing when it was killed: `<name>.<process id>.tmp`."""
    return _UNFINISHED.fullmatch(name) is not None


def holds_records(directory: str, name: str) -> bool:
    """Whether a file of a partition holds records that are in no other file.

    Indexes and snapshots follow from the records. A cleaner's unfinished output is a copy.
    """
    try:
        parsed = parse_file(name)
    except FormatError:
        return False
    if parsed.kind is not FileKind.LOG or parsed.state in (FileState.CLEANED, FileState.DELETED):
        return False
    try:
        return os.path.getsize(os.path.join(directory, name)) > 0
    except OSError:
        return True  # another step of the recovery makes it


@dataclass(frozen=True, slots=True)
class Past:
    """What an earlier recovery kept."""

    path: str
    created_ms: int
    size_bytes: int


def unfinished_files(root: str, partition_directory: str) -> list[str]:
    """Files that killed recoveries of a partition were writing into the quarantine. Raises `OSError`."""
    home = os.path.join(root, os.path.basename(os.path.abspath(partition_directory)))
    return [
        os.path.join(above, name)
        for above, _, names in os.walk(home)
        for name in sorted(names)
        if is_unfinished(name)
    ]


def prune(root: str, now_ms: int, *, max_age_ms: int = MAX_AGE_MS, max_bytes: int = MAX_BYTES) -> list[Past]:
    """Remove what earlier recoveries kept too long ago, and the oldest above the limit; returns that.

    Only directories with a manifest are removed, and none that was made at `now_ms` or later. Raises
    `OSError`.
    """
    left = sorted(_past(root), key=lambda past: past.created_ms)
    total_bytes = sum(past.size_bytes for past in left)
    removed = []
    for past in left:
        is_old = now_ms - past.created_ms > max_age_ms
        if past.created_ms >= now_ms or not (is_old or total_bytes > max_bytes):
            break
        shutil.rmtree(past.path)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(past.path))  # the partition's, if this was the last
        total_bytes -= past.size_bytes
        removed.append(past)
    return removed


def _past(root: str) -> Iterator[Past]:
    """What is in the quarantine of a log directory. Directories that are not klog's are left out."""
    for above, _, names in os.walk(root):
        if MANIFEST_NAME not in names or os.path.dirname(os.path.dirname(above)) != root:
            continue
        try:
            with open(os.path.join(above, MANIFEST_NAME), "rb") as file:
                created_ms = json.load(file)["createdMs"]
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(created_ms, int):
            yield Past(above, created_ms, sum(os.path.getsize(os.path.join(above, name)) for name in names))
