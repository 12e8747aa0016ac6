"""A command waits for a broker that it may have been started with, and for no other."""

from __future__ import annotations

import pytest

from klog.admin import connect
from klog.admin.settings import settings_of
from klog.protocol.channel import Channel
from klog.protocol.errors import ConnectRefusedError


@pytest.mark.parametrize(
    ("bootstrap", "waits"),
    [("127.0.0.1:1", True), ("localhost:1,[::1]:1", True), ("10.1.2.3:1", False), ("127.0.0.1:1,a:1", False)],
)
def test_only_a_broker_of_this_machine_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, bootstrap: str, waits: bool
) -> None:
    def refuse(channel: Channel) -> None:
        raise ConnectRefusedError(f"cannot connect to {channel}: Connection refused")

    monkeypatch.setattr(Channel, "connect", refuse)
    said: list[str] = []
    settings = settings_of({}, bootstrap=bootstrap, timeout_ms=50, on_waiting=said.append)
    with pytest.raises(ConnectRefusedError), connect.cluster(settings):
        pass
    assert [text.partition(";")[2] for text in said] == [
        " waiting up to 0.05 s for a broker to start"
    ] * waits
