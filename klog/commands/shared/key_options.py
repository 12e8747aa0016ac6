"""The option with the key of an encrypted repository."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from klog.commands.shared.messages import print_note
from klog.commands.shared.option_sets import valued

if TYPE_CHECKING:
    from klog.backup.keys import UserKey


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """The key, if the repository is encrypted."""

    encryption_key_file: Path | None = valued(
        "FILE",
        "A file with the key of an encrypted repository. Or the variable KLOG_BACKUP_KEY has the key itself.",
        envvar="KLOG_BACKUP_KEY_FILE",
    )

    def key(self) -> UserKey | None:
        """The key that was given, None if there is none. Raises `UsageError`, `StorageError`."""
        from klog.backup.keys import key_from_environment

        if self.encryption_key_file is not None:
            return key_in(self.encryption_key_file)
        return key_from_environment(os.environ)


def key_in(path: Path) -> UserKey:
    """The key in a file, with a note if others may read it. Raises `UsageError`, `StorageError`."""
    from klog.backup.keys import is_open_to_others, read_key

    key = read_key(path)
    if is_open_to_others(path):
        print_note(f"{path}: others than its owner can use this key file; chmod 600 makes it yours alone")
    return key
