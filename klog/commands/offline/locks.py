"""The locks of the log directories that a command works on.

A command that changes a directory holds its lock, so that no broker uses it meanwhile. A command that only
reads takes no lock and leaves no file; it says which process has the directory open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from klog.commands.shared.messages import print_note


@contextmanager
def hold(log_directories: Iterable[str], *, changes: bool, quiet: bool = False) -> Iterator[None]:
    """Hold the locks in the block if the command `changes` the directories; else note which are in use.

    Raises `StorageError` if the command changes a directory that another process holds.
    """
    from klog.storage.files.directory_lock import holder_of, locked

    with ExitStack() as locks:
        for directory in dict.fromkeys(log_directories):
            if changes:
                locks.enter_context(locked(directory))
            elif not quiet and (holder := holder_of(directory)) is not None:
                print_note(f"note: {holder} has {directory} open and may change it meanwhile")
        yield
