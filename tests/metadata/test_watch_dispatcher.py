"""Watches are called in order, and one that fails keeps none of the others from being called."""

from __future__ import annotations

import threading

import pytest

from klog.formats.errors import KlogError
from klog.metadata.watches import Dispatcher


class OddError(Exception):
    """Of no kind that anybody would think of."""


@pytest.mark.parametrize("error", [KlogError("a reason"), OddError("a bug")])
def test_a_watch_that_fails_does_not_silence_the_next(error, caplog) -> None:
    called = threading.Event()

    def fail() -> None:
        raise error

    dispatcher = Dispatcher("test-watches")
    dispatcher.deliver([fail, called.set])
    dispatcher.stop()
    assert called.is_set()
    assert "a watch failed" in caplog.text
    assert str(error) in caplog.text
