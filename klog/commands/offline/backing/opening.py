"""Opens repositories for commands, which say what an object store refuses while they wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.messages import print_note

if TYPE_CHECKING:
    from klog.backup.repository import Repository
    from klog.backup.retrying import RetryPolicy


def retries() -> RetryPolicy:
    """Says on stderr what an object store refused, and when it is tried again."""
    from klog.backup.retrying import RetryPolicy

    return RetryPolicy(on_retry=lambda error, pause_s: print_note(f"{error}; again in {pause_s:.1f} s"))


def open_patiently(place: str, keys: KeyOptions) -> Repository:
    """The repository at a path or URI. Raises `KlogError`."""
    from klog.backup.reading import open_backups

    return open_backups(place, retries(), keys.key())
