"""A command waits for a broker that it may have been started with, and for no other."""

from __future__ import annotations

import pytest

from klog.admin import connect
from klog.admin.settings import settings_of
from klog.client.retry import Clock
from klog.protocol.channel import Channel
from klog.protocol.errors import ConnectRefusedError


def _refuse(channel: Channel) -> None:
    raise ConnectRefusedError(f"cannot connect to {channel}: Connection refused")


@pytest.mark.parametrize(
    ("bootstrap", "waits"),
    [("127.0.0.1:1", True), ("localhost:1,[::1]:1", True), ("10.1.2.3:1", False), ("127.0.0.1:1,a:1", False)],
)
def test_only_a_broker_of_this_machine_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, bootstrap: str, waits: bool
) -> None:
    monkeypatch.setattr(Channel, "connect", _refuse)
    said: list[str] = []
    settings = settings_of({}, bootstrap=bootstrap, timeout_ms=50, on_waiting=said.append)
    with pytest.raises(ConnectRefusedError), connect.cluster(settings):
        pass
    assert [text.partition(";")[2] for text in said] == [
        " waiting up to 0.05 s for a broker to start"
    ] * waits


def test_the_wait_is_said_before_it_begins_and_lasts_as_long_as_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str | float] = []
    now_s = 100.0

    def sleep_s(duration_s: float) -> None:
        nonlocal now_s
        now_s += duration_s
        happened.append(duration_s)

    monkeypatch.setattr(Channel, "connect", _refuse)
    monkeypatch.setattr(connect, "SYSTEM_CLOCK", Clock(lambda: now_s, sleep_s, lambda: 0))
    settings = settings_of({}, bootstrap="localhost:1", timeout_ms=30_000, on_waiting=happened.append)
    with pytest.raises(ConnectRefusedError), connect.cluster(settings):
        pass
    said = "localhost:1 refuses connections; waiting up to 4 s for a broker to start"
    assert happened[0] == said
    assert 3.5 < now_s - 100 <= 4
