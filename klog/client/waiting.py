"""Waits for a broker that has not started to listen yet, as after `klog serve &` in a shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from klog.client.retry import Retry
from klog.protocol.errors import ConnectRefusedError

_Connected = TypeVar("_Connected")


def until_accepted(
    connect: Callable[[], _Connected], retry: Retry, on_refused: Callable[[], object]
) -> _Connected:
    """What `connect` gives, called again while connections are refused and `retry` allows it.

    Calls `on_refused` once, before the first pause. Raises what `connect` raises; every error but
    ConnectRefusedError at once.
    """
    while True:
        try:
            return connect()
        except ConnectRefusedError as error:
            if not retry.failures:
                on_refused()
            retry.failed(error)
