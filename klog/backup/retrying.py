"""Repeats what an object store refused: with growing pauses, and only for a bounded time.

An object store answers 503 for minutes, or drops a connection in the middle. What cannot get better by
waiting (no permission, no such bucket, a full disk) is not repeated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, TypeVar

from klog.formats.errors import StorageError
from klog.storage.files.seekable import SeekableStream

_Result = TypeVar("_Result")
_FINAL_CAUSES: Final = (FileNotFoundError, PermissionError, NotADirectoryError)
_FINAL_WORDS: Final = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY",
    "INVALID_CLIENT_TOKEN",
    "NO_SUCH_BUCKET",
    "SIGNATURE_DOES_NOT_MATCH",
    "UNRECOGNIZED_CLIENT",
    "EXPIRED_TOKEN",
    "HTTP status 401",
    "HTTP status 403",
)


def may_pass(error: StorageError) -> bool:
    """Whether the same call may succeed later."""
    cause = error.__cause__
    if not isinstance(cause, OSError) or isinstance(cause, _FINAL_CAUSES):
        return False
    text = str(error).upper()
    return not any(word.upper() in text for word in _FINAL_WORDS)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Pauses double from `first_pause_s` to `largest_pause_s`; after `limit_s` the error stands.

    The limit is one of time, too: a store that does not answer costs a minute and more for each call.

    Each pause is shortened at random by up to a half, so that many callers do not come back together.
    """

    first_pause_s: float = 0.2
    largest_pause_s: float = 20.0
    limit_s: float = 300.0
    pause: Callable[[float], object] = time.sleep
    now_s: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    on_retry: Callable[[StorageError, float], object] = lambda _error, _pause: None

    def call(self, work: Callable[[], _Result]) -> _Result:
        """The result of `work`, which is repeated when it raises a `StorageError` that may pass."""
        pause_s, paused_s, begin_s = self.first_pause_s, 0.0, self.now_s()
        while True:
            try:
                return work()
            except StorageError as error:
                if max(paused_s, self.now_s() - begin_s) >= self.limit_s or not may_pass(error):
                    raise
                shortened = pause_s * (1 - self.chance() / 2)
                self.on_retry(error, shortened)
                self.pause(shortened)
                paused_s += shortened
                pause_s = min(2 * pause_s, self.largest_pause_s)


START_S: Final = 60.0
"""How long a command asks for a repository that it has not read yet: whoever started it waits."""


NO_RETRIES: Final = RetryPolicy(limit_s=0.0)
"""For local disks, whose errors do not pass."""


class RetryingFile(SeekableStream):
    """A file whose reads go through `call`, which repeats them; the position moves only with a read that
    succeeds."""

    def __init__(self, opening: Callable[[], BinaryIO], call: Callable[[Callable[[], Any]], Any]) -> None:
        self._call = call
        self._file: BinaryIO = call(opening)
        super().__init__(self._file)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a position."""
        self._file.seek(self._position)
        self._position = self._file.seek(offset, whence)
        return self._position

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill some of `buffer`; 0 at the end. Raises `StorageError`."""
        got: int = self._call(lambda: self._again(buffer))
        self._position += got
        return got

    def _again(self, buffer: Any) -> int:  # noqa: ANN401
        self._file.seek(self._position)
        got: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        return got
