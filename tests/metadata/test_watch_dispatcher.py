"""Watches are called in order, and one that fails does not stop the others."""

from __future__ import annotations

import threading

import pytest

from klog.formats.errors import KlogError
from klog.metadata.watches import Dispatcher


class UnexpectedError(Exception):
    """An exception that no code expects."""


@pytest.mark.parametrize("error", [KlogError("a reason"), UnexpectedError("a bug")])
def test_a_watch_that_fails_does_not_stop_the_next(error, caplog) -> None:
    called = threading.Event()

    def fail() -> None:
        raise error

    dispatcher = Dispatcher("test-watches")
    dispatcher.deliver([fail, called.set])
    dispatcher.stop()
    assert called.is_set()
    assert "a watch failed" in caplog.text
    assert str(error) in caplog.text
