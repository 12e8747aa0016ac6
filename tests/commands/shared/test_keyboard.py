"""Keys of a terminal, and the signals that come while nobody waits for them."""

from __future__ import annotations

import os
import pty
import signal
import sys
import threading

import pytest

from klog.commands.shared.keyboard import RESUMED, keyboard


def test_a_signal_that_interrupts_no_wait_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[int] = []
    former = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    terminal, ours = pty.openpty()
    with os.fdopen(ours) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        try:
            with keyboard() as keys:
                assert keys is not None
                signal.signal(signal.SIGTSTP, lambda number, _: handled.append(number))
                # Another thread gets it, so the main one is not woken by it.
                other = threading.Thread(
                    target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
                )
                timer = threading.Timer(0.2, other.start)
                timer.start()
                assert keys.wait(60.0) == [RESUMED]
                timer.join()
                other.join()
        finally:
            signal.signal(signal.SIGTSTP, former)
    os.close(terminal)
    assert handled == [signal.SIGTSTP]
