"""Names the directory into which recovery moves what it takes out of a log, and writes its manifest.

Kafka refuses to start if a log directory contains a directory that is not a partition's. So the quarantine is
outside of all log directories, by default in `<log directory>/../klog-quarantine/<log directory's
name>/<partition>/<time>/`. The manifest says how to put everything back.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any, Final

from klog.formats.errors import StorageError, UsageError
from klog.formats.names import FileKind

DIRECTORY_NAME: Final = "klog-quarantine"
MANIFEST_NAME: Final = "manifest.json"
MANIFEST_VERSION: Final = 1
TAIL_SUFFIX: Final = ".tail"
REPLACED_SUFFIX: Final = ".replaced"


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
