"""Forces logs to disk that were created together: a file system with one call if they are many, else each.

A controller may name thousands of new partitions in one request. Two calls of fsync for each of them would
take most of the time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from klog.formats.names import FileKind
from klog.storage.files.file_system_sync import can_sync_file_system, sync_file_system
from klog.storage.files.files import sync_directory

# `sync_file_system` also waits for what others have written, which is worth it from here on only.
MANY_NEW: Final = 64


def force_to_disk(log_directory: str, paths: Sequence[str]) -> None:
    """Forces `partition.metadata` of the partition directories `paths`, and their names, to disk. All of them
    are in one log directory. Raises OSError.
    """
    if len(paths) >= MANY_NEW and can_sync_file_system():
        sync_file_system(log_directory)
        return
    for path in paths:
        # It is missing if the creation failed afterwards, or if the log was set aside at once.
        with suppress(FileNotFoundError):
            sync_directory(os.path.join(path, FileKind.PARTITION_METADATA))
            sync_directory(path)
