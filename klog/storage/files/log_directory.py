"""Groups partition directories by the log directory of a broker that contains them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from klog.formats.names import FileKind
from klog.storage.files.targets import targets


def log_directories_of(paths: Iterable[str]) -> dict[str, list[str]]:
    """The partition directories that `paths` name, by the log directory that contains them."""
    groups: dict[str, list[str]] = {}
    for target in targets(paths):
        groups.setdefault(log_directory_of(target.directory), []).append(target.directory)
    return groups


def log_directory_of(partition_directory: str) -> str:
    """The log directory of a partition directory, whose lock and checkpoints count for it.

    A link into a log directory is followed, so that a broker's partition is its own under any name. A link
    that lies in a log directory belongs to that one.
    """
    parent = os.path.dirname(os.path.abspath(partition_directory))
    if any(os.path.exists(os.path.join(parent, kind)) for kind in (FileKind.META_PROPERTIES, FileKind.LOCK)):
        return parent
    return os.path.dirname(os.path.realpath(partition_directory))
