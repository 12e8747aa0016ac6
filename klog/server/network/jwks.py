"""Keeps the public keys of a provider of tokens: from a file, or from a URL that is read again and again.

Rules: Kafka's `JwksFileVerificationKeyResolver` and `RefreshingHttpsJwks`. A login never waits for the
provider: with an unknown key it fails, and the keys are read again soon.
"""

from __future__ import annotations

import logging
import math
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from klog.client.http_reading import read_answer
from klog.formats.errors import FormatError
from klog.security.authentication.signed_tokens import KeySet, parse_key_set

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
_EXPEDITED_EVERY_S: Final = 60.0


def read_keys(url: str, tls: ssl.SSLContext | None = None, timeout_s: float = _TIMEOUT_S) -> KeySet:
    """The keys at a URL of http, https or file. Raises OSError, FormatError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return parse_key_set(Path(unquote(parts.path)).read_bytes())
    request = urllib.request.Request(url)  # noqa: S310 (the scheme was checked)
    context = tls if parts.scheme == "https" else None
    return parse_key_set(read_answer(request, timeout_s, context))


@dataclass(eq=False)
class RefreshedKeys:
    """The keys at a URL. A thread reads them at once and every `refresh_ms`; after a failure sooner, with
    pauses from `retry_ms` to `most_retry_ms`. To be stopped.
    """

    url: str
    refresh_ms: int
    retry_ms: int
    most_retry_ms: int
    read: Callable[[str], KeySet] = read_keys
    _stopped: bool = field(default=False, init=False)
    _due: threading.Event = field(default_factory=threading.Event, init=False)
    _tried: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        self._keys = KeySet(())
        self._expedited_s = -math.inf
        self._thread = threading.Thread(target=self._run, name="klog-jwks", daemon=True)
        self._thread.start()

    def __call__(self) -> KeySet:
        """The keys that were read last."""
        return self._keys

    def await_first(self) -> None:
        """Waits until they were read, or could not be."""
        self._tried.wait(2 * _TIMEOUT_S)

    def expedite(self) -> None:
        """A token names a key that is not there: the provider may have a new one. Reads the keys now, if that
        was not done for this reason in the last minute.
        """
        now_s = time.monotonic()
        if now_s - self._expedited_s >= _EXPEDITED_EVERY_S:
            self._expedited_s = now_s
            self._due.set()

    def stop(self) -> None:
        """Reads no more. Does not wait for an answer of the provider."""
        self._stopped = True
        self._due.set()

    def _run(self) -> None:
        failed = 0
        while not self._stopped:
            self._due.clear()
            try:
                self._keys = self.read(self.url)
                failed, pause_ms = 0, self.refresh_ms
            except (OSError, FormatError, ValueError) as error:
                if not failed and not self._stopped:
                    _log.warning("The keys at %s cannot be read: %s", self.url, error)
                pause_ms = min(self.retry_ms << min(failed, 20), self.most_retry_ms)
                failed += 1
            self._tried.set()
            self._due.wait(pause_ms / 1000)
